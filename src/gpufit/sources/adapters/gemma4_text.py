"""Gemma 4's text models: dense, mixture and per-layer-embedding variants, with wider heads on full layers."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.layers.none import Shared
from gpufit.model import Role, Shard
from gpufit.quantity import NUMBER, Q, fact
from gpufit.sources.adapters.gemma2 import SANDWICH
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, nth_full
from gpufit.sources.patterns import FULL, SLIDING, attend, per_layer, spread, window_of

MODEL_TYPES = ("gemma4_text", "gemma4_unified_text")
ARCHITECTURES = ("Gemma4ForCausalLM", "Gemma4UnifiedForCausalLM")
INERT = frozenset({"rope_parameters"})


def read(config: Config) -> Decoder:
    """Defaults: Gemma4TextConfig and Gemma4UnifiedTextConfig (transformers 5.24.0).

    The last `num_kv_shared_layers` layers attend over the cache of the last earlier layer of their kind and have no key and value
    projections. With `attention_k_eq_v` full layers have no value projection (their values are their keys, but both are cached) and
    `num_global_key_value_heads`.
    """
    unified = config.text("model_type") == "gemma4_unified_text"
    source = f"Gemma4{'Unified' if unified else ''}TextConfig (transformers 5.24.0)"
    more: dict[str, Any] = {} if unified else {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144}
    d = basics(
        config, source, tie=True, vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=262144 if unified else 131072,
        sliding_window=1024 if unified else 512, global_head_dim=512, **more,
    )  # fmt: skip
    total = int(d.num_layers)
    words = per_layer(config, "layer_types", total) or nth_full(d, 6)
    if words and words[-1] == SLIDING:
        words[-1] = FULL
        d.notes.append("the class makes the last layer a full one, though layer_types says sliding")
    at = spread(config, "layer_types", words, (FULL, SLIDING))
    first, own = sharing(d, at)
    same = config.flag("attention_k_eq_v")
    kv_full, wide = _full_heads(d, at[FULL], same)
    window = _window(config)
    attend(d, full=own[FULL], kv_heads=kv_full, head_dim=wide)
    attend(d, sliding=own[SLIDING], window=window)
    d.groups.sort(key=lambda group: isinstance(group.kind, Shared))

    d.embedding()
    bias = config.flag("attention_bias")
    d.attention(own[SLIDING], bias=bias, out_bias=bias, qk_norm="head")
    d.attention(own[FULL], kv_heads=kv_full, head_dim=wide, bias=bias, out_bias=bias, qk_norm="head", value_proj=not same)
    for word, dim in ((SLIDING, d.need(d.head_dim)), (FULL, wide)):
        queries_only(d, tuple(i for i in at[word] if i >= first), dim, bias)
    _feed_forward(d, first)
    for name, module in SANDWICH:
        d.norm(name, f"layers.{{i}}.{module}", layers=d.all)
    d.norm("final norm", "norm")
    per_layer_embeddings(d)
    if config.text("use_bidirectional_attention") == "vision":
        where = config.where("use_bidirectional_attention")
        d.extras["bidirectional_vision"] = fact(1, NUMBER, symbol="mm", name="image tokens attend both ways", origin=where)
    return d


def sharing(d: Decoder, at: dict[str, tuple[int, ...]]) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Adds the last `num_kv_shared_layers` layers as sharing ones; gives the first of them and, by kind, the layers before it.

    Each shares the cache of the last layer of its kind before them; a kind without one is refused, as the classes do.
    """
    config, total = d.config, int(d.num_layers)
    shared = config.integer("num_kv_shared_layers", default=0)
    first = total - shared
    own = {word: tuple(i for i in layers if i < first) for word, layers in at.items()}
    if any(layers and not own[word] for word, layers in at.items()):
        raise ConfigError(
            f"{config.where('num_kv_shared_layers')} is {shared} of {total} layers: a kind of layer would have no cache to share",
            hint="check that the config.json is complete",
        )
    for word, layers in at.items():
        if own[word]:
            d.layer(Shared(target=own[word][-1]), (i for i in layers if i >= first))
    return first, own


