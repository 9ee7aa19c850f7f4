"""A published config.json under careful reading: every value is traced, and what nobody read is known.

The reader remembers which fields an adapter looked at. What is left over is then judged: fields that cannot change the memory are
ignored, fields that might are refused by name, so that a config is never half understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufit.errors import ConfigError
from gpufit.quantity import NUMBER, Q, Unit, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """The value that the published implementation takes for an absent field, and which class says so."""

    value: Any
    source: str


class Config:
    """One level of a config.json; nested levels share the log of what was read.

    Accessors take several names, since families renamed fields: the first that is present and not null counts. A required field that
    is absent raises `ConfigError` naming it. `origin` is where the text came from ("config.json", a catalogue entry).
    """

    def __init__(self, data: Mapping[str, Any], *, origin: str = "config.json", path: str = "") -> None:
        self.data = data
        self.origin = origin
        self.path = path
        self.fallbacks: dict[str, Default] = {}
        self.fell_back: dict[str, None] = {}
        self._read: set[str] = set()
        self._trail: list[str] = []
        self._subs: dict[str, Config] = {}

    def where(self, name: str) -> str:
        """The origin of one field, as printed beside its value."""
        if name not in self.data and name in self.fallbacks:
            return f"default of {self.fallbacks[name].source}: {name}"
        return f"{self.origin}: {self.path}{name}"

    def fall_back(self, defaults: Mapping[str, Default]) -> None:
        """Class defaults for fields that the file leaves out altogether.

        Nested configs are published as their differences from the class defaults, so there an absent field has a known value; a
        field that is present and null keeps its null. What an outer family said first stays.
        """
        self.fallbacks = {**defaults, **self.fallbacks}

    def has(self, *names: str) -> bool:
        """Whether one of these fields is present and not null. Counts as reading them."""
        return self.raw(*names) is not None

    def present(self, name: str) -> bool:
        """Whether the field stands in the file at all, null included. Counts as reading it."""
        self._read.add(name)
        return name in self.data

    def asked(self, name: str) -> bool:
        """Whether somebody read the field, or said that it is understood."""
        return name in self._read

    def ignore(self, *names: str) -> None:
        """Marks fields as understood and without effect on memory in this family."""
        self._read.update(names)

    def raw(self, *names: str) -> Any:
        """The plain value of the first of these fields that is present and not null, else None."""
        self._read.update(names)
        for name in names:
            value = self.data.get(name)
            if value is not None:
                self._trail[:] = [self.where(name)]
                return value
        if self.fallbacks and not any(n in self.data for n in names):
            known = next((n for n in names if n in self.fallbacks), None)
            if known is not None:
                self.fell_back[known] = None
                return self.fallbacks[known].value
        return None

    def name_of(self, *names: str) -> str | None:
        """Which of these names is present and not null, or else has a class default."""
        for name in names:
            if self.data.get(name) is not None:
                return name
        return next((n for n in names if n in self.fallbacks), None) if self.fallbacks else None

    def integer(self, *names: str, default: Default | int | None = None) -> int:
        """A whole number, for choices and positions that take no part in the arithmetic."""
        value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.missing(*names)
            value = default.value if isinstance(default, Default) else default
        return self._whole(names[0], value)

    def count(self, *names: str, symbol: str, label: str, default: Default | None = None, unit: Unit = NUMBER) -> Q:
        """A whole number as a traced fact, with `symbol` and `label` for the derivation."""
        found = self.maybe(*names, symbol=symbol, label=label, unit=unit)
        if found is not None:
            return found
        if default is None:
            raise self.missing(*names)
        return fact(
            self._whole(names[0], default.value), unit, symbol=symbol, name=label, origin=f"default of {default.source}: {names[0]}"
        )

    def maybe(self, *names: str, symbol: str, label: str, unit: Unit = NUMBER) -> Q | None:
        """A whole number as a traced fact, or None when no such field is present."""
        value = self.raw(*names)
        if value is None:
            return None
        name = self.name_of(*names) or names[0]
        return fact(self._whole(name, value), unit, symbol=symbol, name=label, origin=self.where(name))

    def item(self, value: int, name: str, *, symbol: str, label: str, unit: Unit = NUMBER) -> Q:
        """A fact read out of a list or map in this config, such as one layer's head count."""
        return fact(self._whole(name, value), unit, symbol=symbol, name=label, origin=self.where(name))

    def flag(self, *names: str, default: bool | Default = False) -> bool:
        """A yes or no."""
        value = self.raw(*names)
        if value is None:
            value = default.value if isinstance(default, Default) else default
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise ConfigError(f"{self.where(names[0])} is {value!r}, expected true or false", hint="check the config.json")
        return bool(value)

    def text(self, *names: str) -> str | None:
        """A string, or None when absent."""
        value = self.raw(*names)
        return None if value is None else str(value)

    def items(self, *names: str) -> list[Any] | None:
        """A list, or None when absent."""
        value = self.raw(*names)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(f"{self.where(names[0])} is {value!r}, expected a list", hint="check the config.json")
        return list(value)

    def sub(self, *names: str) -> Config | None:
        """A nested object as a Config of its own, or None when absent."""
        value = self.raw(*names)
        if value is None:
            return None
        name = self.name_of(*names) or names[0]
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.where(name)} is {value!r}, expected an object", hint="check the config.json")
        if name not in self._subs:
            self._subs[name] = Config(value, origin=self.origin, path=f"{self.path}{name}.")
            self._subs[name]._trail = self._trail
        return self._subs[name]

    @property
    def last(self) -> str:
        """The field that was read last, at whichever level; empty before any was."""
        return self._trail[0] if self._trail else ""

    def missing(self, *names: str) -> ConfigError:
        """The error for a required field that is not there."""
        listed = " or ".join(names)
        return ConfigError(
            f"{self.origin} has no {self.path}{listed}, and its family has no published default for it",
            hint="check that the file is the model's own config.json and complete",
        )

    def unread(self) -> dict[str, Any]:
        """Fields that nobody read, by dotted path, nested levels that were opened included."""
        left = {f"{self.path}{n}": v for n, v in self.data.items() if n not in self._read}
        for sub in self._subs.values():
            left.update(sub.unread())
        return left

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.where(name)} is {value!r}, expected a whole number", hint="check the config.json")
        if value < 0:
            raise ConfigError(
                f"{self.where(name)} is {value}, expected a number that is not negative", hint="check the config.json"
            )
        per_layer = name.endswith(("layer", "layers", "depth", "modules")) and "per_layer" not in name
        if value > (_MOST_LAYERS if per_layer else _MOST):
            raise ConfigError(f"{self.where(name)} is {value:.3g}: no model is so large", hint="check the config.json")
        return value


