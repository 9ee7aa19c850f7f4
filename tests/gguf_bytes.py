"""Writes the front of GGUF files for tests: metadata, tensor list, padding; the weights are left out."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2), "MXFP4": (39, 32, 17),
}  # fmt: skip
"""Number, elements and bytes of one block, as the GGUF specification and ggml's block structures have them."""


def text(value: str) -> bytes:
    """A string with its length."""
    body = value.encode()
    return struct.pack("<Q", len(body)) + body


def value(thing: Any) -> bytes:
    """A typed metadata value: bool, int (u32), float (f32), string, or a list of one of them."""
    if isinstance(thing, bool):
        return struct.pack("<I?", 7, thing)
    if isinstance(thing, int):
        return struct.pack("<II", 4, thing)
    if isinstance(thing, float):
        return struct.pack("<If", 6, thing)
    if isinstance(thing, str):
        return struct.pack("<I", 8) + text(thing)
    inner = [value(item) for item in thing]
    kind = inner[0][:4] if inner else struct.pack("<I", 8)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(inner)) + b"".join(item[4:] for item in inner)


Tensors = Sequence[tuple[str, tuple[int, ...], str]]
"""Name, published shape (output x input features), type."""


def sizes(tensors: Tensors) -> list[int]:
    """The bytes of each tensor."""
    found = []
    for _, shape, kind in tensors:
        _, block, size = TYPES[kind]
        elements = 1
        for n in shape:
            elements *= n
        found.append(elements // block * size)
    return found


def gguf(metadata: Mapping[str, Any], tensors: Tensors, *, version: int = 3) -> tuple[bytes, int]:
    """The front of a file up to its data, and the bytes of data that follow."""
    front = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    front += b"".join(text(k) + value(v) for k, v in metadata.items())
    at = 0
    for (name, shape, kind), size in zip(tensors, sizes(tensors), strict=True):
        front += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        front += struct.pack("<IQ", TYPES[kind][0], at)
        at += -(-size // 32) * 32
    return front + bytes(-len(front) % 32), at


def more_bits(i: int, layers: int) -> bool:
    """Layers that K-quant mixes keep finer: the first and last eighth, and every third between (llama.cpp, llama-quant.cpp)."""
    return i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2


def llama_q4_k_m(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    dim: int,
    width: int,
    vocab: int,
    arch: str = "llama",
    bias: bool = False,
    tied: bool = False,
) -> Tensors:
    """The tensors of a dense model quantised as Q4_K_M by llama.cpp's rules."""
    found: list[tuple[str, tuple[int, ...], str]] = [("token_embd.weight", (vocab, hidden), "Q6_K" if tied else "Q4_K")]
    for i in range(layers):
        fine = "Q6_K" if more_bits(i, layers) else "Q4_K"
        b = f"blk.{i}."
        found += [
            (b + "attn_norm.weight", (hidden,), "F32"),
            (b + "attn_q.weight", (heads * dim, hidden), "Q4_K"),
            (b + "attn_k.weight", (kv_heads * dim, hidden), "Q4_K"),
            (b + "attn_v.weight", (kv_heads * dim, hidden), fine),
            (b + "attn_output.weight", (hidden, heads * dim), "Q4_K"),
            (b + "ffn_norm.weight", (hidden,), "F32"),
            (b + "ffn_gate.weight", (width, hidden), "Q4_K"),
            (b + "ffn_up.weight", (width, hidden), "Q4_K"),
            (b + "ffn_down.weight", (hidden, width), fine),
        ]
        if bias:
            found += [
                (b + "attn_q.bias", (heads * dim,), "F32"),
                (b + "attn_k.bias", (kv_heads * dim,), "F32"),
                (b + "attn_v.bias", (kv_heads * dim,), "F32"),
            ]
    found.append(("output_norm.weight", (hidden,), "F32"))
    if not tied:
        found.append(("output.weight", (vocab, hidden), "Q6_K"))
    if arch == "llama":
        found.append(("rope_freqs.weight", (dim // 2,), "F32"))
    return found


def llama_metadata(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    width: int,
    context: int,
    arch: str = "llama",
    tokens: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """The metadata that llama.cpp's converter writes for a dense model."""
    found: dict[str, Any] = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": "A Model",
        f"{arch}.block_count": layers,
        f"{arch}.context_length": context,
        f"{arch}.embedding_length": hidden,
        f"{arch}.feed_forward_length": width,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv_heads,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        "general.file_type": 15,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"<token {i}>" for i in range(tokens)],
        "tokenizer.ggml.token_type": [1] * tokens,
        "tokenizer.ggml.merges": [f"a{i} b" for i in range(2 * tokens)],
    }
    return found | {(k if k.startswith(("general.", "split.")) else f"{arch}.{k}"): v for k, v in more.items()}
