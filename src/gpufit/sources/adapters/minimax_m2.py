"""MiniMax-M2: grouped-query attention with norms over all heads, and a mixture in every layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import attend, class_defaults, per_layer, pre_norms, spread, window_of
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("MiniMaxM2ForCausalLM",)
INERT = frozenset(
    {
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_beta",
        "shared_moe_mode",
        "mlp_intermediate_size",
    }
)
DEFAULTS = class_defaults(
    "MiniMaxM2Config (transformers 5.24.0)",
    vocab_size=200064,
    hidden_size=3072,
    intermediate_size=1536,
    num_hidden_layers=62,
    num_attention_heads=48,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=196608,
    num_experts_per_tok=8,
    num_local_experts=256,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """All layers attend fully: an `attn_type_list` with other entries than 1 is refused, and so is a shared expert."""
    d = open_decoder(config, tie_default=False)
    kinds = per_layer(config, "attn_type_list", int(d.num_layers))
    if kinds is not None:
        spread(config, "attn_type_list", kinds, (1,))
    if config.integer("shared_intermediate_size", default=0):
        raise ConfigError(
            f"{config.where('shared_intermediate_size')} is {config.raw('shared_intermediate_size')}, but no published MiniMax-M2 "
            "has a shared expert",
            hint="check the config.json",
        )
    attend(d, sliding=d.all, window=window_of(config))
    output(d)
    d.attention(d.all)
    if config.flag("use_qk_norm", default=True):
        query_key_norms(d)
    d.experts(
        d.all,
        experts=config.count("num_local_experts", "num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I", label="expert width"),
        score_correction=config.flag("use_routing_bias", default=True),
        router_dtype="fp32",
        module="layers.{i}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    pre_norms(d)
    drafts = config.integer("num_mtp_modules", default=0) if config.flag("use_mtp", default=True) else 0
    config.ignore("num_mtp_modules", "mtp_transformer_layers")
    if drafts:
        d.notes.append(
            f"the checkpoint may hold {drafts} multi-token-prediction modules; engines load none of them and they are not counted"
        )
    return d


def query_key_norms(d: Decoder) -> None:
    """Norms over all heads of the queries and of the keys, which split with the heads (vLLM 0.33.0, minimax_m2.py)."""
    word = d.config.text("qk_norm_type")
    if word not in (None, "per_layer"):
        raise ConfigError(f"{d.config.where('qk_norm_type')} is {word!r}, expected per_layer", hint="check the config.json")
    heads, kv_heads, width = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    where = "layers.{i}.self_attn"
    d.part("q_norm", Role.NORM, f"{where}.q_norm", heads * width, layers=d.all, shard=Shard.COLUMN)
    d.part("k_norm", Role.NORM, f"{where}.k_norm", kv_heads * width, layers=d.all, shard=Shard.KV_HEADS, heads=kv_heads)
