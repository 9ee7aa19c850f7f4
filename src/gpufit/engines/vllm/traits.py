"""What vLLM's choice of kernels asks of a model beside its layer kinds."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.vllm.constants import Constants
from gpufit.hardware import Gpu
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.layers.sparse import SparseLatent
from gpufit.layers.state import State
from gpufit.model import Model

BAICHUAN_ROTARY = 4096
"""The hidden size of the Baichuan models with rotary positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A CUDA device as kernels see it: compute capability. None of it is known of other vendors' parts."""

    major: int
    minor: int

    @property
    def capability(self) -> tuple[int, int]:
        """Both numbers, for comparing."""
        return self.major, self.minor


UNKNOWN = Device(major=0, minor=0)
"""A device whose attention backends nobody read: another vendor's, or one that only its memory describes."""


def device_of(gpu: Gpu) -> Device | None:
    """The CUDA device that a part is, or None where no compute capability is known."""
    if gpu.compute_capability is None:
        return None
    major, _, minor = gpu.compute_capability.partition(".")
    return Device(major=int(major), minor=int(minor or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The facts of one model that attention backends are chosen by.

    `head` is the widest head. `mixed_heads` tells models whose layers differ in it. `nope_dim`, `rope_dim` and `latent_rank` belong to
    latent attention, None without it. `pooling` tells embedding and scoring models.
    """

    family: str
    head: int
    latent: bool
    sparse: bool
    sinks: bool
    prefix_lm: bool
    mixed_heads: bool
    pooling: bool
    stateful: bool
    alibi: bool
    dtype: str
    attention_heads: int | None
    nope_dim: int | None = None
    rope_dim: int | None = None
    latent_rank: int | None = None


def traits_of(model: Model, constants: Constants, *, language_model_only: bool = False) -> Traits:
    """The traits of a model, read from its layers and its weight parts."""
    kinds = [g.kind for g in model.layers]
    full = [k for k in kinds if isinstance(k, Full)]
    latent = next((k for k in kinds if isinstance(k, Latent)), None)
    heads = {int(k.head_dim) for k in full}
    head = int(latent.latent_rank) + int(latent.rope_dim) if latent else max(heads, default=0)
    flagged = constants.listed("prefix_lm_flagged", model.family) and "bidirectional_vision" in model.extras
    return Traits(
        family=model.family,
        head=head,
        latent=latent is not None,
        sparse=any(isinstance(k, SparseLatent) for k in kinds),
        sinks=any("sink" in p.name or "sink" in p.module for p in model.parts),
        prefix_lm=not language_model_only and (constants.listed("prefix_lm_families", model.family) or flagged),
        mixed_heads=len(heads) > 1,
        pooling=_pooling(model.architecture, constants),
        stateful=any(isinstance(k, State) for k in kinds),
        alibi=_alibi(model, constants),
        dtype="bf16" if model.dtype == "fp32" else model.dtype,
        attention_heads=None if model.attention_heads is None else int(model.attention_heads),
        nope_dim=_nope_dim(model),
        rope_dim=int(latent.rope_dim) if latent else None,
        latent_rank=int(latent.latent_rank) if latent else None,
    )


def _pooling(architecture: str, constants: Constants) -> bool:
    generates = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
    if architecture.endswith(generates) or constants.listed("generating_models", architecture):
        return False
    return architecture.endswith(tuple(constants.words("pooling_suffixes")))


def _alibi(model: Model, constants: Constants) -> bool:
    """Whether attention has linear biases in place of positions; of Baichuan only the smaller model has none (models/baichuan.py)."""
    if model.family == "baichuan":
        return int(model.hidden_size) != BAICHUAN_ROTARY
    return constants.listed("alibi_families", model.family)


def _nope_dim(model: Model) -> int | None:
    """The width of a key without rotation in latent attention: what the up-projection makes of it beside the value."""
    heads = model.attention_heads
    up = next((p for p in model.parts if p.module.endswith("kv_b_proj")), None)
    out = next((p for p in model.parts if p.module.endswith("self_attn.o_proj") and p.columns is not None), None)
    if heads is None or up is None or out is None or out.columns is None:
        return None
    return int(up.rows) // int(heads) - int(out.columns) // int(heads)
