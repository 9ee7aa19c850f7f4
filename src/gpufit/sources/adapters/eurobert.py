"""EuroBERT: Llama's layers that see both ways."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import norms, width
from gpufit.sources.encoders import count, encoder, matrix

CLASS = "EuroBertConfig (transformers 5.24.0)"
INERT = frozenset({"classifier_pooling"})


def read(config: Config) -> Decoder:
    """An output head of its own unless the file ties it."""
    d, top = encoder(config, CLASS, inside="model.", vocab_size=128256, intermediate_size=3072)
    d.tied = config.flag("tie_word_embeddings") or top != "masked"
    bias = config.flag("attention_bias")
    mlp = config.flag("mlp_bias")
    d.part("token embedding", Role.EMBEDDING, "embed_tokens", d.need(d.vocab), d.hidden, shard=Shard.VOCAB)
    d.attention(d.all, bias=bias, out_bias=bias)
    d.mlp(d.all, width(d), bias=mlp)
    norms(d)
    if top == "masked":
        if not d.tied:
            d.part("output head", Role.HEAD, "/lm_head", d.need(d.vocab), d.hidden, shard=Shard.VOCAB, linear=True)
        if mlp:
            d.part("output head bias", Role.HEAD, "/lm_head.bias", d.need(d.vocab), shard=Shard.VOCAB)
    elif top == "sequence":
        matrix(d, "classification layer", "dense", d.hidden)
        matrix(d, "classification head", "classifier", count(d, top))
    elif top != "bare":
        matrix(d, "classification head", "classifier", count(d, top))
    return d
