"""MPNet (all-mpnet-base): BERT's layers with a table of relative positions that all layers share."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, matrix, pooler, words

CLASS = "MPNetConfig (transformers 5.24.0)"
NAMES = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")


def read(config: Config) -> Decoder:
    """No kinds of token; `relative_attention_num_buckets` rows of one value a head."""
    d, top = encoder(
        config, CLASS, inside="mpnet.", vocab_size=30527, intermediate_size=3072, max_position_embeddings=512,
        relative_attention_num_buckets=32,
    )  # fmt: skip
    embeddings(d, kinds=False)
    block(d, names=NAMES, norms=("attention.LayerNorm", "output.LayerNorm"))
    buckets = config.count("relative_attention_num_buckets", symbol="n_b", label="buckets of relative positions")
    d.part("relative positions", Role.OTHER, "encoder.relative_attention_bias", buckets, d.need(d.attention_heads))
    if top == "bare":
        pooler(d)
    elif top == "masked":
        matrix(d, "head transform", "lm_head.dense", d.hidden)
        head_norm(d, "lm_head.layer_norm")
        words(d, "lm_head.decoder", bias_module="lm_head.bias")
    elif top == "sequence":
        matrix(d, "classification layer", "classifier.dense", d.hidden)
        matrix(d, "classification head", "classifier.out_proj", count(d, top))
    else:
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d
