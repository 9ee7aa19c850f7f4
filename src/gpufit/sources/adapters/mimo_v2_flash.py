"""MiMo-V2: keys wider than values, sliding layers with KV heads of their own and sinks, and mixtures after a dense first layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mla import mixture
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, per_layer, pre_norms, spread, typed_layers, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("mimo_v2_flash", "mimo_v2")
ARCHITECTURES = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
INERT = frozenset(
    {"attention_value_scale", "attention_chunk_size", "swa_rope_theta", "attention_projection_layout", "num_nextn_predict_layers"}
)
DEFAULTS = class_defaults(
    "MiMoV2FlashConfig (transformers 5.24.0)",
    vocab_size=152576,
    hidden_size=4096,
    intermediate_size=16384,
    num_hidden_layers=48,
    num_attention_heads=64,
    num_key_value_heads=4,
    head_dim=192,
    v_head_dim=128,
    max_position_embeddings=131072,
    moe_intermediate_size=2048,
    num_experts_per_tok=8,
    n_routed_experts=256,
    sliding_window=129,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Sliding layers are those of `layer_types` or with a 1 in `hybrid_layer_pattern`; mixtures those of `moe_layer_freq`."""
    d = open_decoder(config, tie_default=False)
    layers = int(d.num_layers)
    kinds = attention_kinds(config, layers)
    output(d)
    bias = config.flag("attention_bias")
    value = config.count("v_head_dim", symbol="d_v", label="value width")
    attend(d, full=kinds[FULL], value_dim=value)
    d.attention(kinds[FULL], value_dim=value, bias=bias)
    heads, kv, width, swa_value = sliding_heads(d, value)
    # The window as engines take it: sliding_window_size counts the query itself (vLLM 0.33.0, mimo_v2.py).
    window = config.maybe("sliding_window_size", "sliding_window", symbol="w", label="attention window", unit=TOKEN_PER_SEQUENCE)
    config.ignore("sliding_window")
    at = kinds[SLIDING]
    attend(d, sliding=at, window=window, heads=heads, kv_heads=kv, head_dim=width, value_dim=swa_value)
    d.attention(at, heads=heads, kv_heads=kv, head_dim=width, value_dim=swa_value, bias=bias)
    for name, chosen, default, count in (
        ("add_swa_attention_sink_bias", at, True, heads),
        ("add_full_attention_sink_bias", kinds[FULL], False, d.need(d.attention_heads)),
    ):
        if chosen and config.flag(name, default=default):
            d.part(
                "attention sinks",
                Role.ATTENTION,
                "layers.{i}.self_attn.attention_sink_bias",
                count,
                layers=chosen,
                shard=Shard.COLUMN,
            )
    sparse = mixture_layers(config, layers)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    config.ignore("intermediate_size")
    mixture(d, sparse, score_correction=True)
    pre_norms(d)
    d.notes.append(
        "the checkpoint may hold multi-token-prediction layers; the config does not number them and they are not counted"
    )
    return d


def attention_kinds(config: Config, layers: int) -> dict[str, tuple[int, ...]]:
    """Full and sliding layers; absent lists mean the first layer and every sixth are full."""
    marks = per_layer(config, "hybrid_layer_pattern", layers)
    if marks is not None:
        found = spread(config, "hybrid_layer_pattern", marks, (0, 1))
        config.ignore("layer_types", "hybrid_block_size")
        return {FULL: found[0], SLIDING: found[1]}
    if config.integer("hybrid_block_size", default=0):
        raise ConfigError(
            f"{config.where('hybrid_block_size')} is given without hybrid_layer_pattern", hint="a newer gpufit may know this form"
        )
    turn = [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers)]
    return typed_layers(config, layers, (FULL, SLIDING), otherwise=turn)


def sliding_heads(d: Decoder, value: Q) -> tuple[Q, Q, Q, Q]:
    """Heads, KV heads, key width and value width of the sliding layers; absent, the class has twice the KV heads there."""
    c = d.config
    heads = c.maybe("swa_num_attention_heads", symbol="n_qs", label="attention heads of sliding layers")
    kv = c.maybe("swa_num_key_value_heads", symbol="n_kvs", label="KV heads of sliding layers")
    width = c.maybe("swa_head_dim", symbol="d_s", label="head dimension of sliding layers")
    own = c.maybe("swa_v_head_dim", symbol="d_vs", label="value width of sliding layers")
    twice = (2 * d.need(d.kv_heads)).as_step("n_kvs", "KV heads of sliding layers")
    return heads or d.need(d.attention_heads), kv or twice, width or d.need(d.head_dim), own or value


def mixture_layers(config: Config, layers: int) -> tuple[int, ...]:
    """Mixtures by `mlp_layer_types` or `moe_layer_freq`, else all layers but the first."""
    words = per_layer(config, "mlp_layer_types", layers)
    if words is not None:
        return spread(config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    marks = per_layer(config, "moe_layer_freq", layers)
    if marks is not None:
        return spread(config, "moe_layer_freq", marks, (0, 1))[1]
    return tuple(range(1, layers))
