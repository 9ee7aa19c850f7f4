"""Attention backends: which one a layer gets on a device, and the block sizes that it accepts.

The table of backends is data (data/engines/vllm.toml); what no table can hold is here. Source: vLLM 0.33.0, platforms/cuda.py,
platforms/interface.py, v1/attention/selector.py and the backend classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.engines.vllm.constants import Backend, Constants
from gpufit.engines.vllm.formats import TURBOQUANT, quantised
from gpufit.engines.vllm.traits import Device, Traits

FLASH_4 = (9, 10, 11)
"""Major compute capabilities with FlashAttention 4."""
HEAD_256_PAGE = 128
"""Tokens in a page of FlashAttention 4's kernel for heads of 256 on compute capability 10 and 11 (fa_utils.py)."""
FP8_HEAD_512_PAGE = 64
"""Tokens in a page of its kernel for an fp8 cache with heads of 512 on compute capability 9 (flash_attn.py)."""


ASSUMED = Backend(name="assumed", blocks=(16,), multiples=True, cache=frozenset({"auto", "float16", "bfloat16", "fp8", "fp8_e4m3"}))
"""What plain attention is taken to get on a device that is not known: the default block, as on every CUDA device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one layer asks of a backend. `block` is the size that the user chose, None for the backend's own.

    `heads` are query heads on the GPU. `windowed` and `cross` tell the kind of attention; `context_parallel` is the degree.
    """

    head: int
    value: int | None
    cache: str
    block: int | None
    heads: int | None
    traits: Traits
    latent: bool = False
    sparse: bool = False
    windowed: bool = False
    cross: bool = False
    plain: bool = False
    context_parallel: int = 1

    @property
    def sinks(self) -> bool:
        """Whether attention sinks are asked for; chunked and cross attention never pass them."""
        return self.traits.sinks and not self.plain

    @property
    def prefix_lm(self) -> bool:
        """Whether tokens of an image see each other both ways."""
        return self.traits.prefix_lm and not self.plain


def flash_version(ask: Ask, device: Device, *, head: int | None) -> int | None:
    """The FlashAttention version that a layer gets: 2, 3 or 4 (fa_utils.py get_flash_attn_version); None where there is none."""
    if device.capability < (8, 0):
        return None
    version = _forced(ask, device) or {9: 3, 10: 4}.get(device.major, 2)
    if version == 3 and device.major == 9 and head is not None:
        diff_kv = ask.sinks and ask.value is not None and ask.value != head
        if head > 256 or diff_kv:
            version = 4
    if version == 4 and _head_256(head, device):
        unfit = ask.sinks or quantised(ask.cache) or ask.prefix_lm or ask.context_parallel > 1
        if unfit or (ask.block is not None and ask.block % HEAD_256_PAGE):
            version = 2
    if version == 4 and device.major >= 10 and head is not None and head > 128 and not _blackwell_head(head, ask.value):
        version = 2
    if version == 4 and device.major not in FLASH_4:
        return None
    return version


def _forced(ask: Ask, device: Device) -> int | None:
    """A version that a model or a cache format asks for by name (models/config.py Gemma4Config, engine/arg_utils.py)."""
    if ask.cache in TURBOQUANT:
        return 2
    fp8_hopper = device.major == 9 and ask.cache.startswith("fp8")
    if ask.traits.mixed_heads and ask.traits.family.startswith("gemma4") and device.major in FLASH_4 and not fp8_hopper:
        return 4
    return None


def _head_256(head: int | None, device: Device) -> bool:
    return head == 256 and device.major in (10, 11)


def _blackwell_head(head: int, value: int | None) -> bool:
    return (head == 256 and value in (None, 256)) or (head == 192 and value == 128)


def reasons(backend: Backend, ask: Ask, device: Device) -> tuple[str, ...]:
    """Why a backend does not take this layer; empty where it does (AttentionBackend.validate_configuration)."""
    found = []
    if (backend.heads and ask.head not in backend.heads) or ask.head < backend.least_head:
        found.append(f"no heads of {ask.head}")
    if ask.traits.dtype not in (backend.dtypes or ("bf16", "fp16")):
        found.append(f"no {ask.traits.dtype}")
    if ask.cache not in backend.cache:
        found.append(f"no {ask.cache} cache")
    if not backend.takes_block(ask.block):
        found.append(f"no blocks of {ask.block}")
    if ask.prefix_lm and not backend.prefix_lm:
        found.append("no bidirectional image tokens")
    if ask.sinks and not backend.sinks:
        found.append("no attention sinks")
    if ask.latent != backend.latent:
        found.append("no latent attention" if ask.latent else "latent attention only")
    if ask.sparse != backend.sparse:
        found.append("no sparse attention" if ask.sparse else "sparse attention only")
    first, last = backend.capability
    if not first <= device.capability <= last:
        found.append(f"no compute capability {device.major}.{device.minor}")
    if ask.cross and not backend.cross:
        found.append("no cross attention")
    if ask.windowed and not backend.window:
        found.append("no sliding windows")
    if ask.context_parallel > 1 and not backend.context_parallel:
        found.append("no decode context parallelism")
    special = _SPECIAL.get(backend.name)
    if special is not None and not found:
        reason = special(ask, device)
        if reason is not None:
            found.append(reason)
    return tuple(found)


