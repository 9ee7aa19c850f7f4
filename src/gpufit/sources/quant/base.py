"""What a reader of one quantisation method gets and gives, and the guard on keys that nobody understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufit.errors import ConfigError
from gpufit.formats.names import Names
from gpufit.formats.recipe import Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.model import Recipe
from gpufit.quantity import BYTE, NUMBER, Q, fact
from gpufit.sources.config import Config, is_off


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One quantisation object of a checkpoint, as it stands in its file.

    `keys` reads the object itself, `plain` is the format of what is not quantised, `text` the decoder's own level of config.json.
    """

    keys: Config
    plain: TensorFormat
    text: Config

    def origin(self, name: str) -> str:
        """Where one of its values stands, for a fact."""
        return self.keys.where(name)

    def names(self, *keys: str) -> Names:
        """A list of module names under the first of these keys that is there."""
        return Names(map(str, self.keys.items(*keys) or []))

    def number(self, name: str, value: int, *, symbol: str, label: str) -> Q:
        """A plain number of the object as a fact."""
        return fact(value, NUMBER, symbol=symbol, name=label, origin=self.origin(name))

    def scalars(self, count: int, size: int, why: str) -> Q | None:
        """The bytes of so many scalars that one matrix carries, None for none."""
        if not count:
            return None
        return fact(count * size, BYTE, symbol="z_t", name="scalars of one matrix", origin=why)

    def plain_bytes(self) -> int:
        """Bytes of one element in the checkpoint's plain dtype: scales are often kept in it."""
        return 4 if self.plain.name == "fp32" else 2

    def group(self, name: str, value: int) -> Q:
        """The weights that share a scale, as a fact."""
        return self.number(name, value, symbol="g", label="weights that share a scale")

    def pair(self, name: str, value: Any) -> tuple[int, int]:
        """The two sides of a block; `ConfigError` for anything else."""
        if isinstance(value, str):
            value = value.split("x")
        if isinstance(value, list | tuple) and len(value) == 2 and all(str(v).isdigit() for v in value):
            return int(value[0]), int(value[1])
        raise self.refuse(name, value, "expected the two sides of a block")

    def refuse(self, name: str, value: Any, expected: str) -> ConfigError:
        """The error for a value that is not understood."""
        return ConfigError(
            f"{self.keys.where(name)} is {value!r}: {expected}",
            hint="the bytes of the checkpoint cannot be told from its config; a newer gpufit may know it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a method's reader says: the recipe (None: the bytes cannot be told from the config) and words for people.

    `word` is used where the recipe does not tell the format of the bulk. `cache` is the KV cache dtype that the object asks for, with
    the place that says so.
    """

    recipe: Recipe | None
    word: str
    detail: str
    cache: str | None = None
    cache_origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The rule that what these names mean keeps the plain dtype, ready to stand first in a recipe."""

    names: Names
    more: tuple[Rule, ...] = field(default_factory=tuple)

    def rules(self) -> tuple[Rule, ...]:
        """This rule and those after it."""
        first = (Rule(names=self.names, format=None),) if self.names else ()
        return first + self.more


EVERYTHING = Scope(head=True, embeddings=True, towers=True, every_matrix=True)

_HINTS = (
    "bit", "group", "scale", "zero", "dtype", "pack", "format", "layer", "module", "block", "expert", "head", "embed", "kv", "cache",
    "sym", "config", "scheme", "strategy", "algo", "quant", "exclude", "ignore", "skip", "target", "rank", "lora", "transform", "sparse",
    "sparsity", "codebook", "meta", "store", "axis", "nested", "double", "order", "act",
)  # fmt: skip
"""Parts of a key's name that hint at the bytes of a tensor."""

_INERT_TEXT = """
quant_method quantization_status version producer provider quantizer damp_percent damp_auto_increment true_sequential
static_groups batch_size dataset tokenizer model_seqlen max_input_length pad_token_id use_cuda_fp16 use_exllama disable_exllama
exllama_config cache_block_outputs module_name_preceding_first_block model_name_or_path model_file_base_name backend do_fuse
fuse_max_seq_len modules_to_fuse activation_scheme fmt global_compression_ratio compute_dtype dequantize act_per_tensor
activation_scale_ub total_num_heads total_num_kv_heads mse hyb_act offload_meta quantize_activation nsamples seqlen iters
autoround_version enable_quanted_input act_bits act_sym act_data_type act_dynamic act_group_size enable_minmax_tuning
low_gpu_mem_usage scale_dtype_note minmax_lr lr gradient_accumulate_steps calibration activation activation_format
"""
_INERT = frozenset(_INERT_TEXT.split())
"""Keys that say how a checkpoint was made or is run, not what its files hold. (Activation scales are counted by the readers.)"""


def refuse_unread(keys: Config, method: str) -> None:
    """Raises `ConfigError` for keys of a quantisation object that were not read and could change the bytes."""
    left = {
        path: value
        for path, value in keys.unread().items()
        if (name := path.removeprefix(keys.path)).split(".")[-1] not in _INERT
        and not is_off(value)
        and any(h in name.lower() for h in _HINTS)
    }
    if left:
        shown = ", ".join(f"{k} = {_short(v)}" for k, v in sorted(left.items())[:4])
        raise ConfigError(
            f"not understood in {keys.origin} for quant_method {method!r}: {shown}",
            hint="these keys could change the bytes of the checkpoint; a newer gpufit may know them",
        )


def float8_cache(scheme: Any, where: str) -> tuple[str | None, str]:
    """The cache dtype that a `kv_cache_scheme` or `kv_cache_quant_algo` asks for: "fp8", "nvfp4" or None, with its origin.

    Rules as in vLLM 0.33, utils/torch_utils.py. An 8-bit integer cache and unknown words are refused.
    """
    if is_off(scheme):
        return None, ""
    if isinstance(scheme, Mapping):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        if bits == 8 and kind == "float":
            return "fp8", where
        if bits == 4 and kind == "float":
            return "nvfp4", where
        raise ConfigError(f"{where} is {kind} with {bits} bits: not a known cache format", hint="known are 8-bit and 4-bit floats")
    word = str(scheme).lower()
    if word in ("fp8", "fp8_e4m3", "fp8_e4m3fn", "float8_e4m3fn", "fp8_e5m2"):
        return "fp8", where
    if word in ("nvfp4", "fp4"):
        return "nvfp4", where
    if word in ("none", "auto", "bf16", "fp16", "bfloat16", "float16"):
        return None, ""
    raise ConfigError(f"{where} is {scheme!r}: not a known cache format", hint="known are FP8 and NVFP4")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