_MOST = 10**12
_MOST_LAYERS = 10**5
"""Bounds on what a file may ask for, far beyond any model: each layer costs the reader time and memory."""

_HINTS = (
    "layer", "window", "attn", "attention", "head", "kv", "key_value", "cache", "latent", "lora_rank", "rank", "ssm", "mamba",
    "state", "conv", "recurrent", "compress", "share", "sharing", "sparse", "index", "block", "chunk", "local", "global", "sink",
    "linear", "delta", "expert", "moe", "mtp", "nextn", "draft", "hybrid", "pattern", "memory", "depth", "stride", "group", "rnn",
)  # fmt: skip
"""Parts of a field name that hint at the shape of the cache or of the weights."""

_NUMERIC = (
    "_token_id", "_token_index", "_token_ids", "_token", "_eps", "_epsilon", "_dropout", "_dropout_prob", "_pdrop", "_loss_coef",
    "_initializer_range", "_std", "_theta", "_softcapping", "_softcap", "_act", "_activation",
)  # fmt: skip
"""Ends of the names of numbers that a layer computes with, and of tokens: none of them is the size of anything."""

_KERNELS = ("flash", "sdpa", "xformers", "liger", "attn_implementation", "fuse_cross_entropy")
"""Names of kernels: how a layer is computed, not what it keeps."""

_WORDS = frozenset(
    """
    mla cla gqa mqa swa dsa nsa csa hca gla ssd yoco loop loops looped meta retention retain span spans horizon lookback lookahead kept
    keep evict eviction topology mixer mixers exit engram ngram types hc mhc key keys value values query queries nope mod
    cross adapter adapters universal recurse unroll
    """.split()
)
"""Whole words of a field name that hint at it too; as parts of longer words they would be met by chance."""

_KIND_VALUES = frozenset(
    """
    hybrid mamba mamba2 mla gqa mqa sliding sliding_window sliding_attention local_attention linear_attention sparse_attention retnet
    rwkv gla gated_deltanet
    """.split()
)
"""Values that name a kind of layer, whatever their field is called."""