def _flash_attn(ask: Ask, device: Device) -> str | None:
    version = flash_version(ask, device, head=ask.head)
    most = 512 if device.major in FLASH_4 else 256
    if ask.head % 8 or ask.head > most:
        return f"no heads of {ask.head}"
    if ask.sinks and (device.major < 9 or flash_version(ask, device, head=None) not in (3, 4)):
        return "attention sinks need FlashAttention 3 or 4"
    if quantised(ask.cache) and not _flash_fp8(version, ask.head, device):
        return "an fp8 cache needs FlashAttention 3, or 4 with heads of 512, on compute capability 9, or 4 on 10"
    if ask.prefix_lm and quantised(ask.cache) and device.capability == (9, 0):
        return "bidirectional image tokens with an fp8 cache need Triton"
    if ask.prefix_lm and version != 4:
        return "bidirectional image tokens need FlashAttention 4"
    return None


def _flash_fp8(version: int | None, head: int, device: Device) -> bool:
    if device.major == 9:
        return version == 3 or (version == 4 and head == 512)
    return version == 4 and device.major == 10


def _triton_flash_attn(ask: Ask, device: Device) -> str | None:
    if not ask.prefix_lm:
        return "only for bidirectional image tokens"
    version = flash_version(ask, device, head=ask.head)
    if quantised(ask.cache) and not _flash_fp8(version, ask.head, device):
        return "an fp8 cache needs FlashAttention 3, or 4 with heads of 512"
    return None if version in (3, 4) else "the causal route needs FlashAttention 3 or 4"


def _triton_flashinfer(ask: Ask, device: Device) -> str | None:
    return None if ask.prefix_lm else "only for bidirectional image tokens"


def _flashinfer(ask: Ask, device: Device) -> str | None:
    if ask.sinks and device.major not in (9, 10, 12):
        return "no attention sinks"
    if ask.cache.startswith("nvfp4"):
        if device.major in (8, 9, 12):
            if ask.cache != "nvfp4":
                return f"no {ask.cache} cache"
            if ask.head == 64:
                return "misreads an nvfp4 cache with heads of 64"
            if ask.sinks:
                return "cannot read an nvfp4 cache with attention sinks"
        elif device.major != 10:
            return f"no {ask.cache} cache"
    return None


def _flashinfer_mla(ask: Ask, device: Device) -> str | None:
    nope = ask.traits.nope_dim
    return None if nope is None or nope in (64, 128, 192) else f"needs a key of 64, 128 or 192 without rotation, not {nope}"


def _flash_mla(ask: Ask, device: Device) -> str | None:
    return None if ask.sparse or device.major == 9 else "dense FlashMLA needs compute capability 9"


def _sparse_fa4(ask: Ask, device: Device) -> str | None:
    # Listed before the others only for few heads; with many, FlashMLA comes first (platforms/cuda.py).
    if ask.heads is not None and ask.heads > 16:
        return "more than 16 heads on a GPU"
    if (ask.traits.latent_rank, ask.traits.rope_dim) != (512, 64):
        return "needs a latent of 512 and a rotary key of 64"
    counts = (8, 16, 32, 64) if ask.context_parallel > 1 else (8, 16, 32, 64, 128)
    gathered = None if ask.heads is None else ask.heads * ask.context_parallel
    return None if gathered in counts else f"needs {counts} query heads, not {gathered}"


def _sparse_flashinfer(ask: Ask, device: Device) -> str | None:
    traits = ask.traits
    if traits.rope_dim == 0:
        return (
            None
            if (traits.nope_dim, traits.latent_rank) == (256, 512)
            else "needs a key of 256 and a latent of 512 without rotation"
        )
    if traits.nope_dim is not None and traits.nope_dim not in (128, 192):
        return f"needs a key of 128 or 192 without rotation, not {traits.nope_dim}"
    # With a 16-bit cache and many heads FlashMLA is tried before it.
    if not quantised(ask.cache) and ask.heads is not None and ask.heads > 16:
        return "more than 16 heads on a GPU: FlashMLA is tried first"
    return None


