"""Step 3.5: full and sliding layers with head counts of their own, head-wise output gates, and a mixture with a shared expert."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_joint, draft_layers, drafting
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, pre_norms, spread, window_of, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("step3p5", "step3p5_flash")
ARCHITECTURES = ("Step3p5ForCausalLM",)
INERT = frozenset(
    {
        "swiglu_limits",
        "swiglu_limits_shared",
        "use_rope_layers",
        "yarn_only_types",
        "partial_rotary_factors",
        "moe_router_scaling_factor",
        "moe_router_activation",
        "norm_expert_weight",
        "need_fp32_gate",
        "sink",
        "att_impl_type",
    }
)
DEFAULTS = class_defaults(
    "Step3p7TextConfig (transformers 5.24.0)",
    vocab_size=128815,
    hidden_size=4096,
    intermediate_size=11264,
    num_hidden_layers=45,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=128000,
    num_experts_per_tok=8,
    moe_intermediate_size=1280,
    n_routed_experts=288,
    share_expert_dim=1280,
)
KV_NAMES = ("num_attention_groups", "num_key_value_heads")
EXPERT_NAMES = ("moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts")
TOP_NAMES = ("moe_top_k", "num_experts_per_tok")
SHARED_NAMES = ("share_expert_dim", "share_expert_dims")


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Per-layer lists may go on over the draft layers. Sliding layers take their heads from `attention_other_setting`."""
    d = open_decoder(config, tie_default=False)
    if (kv := config.maybe(*KV_NAMES, symbol="n_kv", label="KV heads")) is not None:
        d.kv_heads = kv
        if config.has("num_attention_groups"):
            config.fell_back.pop("num_key_value_heads", None)
    own = int(d.num_layers)
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    words = padded(config, "layer_types", own, len(draft), "mtp_layer_types") or [FULL] * (own + len(draft))
    kinds = spread(config, "layer_types", words, (FULL, SLIDING))
    sparse = mixture_layers(d, own, len(draft))
    output(d)
    layers(d, tuple(d.all), kinds, sparse)
    pre_norms(d)
    if draft:
        with drafting(d):
            layers(d, draft, kinds, sparse)
            pre_norms(d, draft)
            draft_joint(d, draft)
    return d


def padded(config: Config, name: str, own: int, draft: int, rest: str) -> list[Any] | None:
    """A list with an entry for each layer and each draft layer; where the file has none for the draft, they are full attention."""
    values = config.items(name)
    if values is None:
        return None
    if len(values) not in (own, own + draft):
        raise ConfigError(
            f"{config.where(name)} has {len(values)} entries for {own} layers and {draft} draft layers",
            hint="check that the file is complete",
        )
    more = config.items(rest) or []
    return (values + more + [FULL] * draft)[: own + draft]