def _full_heads(d: Decoder, full: tuple[int, ...], same: bool) -> tuple[Q, Q]:
    """KV heads and head dimension of full layers: as `per_layer_config` has them (files saved since transformers 5.2x), else by name."""
    config = d.config
    overrides = config.raw("per_layer_config")
    names = ("num_global_key_value_heads", "global_head_dim")
    if overrides is None:
        wide = config.count(names[1], symbol="d_g", label="head dimension of full layers")
        if same and config.has(names[0]):
            return config.count(names[0], symbol="n_kvg", label="KV heads of full layers"), wide
        config.ignore(names[0])
        return d.need(d.kv_heads), wide
    config.ignore(*names)
    said = {int(k): v for k, v in overrides.items()} if isinstance(overrides, dict) else {}
    first = said.get(full[0], {}) if full else {}
    alike = sorted(said) == list(full) and all(v == first for v in said.values())
    if not alike or not isinstance(first, dict) or not set(first) <= {"head_dim", "num_key_value_heads"}:
        raise ConfigError(
            f"{config.where('per_layer_config')} is {overrides!r}: expected equal heads for the full layers and nothing else",
            hint="Gemma 4 files give all full layers one head_dim and one number of KV heads",
        )
    kv, dim = d.need(d.kv_heads), d.need(d.head_dim)
    if "num_key_value_heads" in first:
        kv = config.item(first["num_key_value_heads"], "per_layer_config", symbol="n_kvg", label="KV heads of full layers")
    if "head_dim" in first:
        dim = config.item(first["head_dim"], "per_layer_config", symbol="d_g", label="head dimension of full layers")
    return kv, dim


def _window(config: Config) -> Q | None:
    """The window; where all tokens attend in both directions the class takes half of it, and one."""
    window = window_of(config)
    if window is None or config.text("use_bidirectional_attention") != "all":
        return window
    return (
        (window // 2 + 1)
        .because("use_bidirectional_attention is all: half the window on each side")
        .as_step("w", "attention window")
    )


def queries_only(d: Decoder, layers: tuple[int, ...], head_dim: Q, bias: bool) -> None:
    """What a layer that shares another's cache has of attention: queries and the output."""
    if not layers:
        return
    rows = d.need(d.attention_heads) * head_dim
    d.linear("q_proj", Role.ATTENTION, "layers.{i}.self_attn.q_proj", rows, d.hidden, layers=layers, shard=Shard.COLUMN, bias=bias)
    d.linear("o_proj", Role.ATTENTION, "layers.{i}.self_attn.o_proj", d.hidden, rows, layers=layers, shard=Shard.ROW, bias=bias)
    d.norm("q_norm", "layers.{i}.self_attn.q_norm", layers=layers, size=head_dim)


def _feed_forward(d: Decoder, first: int) -> None:
    """A dense MLP, twice as wide in sharing layers with `use_double_wide_mlp`, and in a mixture experts beside it."""
    config = d.config
    inner = config.count("intermediate_size", symbol="I", label="MLP width")
    if config.flag("use_double_wide_mlp"):
        d.mlp(range(first), inner)
        d.mlp(range(first, int(d.num_layers)), 2 * inner, label="wide ")
    else:
        d.mlp(d.all, inner)
    if not config.flag("enable_moe_block"):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
        return
    experts = config.count("num_experts", symbol="E", label="routed experts")
    d.experts(
        d.all,
        experts=experts,
        per_token=config.count("top_k_experts", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", "expert_intermediate_size", symbol="I_e", label="expert width"),
        module="layers.{i}",
        router="router.proj",
    )
    d.part("router scale", Role.ROUTER, "layers.{i}.router.scale", d.hidden, layers=d.all)
    d.part("expert scale", Role.ROUTER, "layers.{i}.router.per_expert_scale", experts, layers=d.all)
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        d.norm(name.replace("_layernorm", " norm").replace("_", " "), f"layers.{{i}}.{name}", layers=d.all)


def per_layer_embeddings(d: Decoder) -> None:
    """Embeddings of each token for each layer, one table for all, and what joins them to the layers (Gemma 3n and 4)."""
    config = d.config
    size = config.count(
        "hidden_size_per_layer_input",
        symbol="H_p",
        label="per-layer embedding width",
        default=Default(value=0, source="no per-layer embeddings"),
    )
    if not int(size):
        config.ignore("vocab_size_per_layer_input")
        return
    vocab = config.count(
        "vocab_size_per_layer_input",
        symbol="V_p",
        label="per-layer vocabulary",
        default=Default(value=262144, source="Gemma4TextConfig"),
    )
    d.part("per-layer embedding", Role.OTHER, "embed_tokens_per_layer", vocab, d.num_layers * size, shard=Shard.VOCAB)
    d.part(
        "per-layer model projection",
        Role.OTHER,
        "per_layer_model_projection",
        d.num_layers * size,
        d.hidden,
        shard=Shard.COLUMN,
        linear=True,
    )
    d.norm("per-layer projection norm", "per_layer_projection_norm", size=size)
    d.part("per-layer input gate", Role.OTHER, "layers.{i}.per_layer_input_gate", size, d.hidden, layers=d.all, linear=True)
    d.part("per-layer projection", Role.OTHER, "layers.{i}.per_layer_projection", d.hidden, size, layers=d.all, linear=True)
    d.norm("post per-layer input norm", "layers.{i}.post_per_layer_input_norm", layers=d.all)
