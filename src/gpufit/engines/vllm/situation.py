"""One model on one GPU of one server: what all its layers have in common, and the backend that each kind got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.engines.vllm.backends import Ask
from gpufit.engines.vllm.constants import Backend, Constants
from gpufit.engines.vllm.formats import PER_TOKEN_HEAD, TURBOQUANT, head_bytes, latent_bytes
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.traits import Device, Traits
from gpufit.layers.chunked import Chunked
from gpufit.layers.cross import Cross
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.layers.sliding import Sliding
from gpufit.layers.sparse import IndexOnly, SparseFull, SparseLatent
from gpufit.model import Model
from gpufit.quantity import Q


class Unserved(Exception):
    """A layer that vLLM would not serve with these settings; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all layers of one model have in common on one GPU of one server."""

    model: Model
    traits: Traits
    device: Device
    settings: VllmSettings
    constants: Constants
    cache: str
    caching: bool

    @property
    def context_parallel(self) -> int:
        """Decode context parallel degree."""
        return 1 if self.settings.decode_context_parallel is None else int(self.settings.decode_context_parallel)

    def ask(self, kind: object, cache: str) -> Ask:
        """What one layer of a kind asks of a backend."""
        block = self.settings.block_size
        heads = self.traits.attention_heads
        common = {
            "cache": cache,
            "block": None if block is None else int(block),
            "heads": None if heads is None else heads // int(self.settings.tp),
            "traits": self.traits,
            "context_parallel": self.context_parallel,
        }
        if isinstance(kind, Latent):
            head = int(kind.latent_rank) + int(kind.rope_dim)
            return Ask(head=head, value=None, latent=True, sparse=isinstance(kind, (SparseLatent, IndexOnly)), **common)  # type: ignore[arg-type]
        assert isinstance(kind, (Full, Cross))
        value = None if isinstance(kind, Cross) or kind.value_dim is None else int(kind.value_dim)
        return Ask(
            head=int(kind.head_dim),
            value=value,
            windowed=isinstance(kind, Sliding),
            cross=isinstance(kind, Cross),
            plain=isinstance(kind, (Cross, Chunked)),
            **common,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One layer group with the backend that serves it. `cache` is its own cache dtype, `indices` its layers, drafts counted on."""

    kind: object
    indices: tuple[int, ...]
    cache: str
    backend: Backend
    ask: Ask


def token_bytes(here: Setting, kind: object, cache: str) -> Q:
    """B/token of one layer on this GPU in a cache dtype; index keys are pages of their own."""
    tp = here.settings.tp
    if isinstance(kind, Latent):
        return latent_bytes(kind.latent_rank, kind.rope_dim, cache, here.constants).as_step(
            "k_latent", "latent of one token in one layer, on every GPU alike"
        )
    assert isinstance(kind, (Full, Cross))
    value = None if isinstance(kind, Cross) else kind.value_dim
    heads = (kind if isinstance(kind, Full) else as_full(kind)).heads_on_gpu(tp)
    if isinstance(kind, SparseFull) and cache in (*TURBOQUANT, *PER_TOKEN_HEAD):
        # Its class keeps its own cache and stores one byte an element, without packing and without scales (models/minimax_m3).
        cache = "fp8"
    held = heads * head_bytes(kind.head_dim, value, cache, here.constants)
    return held.as_step(f"k_{kind.kind}", f"cache of one token in one {kind.title} layer on one GPU")


def as_full(kind: Cross) -> Full:
    return Full(kv_heads=kind.kv_heads, head_dim=kind.head_dim, attention_heads=kind.attention_heads)


def main_attention(placed: Sequence[Placed]) -> Placed:
    """The attention whose token the page of a state is measured by: the model's plain one."""
    return next((p for p in placed if isinstance(p.kind, (Full, Latent)) and not isinstance(p.kind, (Sliding, Chunked))), placed[0])
