"""Formats of the KV cache: the bytes of one cached element."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gpufit.quantity import BYTE_PER_TOKEN, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """A cache dtype. `bytes_per_element` has the unit B/token: each token caches its own elements.

    `eight_bit` marks the formats that change attention numerics and want hardware support.
    """

    name: str
    bytes_per_element: Q
    eight_bit: bool = False


def _format(name: str, size: int | Fraction, *, eight_bit: bool = False) -> CacheFormat:
    b = fact(size, BYTE_PER_TOKEN, symbol="b", name="bytes of one cached element", origin=f"cache dtype {name}")
    return CacheFormat(name=name, bytes_per_element=b, eight_bit=eight_bit)


BF16 = _format("bf16", 2)
FP16 = _format("fp16", 2)
FP8 = _format("fp8", 1, eight_bit=True)
FP32 = _format("fp32", 4)

GGML = tuple(
    _format(name, Fraction(block, 32))
    for name, block in (("q8_0", 34), ("q5_1", 24), ("q5_0", 22), ("q4_1", 20), ("q4_0", 18), ("iq4_nl", 18))
)
"""llama.cpp's quantised caches (--cache-type-k, --cache-type-v): bytes of a block of 32 elements with its scale (GGML_QUANT_SIZES)."""

CACHE_FORMATS: dict[str, CacheFormat] = {f.name: f for f in (BF16, FP16, FP8, FP32, *GGML)}
"""By the short name that gpufit prints."""

ALIASES: dict[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float32": "fp32",
    "f16": "fp16",
    "f32": "fp32",
}
"""Names that serving engines use, to the short ones."""

# What one cached element takes under dtypes that only an engine has. Scales beside the elements are the engine's own to count: its plan
# has them, the architecture's figure has not.
_ENGINE = {"int8_per_token_head": "1", "fp8_per_token_head": "1", "int4_per_token_head": "0.5", "nvfp4": "0.5", "nvfp4_4over6": "0.5"}


def engine_format(name: str) -> CacheFormat:
    """The format of a cache dtype by an engine's name; a name that stands for eight bits or fewer changes attention numerics."""
    short = ALIASES.get(name, name)
    if short in CACHE_FORMATS:
        return CACHE_FORMATS[short]
    size = _ENGINE.get(name) or ("0.5" if name.startswith(("turboquant", "ultraquant", "nvfp4")) else "1")
    b = fact(size, BYTE_PER_TOKEN, symbol="b", name="bytes of one cached element, scales not counted", origin=f"cache dtype {name}")
    return CacheFormat(name=name, bytes_per_element=b, eight_bit=True)
