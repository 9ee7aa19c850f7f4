"""Hunyuan mixtures (Hunyuan-Large, A13B): caches that layers may share, per-layer experts, and a shared MLP."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.layers.none import Shared
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults, pre_norms, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("hunyuan", "hunyuan_v1_moe")
ARCHITECTURES = ("HunYuanMoEV1ForCausalLM", "HunYuanForCausalLM")
INERT = frozenset(
    {
        "moe_layer_num_skipped",
        "moe_drop_tokens",
        "moe_random_routing_dropped_token",
        "group_limited_greedy",
        "num_media_embeds",
        "add_classification_head",
        "dense_list",
        "anyres_pooling_size",
        "position_embedding_xdrope",
    }
)
DEFAULTS = class_defaults(
    "HunYuanMoEV1Config (transformers 5.24.0)",
    vocab_size=290943,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    num_experts=1,
    moe_topk=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """With `use_cla` only every `cla_share_factor`-th layer projects and keeps keys and values; the layers after it attend over them.

    Expert counts, widths and top-k may be lists with one entry a layer. Shapes: hunyuan.py as published with the models.
    """
    if config.flag("use_mla"):
        raise ConfigError(f"{config.where('use_mla')} is true, which no published Hunyuan has", hint="a newer gpufit may know it")
    d = open_decoder(config, tie_default=False)
    if (width := config.maybe("attention_head_dim", symbol="d", label="head dimension")) is not None:
        d.head_dim = width
    step = config.integer("cla_share_factor", default=1) if config.flag("use_cla") else 1
    config.ignore("cla_share_factor")
    owners = tuple(i for i in d.all if i % max(step, 1) == 0)
    d.full(owners)
    for target in owners:
        d.layer(Shared(target=target), range(target + 1, min(target + step, int(d.num_layers))))
    output(d)
    bias = config.flag("attention_bias")
    d.attention(owners, bias=bias, out_bias=bias)
    attention_of_sharers(d, without(d.all, owners), bias)
    if config.flag("use_qk_norm", default=True):
        for name in ("query_layernorm", "key_layernorm"):
            d.norm(name, f"layers.{{i}}.self_attn.{name}", layers=d.all, size=d.need(d.head_dim))
    mixtures(d)
    pre_norms(d)
    return d


def attention_of_sharers(d: Decoder, layers: tuple[int, ...], bias: bool) -> None:
    """Layers over a shared cache project queries and outputs alone."""
    if not layers:
        return
    inner = d.need(d.attention_heads) * d.need(d.head_dim)
    d.linear("q_proj", Role.ATTENTION, "layers.{i}.self_attn.q_proj", inner, d.hidden, layers=layers, shard=Shard.COLUMN, bias=bias)
    d.linear("o_proj", Role.ATTENTION, "layers.{i}.self_attn.o_proj", d.hidden, inner, layers=layers, shard=Shard.ROW, bias=bias)


def by_layer(d: Decoder, name: str, *, default: Any = None) -> list[Any]:
    """A value for each layer, from a list or from one value for all."""
    value = d.config.raw(name)
    if value is None:
        value = default
    if not isinstance(value, list):
        value = [value] * int(d.num_layers)
    if not all(isinstance(one, int) for one in value):
        raise ConfigError(f"{d.config.where(name)} is {value!r}, expected whole numbers", hint="check the config.json")
    if len(value) < int(d.num_layers):
        raise ConfigError(
            f"{d.config.where(name)} has {len(value)} entries for {int(d.num_layers)} layers",
            hint="check that the file is complete",
        )
    return value[: int(d.num_layers)]


def mixtures(d: Decoder) -> None:
    """Experts by layer; layers with equal numbers stand together. A layer with one expert is dense."""
    config = d.config
    inner = config.count("intermediate_size", symbol="I", label="MLP width")
    experts, used = by_layer(d, "num_experts"), by_layer(d, "moe_topk")
    widths = by_layer(d, "moe_intermediate_size", default=int(inner))
    shared = by_layer(d, "num_shared_expert", default=1)
    skipped = config.integer("moe_layer_num_skipped", default=0)
    mixed = config.flag("use_mixed_mlp_moe", default=True)
    bias = config.flag("mlp_bias")
    rows = [(experts[i], used[i], widths[i], shared[i]) if experts[i] > 1 and i >= skipped else None for i in d.all]
    for row in dict.fromkeys(rows):
        at = tuple(i for i in d.all if rows[i] == row)
        if row is None:
            d.mlp(at, inner, bias=bias)
            continue
        count, top, width, along = row
        d.experts(
            at,
            experts=config.item(count, "num_experts", symbol="E", label="routed experts"),
            per_token=config.item(top, "moe_topk", symbol="E_k", label="experts per token"),
            intermediate=config.item(width, "moe_intermediate_size", symbol="I_e", label="expert width"),
            bias=bias,
            router="gate.wg",
            router_dtype="fp32",
        )
        if mixed and along:
            joint = config.item(along, "num_shared_expert", symbol="E_s", label="shared experts") * inner
            d.mlp(at, joint, bias=bias, module="layers.{i}.mlp.shared_mlp", role=Role.SHARED_EXPERTS, label="shared expert ")