_INERT = frozenset(
    """
    _attn_implementation attn_implementation _attn_implementation_internal attention_dropout attention_probs_dropout_prob attn_pdrop
    attn_dropout hidden_dropout hidden_dropout_prob residual_dropout resid_pdrop embd_pdrop embed_dropout dropout activation_dropout
    classifier_dropout ffn_dropout attention_softmax_in_fp32 scale_attention_softmax_in_fp32 reorder_and_upcast_attn scale_attn_weights
    scale_attn_by_inverse_layer_idx use_cache cache_implementation layer_norm_eps layer_norm_epsilon layernorm_epsilon rms_norm_eps
    norm_eps norm_epsilon initializer_range layer_norm_init initializer_factor query_pre_attn_scalar attn_logit_softcapping
    final_logit_softcapping attn_temperature_tuning attn_scale floor_scale aux_loss_alpha router_aux_loss_coef router_z_loss_coef
    moe_aux_loss_coeff router_jitter_noise input_jitter_noise output_router_logits seq_aux routed_scaling_factor scoring_func
    norm_topk_prob topk_method topk_group n_group ep_size pretraining_tp keys_to_ignore_at_inference use_flash_attn attn_impl
    flash_attn use_fused_rms_norm head_dim_scale encoder_layerdrop decoder_layerdrop gradient_checkpointing layerdrop
    chunk_size_feed_forward _name_or_path transformers_version model_type architectures auto_map torch_dtype dtype output_attentions
    output_hidden_states return_dict use_return_dict problem_type is_decoder tie_encoder_decoder num_beam_groups
    forced_bos_token_id forced_eos_token_id
    num_beams decoder_start_token_id attention_logits_soft_cap output_logits_soft_cap
    softmax_scale router_dtype moe_router_dtype js_config generation_config use_mem_efficient_attn use_flash_attention
    ignore_index key_multiplier no_repeat_ngram_size encoder_no_repeat_ngram_size decoder_bias
    """.split()
)
"""Fields with a hinting name that change no byte: training, numerics, bookkeeping. A field's meaning decides, not its look."""


_TOWERS = frozenset(
    """
    visual vision_tower mm_vision_tower mm_audio_tower audio_tower speech_encoder encoder is_encoder_decoder add_cross_attention
    k_eq_v pruned_heads
    """.split()
)
"""Fields that name a part beside the decoder, or one that is missing: weights not counted. Names without a hint in them."""


_PLAIN_OBJECTS = (
    "rope", "rotary", "label", "auto_map", "task", "sentence_transformers", "generation", "processor", "prompt", "js_config",
    "pipeline",
)  # fmt: skip
"""Parts of the names of objects that say nothing of the model's shape."""

_PLAIN_LISTS = ("image", "video", "audio", "token", "word", "resolution", "label", "decoder_ids")
"""Parts of the names of lists that are not about layers, though they may by chance be as long."""

_SPLIT = re.compile(r"[^a-z]+")


def is_off(value: Any) -> bool:
    """Whether a value switches nothing on: null, false, zero, or an empty text, list or object."""
    return value is None or value is False or value in ("", [], {}, 0)


def suspicious(unread: Mapping[str, Any], inert: frozenset[str] = frozenset(), *, layers: int = 0) -> tuple[str, ...]:
    """The unread fields that could change the cache or the weights and so forbid an answer, sorted by path.

    A field is judged by its name and by its value: a list with one entry for each of `layers`, a list of lists, an object, or the name
    of a layer kind says something of the shape whatever the field is called.
    """
    found = []
    for path, value in unread.items():
        name = path.rsplit(".", 1)[-1]
        if name in _INERT or name in inert or is_off(value) or name.endswith(_NUMERIC) or any(k in name for k in _KERNELS):
            continue
        if _by_name(name.lower()) or name in _TOWERS or _by_value(name.lower(), value, layers):
            found.append(path)
    return tuple(sorted(found))


def _by_name(name: str) -> bool:
    if name.endswith(("_dim", "_bias")) and not name.startswith(("rotary", "rope")):
        return True
    return any(hint in name for hint in _HINTS) or any(word in _WORDS for word in _SPLIT.split(name))


def _by_value(name: str, value: Any, layers: int) -> bool:
    if isinstance(value, str):
        return value.lower() in _KIND_VALUES
    if isinstance(value, Mapping):
        return not any(part in name for part in _PLAIN_OBJECTS)
    if any(part in name for part in _PLAIN_LISTS):
        return False
    if not isinstance(value, Sequence):
        return False
    return (layers > 1 and len(value) == layers) or any(isinstance(v, Mapping | list) and not is_off(v) for v in value)


def used_fields(config: Config, keep: frozenset[str] = frozenset()) -> tuple[dict[str, Any], list[str]]:
    """The fields that an adapter read, as a config of their own, and the dotted paths of those that were null.

    Fields in `keep` stay at any level. Made for writing a catalogue entry: reading the result gives the same model.
    """
    kept: dict[str, Any] = {}
    nulls: list[str] = []
    for name, value in config.data.items():
        if name in config._subs:
            kept[name], inner = used_fields(config._subs[name], keep)
            nulls.extend(f"{name}.{n}" for n in inner)
        elif name in config._read or name in keep:
            if value is None:
                nulls.append(name)
            else:
                kept[name] = value
    return kept, nulls
