"""OPT and Galactica: learned positions, biases everywhere; the 350M model embeds in a narrower width."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, labels, top_of, width, windows
from gpufit.sources.patterns import FULL

CLASS = "OPTConfig (transformers 5.24.0)"
INERT = frozenset({"do_layer_norm_before", "_remove_final_layer_norm"})
OFFSET = 2
"""Rows of the position table before the first position (OPTLearnedPositionalEmbedding)."""


def read(config: Config) -> Decoder:
    """The final norm exists only where norms come before their layers."""
    d = basics(config, CLASS, tie=True, prefix="model.decoder.", vocab_size=50272, max_position_embeddings=2048)
    windows(d, None, every(d, FULL))
    narrow = config.maybe("word_embed_proj_dim", symbol="H_e", label="embedding width") or d.hidden
    _ends(d, narrow)
    bias = config.flag("enable_bias", default=True)
    d.attention(d.all, bias=bias, out_bias=bias, names=("q_proj", "k_proj", "v_proj", "out_proj"))
    d.mlp(d.all, width(d, "ffn_dim"), gated=False, bias=bias, module="layers.{i}", names=("", "fc1", "fc2"))
    if config.flag("layer_norm_elementwise_affine", default=True):
        for name, path in (("attention norm", "self_attn_layer_norm"), ("MLP norm", "final_layer_norm")):
            d.norm(name, f"layers.{{i}}.{path}", layers=d.all, bias=True)
        if config.flag("do_layer_norm_before", default=True) and not config.flag("_remove_final_layer_norm"):
            d.norm("final norm", "final_layer_norm", bias=True)
    return d


def _ends(d: Decoder, narrow: Q) -> None:
    """Embeddings, the projections to and from their width, and what stands on top."""
    vocab, top = d.need(d.vocab), top_of(d.config)
    d.part("token embedding", Role.EMBEDDING, "embed_tokens", vocab, narrow, shard=Shard.VOCAB)
    rows = d.config.count(
        "max_position_embeddings", symbol="n_pos", label="learned positions", default=Default(value=2048, source=CLASS)
    )
    d.part("position embedding", Role.EMBEDDING, "embed_positions", rows + OFFSET, d.hidden)
    if int(narrow) != int(d.hidden):
        d.part("input projection", Role.EMBEDDING, "project_in", d.hidden, narrow, linear=True)
        d.part("output projection", Role.HEAD, "project_out", narrow, d.hidden, linear=True)
    if top == "lm" and not d.tied:
        d.part("output head", Role.HEAD, "/lm_head", vocab, narrow, shard=Shard.VOCAB, linear=True)
    if top != "lm":
        d.tied = True
        d.notes.append("an embedding or classification model: it has no output head over the vocabulary")
    if top == "score":
        d.part("classification head", Role.HEAD, "/score", labels(d.config), narrow)