def _sparse_flashmla(ask: Ask, device: Device) -> str | None:
    if ask.head == 512 and (device.major != 9 or ask.cache in ("fp8", "nvfp4_ds_mla") or ask.traits.rope_dim != 0):
        return "heads of 512 only without rotary key, on compute capability 9"
    if ask.cache == "nvfp4_ds_mla" and device.major != 10:
        return "nvfp4_ds_mla needs compute capability 10"
    return None


def _sparse_sm90(ask: Ask, device: Device) -> str | None:
    if ask.traits.latent_rank != 512 or ask.traits.rope_dim not in (0, 64):
        return "needs a latent of 512 and a rotary key of 0 or 64"
    return None


_SPECIAL = {
    "FLASH_ATTN": _flash_attn,
    "TRITON_FLASH_ATTN": _triton_flash_attn,
    "TRITON_FLASHINFER": _triton_flashinfer,
    "FLASHINFER": _flashinfer,
    "FLASHINFER_MLA": _flashinfer_mla,
    "FLASHMLA": _flash_mla,
    "FLASH_ATTN_MLA_SPARSE_FA4": _sparse_fa4,
    "FLASHINFER_MLA_SPARSE": _sparse_flashinfer,
    "FLASHMLA_SPARSE": _sparse_flashmla,
    "FLASHINFER_MLA_SPARSE_SM90": _sparse_sm90,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBackend:
    """No backend takes a layer: each backend that was tried, with its reasons."""

    tried: tuple[tuple[str, tuple[str, ...]], ...]

    def text(self) -> str:
        """One line, the nearest backends first."""
        near = sorted(self.tried, key=lambda t: len(t[1]))[:3]
        return "; ".join(f"{name}: {', '.join(why)}" for name, why in near)


def choose(ask: Ask, device: Device, constants: Constants) -> Backend | NoBackend:
    """The first backend in the device's order that takes the layer."""
    tried = []
    order = constants.order(latent=ask.latent, major=device.major)
    if ask.traits.mixed_heads and constants.listed("per_layer_kernel_families", ask.traits.family) and device.major not in FLASH_4:
        # Heads of several widths want FlashAttention 4, and Triton where there is none (models/config.py Gemma4Config).
        order = (constants.backends["TRITON_ATTN"],)
    for backend in order:
        why = reasons(backend, ask, device)
        if not why:
            return backend
        tried.append((backend.name, why))
    return NoBackend(tried=tuple(tried))


def kernel_blocks(backend: Backend, ask: Ask, device: Device, *, head: int) -> tuple[tuple[int, ...], bool]:
    """The block sizes of a backend's kernel for a head size, and whether any multiple of them will do."""
    if backend.name in ("FLASH_ATTN", "TRITON_FLASH_ATTN"):
        if _fp8_page(ask, device, head):
            return (FP8_HEAD_512_PAGE,), False
        if backend.name == "FLASH_ATTN" and _head_256(head, device) and flash_version(ask, device, head=head) == 4:
            return (HEAD_256_PAGE,), False
    if backend.name == "FLASHMLA_SPARSE" and quantised(ask.cache) and device.major == 10:
        return backend.blocks, False
    return backend.blocks, backend.multiples


def _fp8_page(ask: Ask, device: Device, head: int) -> bool:
    fp8 = ask.cache in ("fp8", "fp8_e4m3")
    return device.major == 9 and fp8 and head == 512 and flash_version(ask, device, head=head) == 4


def preferred_block(backends: Sequence[tuple[Backend, Ask]], device: Device, default: int) -> int | None:
    """The smallest block that every backend of a model accepts; None where they share none.

    One backend keeps the default where it can (get_preferred_block_size); several take the least common size that all accept.
    """
    sizes = [kernel_blocks(b, ask, device, head=ask.traits.head)[0] for b, ask in backends]
    if all(any(default % size == 0 for size in each) for each in sizes):
        return default
    if len(sizes) == 1:
        return min(sizes[0])
    for candidate in sorted({math.lcm(*chosen) for chosen in itertools.product(*sizes)}):
        if all(any(candidate % size == 0 for size in each) for each in sizes):
            return candidate
    return None


def window_block(backend: Backend, ask: Ask, device: Device, *, head: int, block: int) -> int:
    """The block of a sliding-window layer: the largest kernel block within the model's block, or the smallest there is.

    Windowed layers choose their own block (layers/attention/attention.py _largest_kernel_block_within).
    """
    sizes, multiples = kernel_blocks(backend, ask, device, head=head)
    candidates = [max(size, block // size * size) for size in sizes] if multiples else list(sizes)
    fitting = [size for size in candidates if size <= block]
    return max(fitting) if fitting else min(candidates)