def mixture_layers(d: Decoder, own: int, draft: int) -> tuple[int, ...]:
    """Mixtures by `mlp_layer_types`, else by the numbers in `moe_layers_enum`, else from the fourth layer on.

    `first_k_dense_replace` stands in some files instead. Draft layers are dense unless a list names them.
    """
    config = d.config
    if not config.flag("use_moe", default=True):
        raise ConfigError(f"{config.where('use_moe')} is false: no such model is published", hint="check the config.json")
    words = config.items("mlp_layer_types")
    if words is not None and len(words) < own:
        raise ConfigError(
            f"{config.where('mlp_layer_types')} has {len(words)} entries for {own} layers", hint="check that the file is complete"
        )
    if words is not None:
        words = (words + (config.items("mtp_mlp_layer_types") or []))[: own + draft]
        return spread(config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    listed = config.raw("moe_layers_enum")
    config.ignore("moe_every_n_layer", "moe_layer_offset")  # of an older file form: the classes read the list
    if listed is not None:
        items = listed.split(",") if isinstance(listed, str) else config.items("moe_layers_enum") or []
        if not all(str(item).strip().isdecimal() for item in items if str(item).strip()):
            raise ConfigError(
                f"{config.where('moe_layers_enum')} is {listed!r}, expected layer numbers", hint="check the config.json"
            )
        numbers = {int(item) for item in items if str(item).strip()}
        return tuple(i for i in range(own + draft) if i in numbers)
    return tuple(range(config.integer("first_k_dense_replace", default=3), own))


def layers(d: Decoder, at: tuple[int, ...], kinds: dict[str, tuple[int, ...]], sparse: tuple[int, ...]) -> None:
    """Attention and feed-forward blocks of some layers."""
    config = d.config
    bias = config.flag("attention_bias")
    gated = config.flag("use_head_wise_attn_gate", default=True)
    window = window_of(config)
    local, kv, width = other_heads(d)
    for word in (FULL, SLIDING):
        chosen = tuple(i for i in at if i in kinds[word])
        if not chosen:
            continue
        own = word == FULL or window is None
        heads, kv_heads, dim = (
            (d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)) if word == FULL else (local, kv, width)
        )
        attend(
            d,
            full=chosen if own else (),
            sliding=() if own else chosen,
            window=window,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
        )
        d.attention(chosen, heads=heads, kv_heads=kv_heads, head_dim=dim, bias=bias, qk_norm="head")
        if gated:
            module = "layers.{i}.self_attn.g_proj"
            d.linear("g_proj", Role.ATTENTION, module, heads, d.hidden, layers=chosen, shard=Shard.COLUMN)
    dense = without(at, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    mixture(d, tuple(i for i in at if i in sparse))


def other_heads(d: Decoder) -> tuple[Q, Q, Q]:
    """Heads, KV heads and head dimension of the sliding layers."""
    heads, kv, width = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    own = d.config.maybe("num_sliding_attention_heads", symbol="n_qs", label="attention heads of sliding layers")
    other = d.config.sub("attention_other_setting")
    repeated_heads(d, own or heads)
    if own is not None:
        return own, kv, width
    if other is None:
        return heads, kv, width
    kind = other.text("attention_type")
    if kind not in (None, SLIDING):
        raise ConfigError(f"{other.where('attention_type')} is {kind!r}, expected {SLIDING}", hint="a newer gpufit may know it")
    other.ignore("true_head_dim")
    return (
        other.maybe("num_attention_heads", symbol="n_qs", label="attention heads of sliding layers") or heads,
        other.maybe(*KV_NAMES, symbol="n_kvs", label="KV heads of sliding layers") or kv,
        other.maybe("head_dim", symbol="d_s", label="head dimension of sliding layers") or width,
    )


def repeated_heads(d: Decoder, sliding: Q) -> None:
    """Saved files repeat the heads of the sliding layers in `per_layer_config`; anything else in it is refused."""
    each = d.config.raw("per_layer_config")
    if each is None:
        return
    known = {"num_attention_heads": int(sliding)}
    if not isinstance(each, dict) or any(settings != known for settings in each.values()):
        raise ConfigError(
            f"{d.config.where('per_layer_config')} says more than that sliding layers have {int(sliding)} heads",
            hint="a newer gpufit may know it",
        )


def mixture(d: Decoder, at: tuple[int, ...]) -> None:
    """Experts stacked in one published tensor a projection, a router at fp32 with a correction, and a shared expert."""
    if not at:
        return
    c, where = d.config, "layers.{i}.moe"
    experts = c.count(*EXPERT_NAMES, symbol="E", label="routed experts")
    used = c.count(*TOP_NAMES, symbol="E_k", label="experts per token")
    width = c.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.part("router", Role.ROUTER, f"{where}.gate", experts, d.hidden, layers=at, dtype="fp32")
    if c.flag("use_moe_router_bias", default=True):
        d.part("router score correction", Role.ROUTER, f"{where}.router_bias", experts, layers=at, dtype="fp32", buffer=True)
    d.mlp(at, width, module=where, role=Role.ROUTED_EXPERTS, label="expert ", copies=experts, active=(used, experts))
    shared = c.count(*SHARED_NAMES, symbol="I_s", label="shared expert width")
    c.ignore("n_shared_experts")
    if int(shared):
        d.shared_experts(at, shared, module="layers.{i}.share_expert")
