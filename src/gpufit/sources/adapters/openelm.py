"""OpenELM: heads and MLP width grow from layer to layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults, per_layer

INERT = frozenset({"num_gqa_groups", "qkv_multipliers", "normalization_layer_name"})
CONTEXT = "max_context_length"


def read(config: Config) -> Decoder:
    """Shapes of the published class OpenELMForCausalLM: one list entry a layer, the MLP's width rounded to `ffn_dim_divisor`."""
    width = config.count("model_dim", symbol="H", label="hidden size")
    config.fall_back(
        class_defaults(
            "OpenELMConfig: model_dim, num_transformer_layers",
            hidden_size=int(width),
            num_hidden_layers=config.integer("num_transformer_layers"),
        )
    )
    d = open_decoder(
        config, tie_default=config.flag("share_input_output_layers", default=True), prefix="transformer.", standard_heads=False
    )
    total = int(d.num_layers)
    if d.max_context is None:
        d.max_context = config.maybe(CONTEXT, symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE)
    queries, kvs = per_layer(config, "num_query_heads", total), per_layer(config, "num_kv_heads", total)
    factors = per_layer(config, "ffn_multipliers", total)
    if queries is None or kvs is None or factors is None:
        raise config.missing("num_query_heads, num_kv_heads and ffn_multipliers")
    if not config.flag("ffn_with_glu", default=True):
        raise ConfigError(f"{config.where('ffn_with_glu')} is false", hint="gated MLPs are understood in this family")
    dim = config.count("head_dim", symbol="d", label="head dimension")
    output(d, module="token_embeddings")
    norms = config.flag("normalize_qk_projections", default=True)
    for pair in sorted(set(zip(queries, kvs, strict=True))):
        at = [i for i in d.all if (queries[i], kvs[i]) == pair]
        heads = config.item(pair[0], "num_query_heads", symbol="n_q", label="attention heads")
        kv = config.item(pair[1], "num_kv_heads", symbol="n_kv", label="KV heads")
        d.full(at, heads=heads, kv_heads=kv, head_dim=dim)
        module = "layers.{i}.attn.qkv_proj"
        d.linear("q_proj", Role.ATTENTION, module, heads * dim, d.hidden, layers=at, shard=Shard.COLUMN)
        for name in ("k_proj", "v_proj"):
            d.linear(name, Role.ATTENTION, module, kv * dim, d.hidden, layers=at, shard=Shard.KV_HEADS, heads=kv)
        d.linear("o_proj", Role.ATTENTION, "layers.{i}.attn.out_proj", d.hidden, heads * dim, layers=at, shard=Shard.ROW)
    if norms:
        d.norm("query norm", "layers.{i}.attn.q_norm", layers=d.all, size=dim)
        d.norm("key norm", "layers.{i}.attn.k_norm", layers=d.all, size=dim)
    divisor = config.integer("ffn_dim_divisor", default=256)
    for factor in sorted(set(factors)):
        at = [i for i in d.all if factors[i] == factor]
        inner = config.item(_rounded(factor * int(d.hidden), divisor), f"ffn_multipliers {factor}", symbol="I", label="MLP width")
        d.linear("gate_up_proj", Role.MLP, "layers.{i}.ffn.proj_1", 2 * inner, d.hidden, layers=at, shard=Shard.COLUMN)
        d.linear("down_proj", Role.MLP, "layers.{i}.ffn.proj_2", d.hidden, inner, layers=at, shard=Shard.ROW)
    for name in ("attn_norm", "ffn_norm"):
        d.norm(name, f"layers.{{i}}.{name}", layers=d.all)
    d.norm("final norm", "norm")
    return d


def _rounded(value: float, divisor: int) -> int:
    """The nearest multiple of `divisor`, and the next one where that would lose more than a tenth (make_divisible of OpenELM)."""
    nearest = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * value else nearest
