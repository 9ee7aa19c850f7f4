"""Caches of DeepSeek-V4: a window, compressed entries with their index keys, and the states of the compressors.

All are stored in one layout, whatever --kv-cache-dtype says, with the block as the outermost dimension, so that pages of several sizes
stand in one block. Source: vLLM 0.33.0, models/deepseek_v4 and v1/attention/backends/mla/sparse_swa.py.
"""

from __future__ import annotations

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.specs import CacheSpec, SpecKind
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.quantity import Q, round_up

LAYOUT = "fp8_ds_mla"
"""The one layout on CUDA."""


def refusal(cache: str, block: Q | None, constants: Constants) -> str | None:
    """Why these caches cannot be laid out so, or None."""
    if cache != "auto" and not cache.startswith("fp8"):
        return f"DeepSeek-V4 takes only fp8 caches, not {cache}"
    size = constants.number("compressed_block_size")
    if block is not None and int(block) % int(size):
        return f"DeepSeek-V4 needs blocks of {int(size)} tokens, not {int(block)}"
    return None


def window_spec(kind: SlidingLatent, constants: Constants) -> CacheSpec:
    """The sliding-window cache that every layer has."""
    block = constants.number("compressed_window_block")
    held = block * constants.number("compressed_state")
    return _spec(SpecKind.SLIDING_LATENT, kind.title, block, held, constants, window=kind.window)


def entry_specs(kind: Compressed, block: Q, constants: Constants) -> list[CacheSpec]:
    """Compressed entries and the states of their compressor; the same for index keys where the layer has an indexer."""
    ratio = int(kind.ratio)
    states = constants.number(f"compressor_block_{ratio}")
    entries = (block // kind.ratio).as_step(f"n_{ratio}", f"entries for {ratio} tokens in one block")
    title = f"{ratio}-to-1 compressed"
    found = [
        _spec(SpecKind.LATENT, title, block, entries * constants.number("compressed_state"), constants),
        _spec(
            SpecKind.SLIDING_LATENT,
            f"{ratio}-to-1 compressor state",
            states,
            states * kind.state_width * kind.state_bytes,
            constants,
            window=kind.state_tokens,
        ),
    ]
    if kind.index is not None and kind.index_state_width is not None:
        found += [
            _spec(SpecKind.LATENT, f"{ratio}-to-1 index key", block, entries * kind.index.bytes_per_token(), constants),
            _spec(
                SpecKind.SLIDING_LATENT,
                f"{ratio}-to-1 index compressor state",
                states,
                states * kind.index_state_width * kind.state_bytes,
                constants,
                window=kind.state_tokens,
            ),
        ]
    return found


def _spec(kind: SpecKind, title: str, block: Q, held: Q, constants: Constants, *, window: Q | None = None) -> CacheSpec:
    page = round_up(held, constants.number("compressed_alignment")).as_step("p", f"page of one {title} cache")
    return CacheSpec(kind=kind, title=title, block_size=block, page=page, layout=(title,), window=window)
