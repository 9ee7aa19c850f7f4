"""Which layers are of which kind: the ways in which published configs say it, read once for all families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpufit.errors import ConfigError
from gpufit.layers.sliding import Sliding
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"


def per_layer(config: Config, name: str, layers: int) -> list[Any] | None:
    """A list with one entry a layer, or None when absent; `ConfigError` when its length is not the number of layers."""
    values = config.items(name)
    if values is not None and len(values) != layers:
        raise ConfigError(
            f"{config.where(name)} has {len(values)} entries for {layers} layers",
            hint="the published classes refuse this too; check that the file is complete",
        )
    return values


def spread(config: Config, name: str, values: Sequence[Any], known: Iterable[Any]) -> dict[Any, tuple[int, ...]]:
    """Layer indices by the word that a per-layer list gives them; `ConfigError` for a word that is not one of `known`."""
    words = tuple(known)
    for i, value in enumerate(values):
        if value not in words:
            raise ConfigError(
                f"{config.where(name)}[{i}] is {value!r}, which this family's reader does not know",
                hint=f"it knows {', '.join(map(str, words))}",
            )
    return {word: tuple(i for i, value in enumerate(values) if value == word) for word in words}


def typed_layers(
    config: Config, layers: int, known: Iterable[str], *, otherwise: Sequence[str] | None = None
) -> dict[str, tuple[int, ...]]:
    """Layer indices by the kind that `layer_types` names; where it is absent `otherwise` (one word a layer) counts."""
    values = per_layer(config, "layer_types", layers)
    if values is None:
        if otherwise is None:
            raise config.missing("layer_types")
        values = list(otherwise)
    return spread(config, "layer_types", values, known)


def window_of(config: Config, name: str = "sliding_window") -> Q | None:
    """The attention window of a config, in tokens; None where it is null, zero or absent."""
    window = config.maybe(name, symbol="w", label="attention window", unit=TOKEN_PER_SEQUENCE)
    return window if window is not None and int(window) else None


def attend(
    d: Decoder,
    *,
    full: Iterable[int] = (),
    sliding: Iterable[int] = (),
    window: Q | None = None,
    heads: Q | None = None,
    kv_heads: Q | None = None,
    head_dim: Q | None = None,
    value_dim: Q | None = None,
) -> None:
    """Full and sliding-window layers with the model's own heads, or others.

    Sliding layers without a window are full ones, unless the file itself names them as sliding: then it is refused.
    """
    at_full, at_sliding = tuple(full), tuple(sliding)
    if window is None and at_sliding and SLIDING in (d.config.data.get("layer_types") or ()):
        raise ConfigError(
            f"{d.config.where('layer_types')} has sliding layers, but sliding_window is {d.config.raw('sliding_window')!r}",
            hint="check that the config.json is complete",
        )
    if window is None:
        at_full, at_sliding = tuple(sorted(at_full + at_sliding)), ()
    d.full(at_full, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim)
    if window is not None:
        kind = Sliding(
            attention_heads=heads or d.need(d.attention_heads), kv_heads=kv_heads or d.need(d.kv_heads),
            head_dim=head_dim or d.need(d.head_dim), value_dim=value_dim, window=window,
        )  # fmt: skip
        d.layer(kind, at_sliding)


def pre_norms(d: Decoder, layers: Iterable[int] | None = None) -> None:
    """The two norms before attention and before the MLP, and the final norm of the decoder, under their Llama names."""
    at = tuple(d.all if layers is None else layers)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=at)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=at)
    if layers is None:
        d.norm("final norm", "norm")


def without(layers: Iterable[int], taken: Iterable[int]) -> tuple[int, ...]:
    """The layers that are not among the taken ones, in order."""
    gone = frozenset(taken)
    return tuple(i for i in layers if i not in gone)


def stepped(config: Config, layers: int, *, experts: bool = True) -> tuple[int, ...]:
    """Mixture layers of the Qwen classes: every `decoder_sparse_step`-th, without those of `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = config.items("mlp_only_layers") or []
    if step == 0 or not experts:
        return ()
    return tuple(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def after_dense(config: Config, layers: int) -> tuple[int, ...]:
    """Mixture layers of the DeepSeek classes: from `first_k_dense_replace` on, by `moe_layer_freq` (a step, or 0 and 1)."""
    first = config.integer("first_k_dense_replace", default=0)
    freq = config.raw("moe_layer_freq")
    if isinstance(freq, Sequence) and not isinstance(freq, str):
        marks = spread(config, "moe_layer_freq", per_layer(config, "moe_layer_freq", layers) or [], (0, 1))
        return tuple(i for i in marks[1] if i >= first)
    step = config.integer("moe_layer_freq", default=1)
    return tuple(i for i in range(layers) if i >= first and step and i % step == 0)


def class_defaults(source: str, **values: Any) -> dict[str, Default]:
    """Class defaults by field name, all of one class."""
    return {name: Default(value=value, source=source) for name, value in values.items()}


def known(value: int, *, symbol: str, label: str, source: str) -> Q:
    """A number that the published implementation has and no config names; `source` says which implementation."""
    return fact(value, NUMBER, symbol=symbol, name=label, origin=source)
