"""The first OLMo as its own repository's class has it (hf_olmo): fused projections, norms without weights."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import fused_qkv, out_proj

ARCHITECTURES = ("OLMoForCausalLM",)
CLASS = "OLMoConfig (ai2-olmo)"
PLAIN = {
    "alibi": False,
    "include_bias": False,
    "attention_layer_norm": False,
    "layer_norm_with_affine": False,
    "block_group_size": 1,
}
INERT = frozenset(
    {"attention_layer_norm_with_affine", "flash_attention", "init_cutoff_factor", "multi_query_attention", "bias_for_layer_norm"}
)


def read(config: Config) -> Decoder:
    """The table has `embedding_size` rows, more than the vocabulary; the MLP is half as wide as its fused first matrix.

    Files for OLMo 1B and 7B are understood: a switch that is set otherwise than there is refused.
    """
    for name, usual in PLAIN.items():
        value = config.raw(name)
        if value not in (None, usual):
            raise ConfigError(f"{config.where(name)} is {value!r}", hint=f"{usual!r} is understood")
    kind, activation = config.text("block_type") or "sequential", config.text("activation_type") or "swiglu"
    if kind != "sequential" or activation != "swiglu" or config.text("layer_norm_type") not in (None, "default", "low_precision"):
        raise ConfigError(
            f"{config.where('block_type')}: {kind} blocks with {activation} and {config.text('layer_norm_type')} norms",
            hint="sequential blocks with swiglu and norms without weights are understood",
        )
    d = open_decoder(
        config, tie_default=config.flag("weight_tying", default=Default(value=True, source=CLASS)), prefix="model.transformer."
    )
    if (kv := config.maybe("n_kv_heads", symbol="n_kv", label="KV heads")) is not None:
        d.kv_heads = kv
    elif config.flag("multi_query_attention"):
        d.kv_heads = config.item(1, "multi_query_attention", symbol="n_kv", label="KV heads")
    d.full(d.all)
    rows = config.maybe("embedding_size", symbol="V", label="rows of the embedding")
    d.vocab = rows if rows is not None and int(rows) else d.need(d.vocab)
    d.embedding(module="wte", head="/model.transformer.ff_out")
    inner = config.maybe("mlp_hidden_size", symbol="I_f", label="width of the fused first matrix")
    ratio = config.count("mlp_ratio", symbol="x", label="MLP ratio", default=Default(value=4, source=CLASS))
    fused = inner if inner is not None and int(inner) else (ratio * d.hidden).as_step("I_f", "width of the fused first matrix")
    fused_qkv(d, "blocks.{i}.att_proj")
    out_proj(d, "blocks.{i}.attn_out")
    half = (fused // 2).as_step("I", "MLP width")
    d.linear("ff_proj", Role.MLP, "blocks.{i}.ff_proj", fused, d.hidden, layers=d.all, shard=Shard.COLUMN)
    d.linear("ff_out", Role.MLP, "blocks.{i}.ff_out", d.hidden, half, layers=d.all, shard=Shard.ROW)
    return d
