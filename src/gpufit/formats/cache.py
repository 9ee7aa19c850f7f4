"""Formats of the KV cache: the bytes of one cached element."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.quantity import BYTE_PER_TOKEN, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """A cache dtype. `bytes_per_element` has the unit B/token: each token caches its own elements.

    `eight_bit` marks the formats that change attention numerics and want hardware support.
    """

    name: str
    bytes_per_element: Q
    eight_bit: bool = False


def _format(name: str, size: int, *, eight_bit: bool = False) -> CacheFormat:
    b = fact(size, BYTE_PER_TOKEN, symbol="b", name="bytes of one cached element", origin=f"cache dtype {name}")
    return CacheFormat(name=name, bytes_per_element=b, eight_bit=eight_bit)


BF16 = _format("bf16", 2)
FP16 = _format("fp16", 2)
FP8 = _format("fp8", 1, eight_bit=True)
FP32 = _format("fp32", 4)

CACHE_FORMATS: dict[str, CacheFormat] = {f.name: f for f in (BF16, FP16, FP8, FP32)}
"""By the short name that gpufit prints."""

ALIASES: dict[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float32": "fp32",
}
"""Names that serving engines use, to the short ones."""
