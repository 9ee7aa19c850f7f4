"""Formats of the KV cache: the bytes of one cached element."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gpufit.formats.ggml import TYPES
from gpufit.quantity import BYTE_PER_TOKEN, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """A cache dtype. `bytes_per_element` has the unit B/token: each token caches its own elements.

    `eight_bit` marks fp8, which wants hardware support. `lossy` marks every format that changes attention numerics: fp8, llama.cpp's
    block types and what only an engine has.
    """

    name: str
    bytes_per_element: Q
    eight_bit: bool = False
    lossy: bool = False

    @property
    def phrase(self) -> str:
        """The name in a sentence, as in "an fp8 cache" or "a q8_0 cache"."""
        return f"{'an' if self.name[0] in 'aefiou' or self.name.startswith('nv') else 'a'} {self.name} cache"


def _format(name: str, size: int | Fraction, *, eight_bit: bool = False, lossy: bool = False) -> CacheFormat:
    b = fact(size, BYTE_PER_TOKEN, symbol="b", name="bytes of one cached element", origin=f"cache dtype {name}")
    return CacheFormat(name=name, bytes_per_element=b, eight_bit=eight_bit, lossy=lossy)


BF16 = _format("bf16", 2)
FP16 = _format("fp16", 2)
FP8 = _format("fp8", 1, eight_bit=True, lossy=True)
FP32 = _format("fp32", 4)

GGML = tuple(
    _format(t.name.lower(), Fraction(t.size, t.block), lossy=True)
    for t in (TYPES[name] for name in ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL"))
)
"""llama.cpp's quantised caches (--cache-type-k, --cache-type-v): blocks of 32 elements with their scales."""

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

# What one cached element takes under dtypes that only an engine has. NVFP4's scales are a byte for 16 elements, whatever the head; where
# scales stand once for a head their share depends on its width, and only the engine's plan counts them.
_ENGINE = {
    "int8_per_token_head": "1", "fp8_per_token_head": "1", "int4_per_token_head": "0.5", "nvfp4": "0.5625", "nvfp4_4over6": "0.5625",
}  # fmt: skip
_SCALED = ("nvfp4", "nvfp4_4over6")


def engine_format(name: str) -> CacheFormat:
    """The format of a cache dtype by an engine's name; one that only an engine has changes attention numerics."""
    short = ALIASES.get(name, name)
    if short in CACHE_FORMATS:
        return CACHE_FORMATS[short]
    size = _ENGINE.get(name) or ("0.5" if name.startswith(("turboquant", "ultraquant", "nvfp4")) else "1")
    counted = "with its share of a scale" if name in _SCALED else "scales not counted"
    b = fact(size, BYTE_PER_TOKEN, symbol="b", name=f"bytes of one cached element, {counted}", origin=f"cache dtype {name}")
    return CacheFormat(name=name, bytes_per_element=b, eight_bit=name.startswith("fp8"), lossy=True)
