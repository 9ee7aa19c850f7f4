"""Bytes of one cached token in each --kv-cache-dtype, for one layer on one GPU.

Source: vLLM 0.33.0, v1/attention/backends (customize_spec of each), utils/torch_utils.py, quantization/turboquant/config.py.
"""

from __future__ import annotations

from gpufit.engines.vllm.constants import Constants
from gpufit.quantity import BYTE_PER_TOKEN, NUMBER, Q, ceil_div, fact, round_up

PLAIN = ("auto", "bfloat16", "float16")
FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2")
PER_TOKEN_HEAD = ("int8_per_token_head", "fp8_per_token_head", "int4_per_token_head")
NVFP4 = ("nvfp4", "nvfp4_4over6")
DS_MLA = ("fp8_ds_mla", "nvfp4_ds_mla")
TURBOQUANT = {"turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4), "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3)}
"""Bits of a cached key element and of a cached value element."""

KNOWN = (*PLAIN, *FP8, *PER_TOKEN_HEAD, *NVFP4, *DS_MLA, *TURBOQUANT)


def quantised(dtype: str) -> bool:
    """Whether the cache is stored narrower than the model computes."""
    return dtype not in PLAIN


def element_bytes(dtype: str) -> Q:
    """B/token of one element of a plain, fp8 or int8 cache."""
    size = 2 if dtype in PLAIN else 1
    return fact(size, BYTE_PER_TOKEN, symbol="b", name="bytes of one cached element", origin=f"cache dtype {dtype}")


def head_bytes(key: Q, value: Q | None, dtype: str, constants: Constants) -> Q:
    """B/token of one KV head: K and V together, with their scales. `value` None means as wide as the key."""
    if dtype in TURBOQUANT:
        return _turboquant(key, value or key, dtype)
    if dtype in NVFP4:
        one = fact(
            1, BYTE_PER_TOKEN, symbol="b", name="bytes of two packed elements or of one scale", origin=f"cache dtype {dtype}"
        )
        return 2 * (key // 2 + key // 16) * one
    b = element_bytes(dtype)
    elements = 2 * key if value is None else key + value
    if dtype == "int4_per_token_head":
        elements = key // 2 + (value or key) // 2  # two elements share a byte
    held = elements * b
    if dtype in PER_TOKEN_HEAD:
        held = held + 2 * constants.number("token_head_scale")
    return held


def _turboquant(key: Q, value: Q, dtype: str) -> Q:
    """Packed codes of K and V with their norms, an even number of bytes."""
    key_bits, value_bits = TURBOQUANT[dtype]
    one = fact(1, BYTE_PER_TOKEN, symbol="b", name="byte of packed codes", origin=f"cache dtype {dtype}")
    norm = fact(2, BYTE_PER_TOKEN, symbol="s_k", name="16-bit norm of a key", origin="quantization/turboquant/config.py")
    scale = fact(
        4, BYTE_PER_TOKEN, symbol="s_v", name="16-bit scale and zero of a value", origin="quantization/turboquant/config.py"
    )
    even = fact(
        2, BYTE_PER_TOKEN, symbol="a_2", name="slots are an even number of bytes", origin="quantization/turboquant/config.py"
    )
    eight = fact(8, NUMBER, symbol="bits", name="bits in a byte", origin="definition")
    keys = key * one if key_bits == 8 else ceil_div(key * key_bits, eight) * one + norm
    values = ceil_div(value * value_bits, eight) * one + scale
    return round_up(keys + values, even)


def latent_bytes(rank: Q, rope: Q, dtype: str, constants: Constants) -> Q:
    """B/token of a latent and its rotary key; never divided by tensor parallelism."""
    if dtype in DS_MLA:
        return constants.number(dtype)
    return (rank + rope) * element_bytes(dtype)
