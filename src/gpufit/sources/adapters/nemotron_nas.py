"""Nemotron-NAS (Llama-3.x Nemotron Super, Ultra, 51B) and DeciLM: layers that a search has cut to different shapes."""

from __future__ import annotations

from collections import defaultdict

from gpufit.errors import ConfigError
from gpufit.layers.none import NoCache
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, llama_shape, output, width
from gpufit.sources.patterns import per_layer

MODEL_TYPES = ("nemotron-nas", "deci")
ARCHITECTURES = ("DeciLMForCausalLM",)
MULTIPLE = 256
"""MLP widths are raised to a multiple of this (published class DeciLMForCausalLM, as in vLLM 0.33.0, models/nemotron_nas.py)."""
PRE_NORMS_AT = tuple((name, "layers.{i}." + path) for name, path in PRE_NORMS)
OFF = ("num_sink_tokens", "sparsify", "window_length", "unshifted_sink", "use_prefill_window_in_sink_attention")


def read(config: Config) -> Decoder:
    """`block_configs` has one entry a layer: heads in a group or no attention, the width of the MLP or none."""
    d = basics(config, "DeciLMConfig", tie=False)
    if not config.has("block_configs"):
        return _by_heads(d)
    d.kv_heads = None
    blocks = per_layer(config, "block_configs", int(d.num_layers)) or []
    config.ignore("intermediate_size", "num_key_value_heads")
    output(d)
    _attention(d, [_part(config, i, b, "attention") for i, b in enumerate(blocks)])
    _mlp(d, [_part(config, i, b, "ffn") for i, b in enumerate(blocks)])
    d.norm("final norm", "norm")
    return d


def _part(config: Config, index: int, block: object, name: str) -> Config:
    """One half of a block as a config of its own, with the switches that change what it keeps refused."""
    data = block.get(name) if isinstance(block, dict) else None
    where = f"block_configs[{index}].{name}"
    if not isinstance(data, dict):
        raise ConfigError(f"{config.where(where)} is {data!r}, expected an object", hint="check the config.json")
    half = Config(data, origin=config.origin, path=f"{config.path}{where}.")
    for field in OFF:
        if half.raw(field):
            raise ConfigError(
                f"{half.where(field)} is {half.raw(field)!r}", hint="full attention or none is understood in this family"
            )
    known = {
        "no_op",
        "replace_with_linear",
        "n_heads_in_group",
        "num_key_value_heads",
        "ffn_mult",
        "intermediate_size",
        "hidden_act",
        *OFF,
    }
    odd = sorted(k for k, v in data.items() if k not in known and v)
    if odd:
        raise ConfigError(f"not understood in {config.where(where)}: {', '.join(odd)}", hint="a newer gpufit may know it")
    return half


def _attention(d: Decoder, halves: list[Config]) -> None:
    """Layers with equal KV heads together; a layer without attention keeps nothing and has no norm before it."""
    by_heads: dict[int, list[int]] = defaultdict(list)
    linear, none = [], []
    for i, half in enumerate(halves):
        if half.flag("no_op"):
            none.append(i)
        elif half.flag("replace_with_linear"):
            linear.append(i)
        else:
            by_heads[half.integer("n_heads_in_group")].append(i)
    heads = d.need(d.attention_heads)
    for size, at in sorted(by_heads.items()):
        group = d.config.item(size, "block_configs.attention.n_heads_in_group", symbol="g", label="query heads in a group")
        kv = (heads // group).as_step("n_kv", "KV heads")
        d.kv_heads = kv if len(by_heads) == 1 else None
        d.full(at, kv_heads=kv)
        d.attention(at, kv_heads=kv)
    if linear:
        matrix = "layers.{i}.self_attn.linear_attn"
        d.linear("attention as one matrix", Role.ATTENTION, matrix, d.hidden, d.hidden, layers=linear, shard=Shard.REPLICATED)
    d.layer(NoCache(), sorted(linear + none))
    if with_norm := [i for i in d.all if i not in none]:
        d.norm(*PRE_NORMS_AT[0], layers=with_norm)


def _mlp(d: Decoder, halves: list[Config]) -> None:
    """Layers with MLPs of equal width together."""
    by_width: dict[tuple[int, str], list[int]] = defaultdict(list)
    none = [i for i, half in enumerate(halves) if half.flag("no_op")]
    for i, half in enumerate(halves):
        if i not in none and not half.flag("replace_with_linear"):
            by_width[_width(d, half)].append(i)
    linear = [i for i, half in enumerate(halves) if i not in none and half.flag("replace_with_linear")]
    if linear:
        d.linear(
            "MLP as one matrix", Role.MLP, "layers.{i}.mlp.linear_mlp", d.hidden, d.hidden, layers=linear, shard=Shard.REPLICATED
        )
    for (size, origin), at in sorted(by_width.items()):
        d.mlp(at, d.config.item(size, f"block_configs.ffn.{origin}", symbol="I", label="MLP width"))
    if with_norm := [i for i in d.all if i not in none]:
        d.norm(*PRE_NORMS_AT[1], layers=with_norm)


def _width(d: Decoder, half: Config) -> tuple[int, str]:
    """The width of one MLP and where it comes from: named outright, or two thirds of `ffn_mult` times the model's width."""
    if half.has("intermediate_size"):
        return half.integer("intermediate_size"), "intermediate_size"
    factor = half.raw("ffn_mult")
    if not isinstance(factor, int | float) or factor <= 0:
        raise ConfigError(f"{half.where('ffn_mult')} is {factor!r}", hint="a positive number, or intermediate_size")
    size = int(2 * factor * int(d.hidden) / 3)
    return -(-size // MULTIPLE) * MULTIPLE, f"ffn_mult {factor}, two thirds of that many widths, raised to a multiple of {MULTIPLE}"


def _by_heads(d: Decoder) -> Decoder:
    """DeciLM 6B and 7B: Llama's shape with KV heads by layer in `num_key_value_heads_per_layer`."""
    counts = per_layer(d.config, "num_key_value_heads_per_layer", int(d.num_layers))
    if counts is None:
        d.full(d.all)
        llama_shape(d)
        return d
    output(d)
    kinds: dict[int, Q] = {
        n: d.config.item(n, "num_key_value_heads_per_layer", symbol="n_kv", label="KV heads") for n in sorted(set(counts))
    }
    for n, kv in kinds.items():
        at = [i for i, count in enumerate(counts) if count == n]
        d.full(at, kv_heads=kv)
        d.attention(at, kv_heads=kv)
    d.kv_heads = next(iter(kinds.values())) if len(kinds) == 1 else None
    d.mlp(d.all, width(d))
    for name, path in PRE_NORMS_AT:
        d.norm(name, path, layers=d.all)
    d.norm("final norm", "norm")
    return d
