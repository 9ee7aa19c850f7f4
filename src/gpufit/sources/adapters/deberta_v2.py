"""DeBERTa v2 and v3: encoders with relative positions inside their attention."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, matrix, words

MODEL_TYPES = ("deberta-v2",)
CLASS = "DebertaV2Config (transformers 5.24.0)"
NAMES = ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense")
INERT = frozenset({"attention_head_size", "conv_act", "conv_groups", "pooler_hidden_size", "max_relative_positions"})


def read(config: Config) -> Decoder:
    """`share_att_key` (true in v3) reuses the projections for relative positions; a kernel adds one convolution to the encoder."""
    d, top = encoder(
        config, CLASS, inside="deberta.", vocab_size=128100, intermediate_size=6144, max_position_embeddings=512, type_vocab_size=0
    )
    if config.has("embedding_size") and config.integer("embedding_size") != int(d.hidden):
        raise ConfigError(
            f"{config.where('embedding_size')} differs from hidden_size", hint="one width is understood in this family"
        )
    positions = "position_embeddings" if config.flag("position_biased_input", default=True) else ""
    config.ignore("max_position_embeddings")
    embeddings(d, positions=positions)
    block(d, names=NAMES)
    if config.flag("relative_attention"):
        _relative(d)
    kernel = config.integer("conv_kernel_size", default=0)
    if kernel:
        size = config.item(kernel, "conv_kernel_size", symbol="k", label="kernel of the convolution")
        d.part("convolution", Role.OTHER, "encoder.conv.conv", d.hidden, d.hidden * size)
        d.part("convolution bias", Role.OTHER, "encoder.conv.conv.bias", d.hidden)
        d.norm("convolution norm", "encoder.conv.LayerNorm", bias=True)
    if top == "sequence":
        matrix(d, "pooler", "pooler.dense", d.hidden)
    if top == "masked":
        matrix(d, "head transform", "cls.predictions.transform.dense", d.hidden)
        head_norm(d, "cls.predictions.transform.LayerNorm")
        words(d, "cls.predictions.decoder", bias_module="cls.predictions.bias")
    elif top != "bare":
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d


def _relative(d: Decoder) -> None:
    """The table of relative positions, and projections for them where they are not shared."""
    c = d.config
    buckets = c.integer("position_buckets", default=-1) if c.raw("position_buckets") not in (-1, None) else -1
    limit = c.raw("max_relative_positions")
    span = buckets if buckets > 0 else (limit if isinstance(limit, int) and limit > 0 else c.integer("max_position_embeddings"))
    rows = c.item(2 * span, "position_buckets", symbol="n_rel", label="relative positions, both ways")
    d.part("relative positions", Role.OTHER, "encoder.rel_embeddings", rows, d.hidden)
    if "layer_norm" in (c.text("norm_rel_ebd") or "none"):
        d.norm("relative position norm", "encoder.LayerNorm", bias=True)
    if not c.flag("share_att_key"):
        kinds = c.raw("pos_att_type") or []
        for word, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")):
            if word in kinds:
                d.part(name, Role.ATTENTION, f"encoder.layer.{{i}}.attention.self.{name}", d.hidden, d.hidden, layers=d.all)
                d.part(f"{name} bias", Role.ATTENTION, f"encoder.layer.{{i}}.attention.self.{name}.bias", d.hidden, layers=d.all)
    c.ignore("pos_att_type")
