"""Recurrent states as pages of the block pool: their size, the block they ask for, and how many a sequence holds.

Source: vLLM 0.33.0, v1/kv_cache_interface.py MambaSpec, platforms/interface.py _align_hybrid_block_size, layers/mamba.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpufit.engines.vllm.backends import Ask, kernel_blocks
from gpufit.engines.vllm.constants import Backend
from gpufit.engines.vllm.situation import Placed, Setting, main_attention, token_bytes
from gpufit.engines.vllm.specs import BLOCK_PER_SEQUENCE, TOKEN_PER_BLOCK, CacheSpec, SpecKind
from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.kda import Kda
from gpufit.layers.linear import Linear
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.state import STATE_UNIT, State
from gpufit.model import LayerGroup
from gpufit.quantity import Q, ceil_div, fact, largest, unit

_SEQUENCE_PER_BLOCK = fact(1, unit(sequence=1, block=-1), symbol="each", name="state in one block", origin="vLLM MambaSpec")


def aligned_block(
    here: Setting,
    placed: Sequence[Placed],
    backends: Sequence[tuple[Backend, Ask]],
    groups: Sequence[LayerGroup],
    size: Q,
    cache: str,
) -> Q:
    """The block raised in steps of an alignment until its page of attention is no smaller than a state."""
    smallest = [min(kernel_blocks(b, ask, here.device, head=here.traits.head)[0]) for b, ask in backends]
    step = size
    if smallest[0] > int(step):
        step = fact(smallest[0], TOKEN_PER_BLOCK, symbol="A_k", name="smallest kernel block", origin=backends[0][0].name)
    if here.traits.latent:
        step = largest(step, here.constants.number("latent_hybrid_alignment"))
    export = export_alignment(here, groups) if here.caching else None
    if export is not None and math.lcm(int(step), int(export)) != int(step):
        common = math.lcm(int(step), int(export))
        origin = f"least common multiple of {int(step)} and the {int(export)} tokens between states that a prefill exports"
        step = fact(common, TOKEN_PER_BLOCK, symbol="A", name="multiple that a block must be", origin=origin)
    if not step.symbol:
        step = step.as_step("A_s", "step in which a block is raised")
    state = max((state_bytes(here, g.kind) for g in groups if isinstance(g.kind, State)), key=int)
    one = token_bytes(here, main_attention(placed).kind, cache)
    raised = step * ceil_div(state * _SEQUENCE_PER_BLOCK, step * one)
    if any(int(raised) % s for s in smallest):
        origin = "platforms/interface.py _align_hybrid_block_size"
        every = fact(math.lcm(*smallest), TOKEN_PER_BLOCK, symbol="A_b", name="kernel block of every backend", origin=origin)
        raised = every * ceil_div(raised, every)
    if int(raised) <= int(size):
        return size
    return raised.because("raised until a page of attention holds one recurrent state")


def export_alignment(here: Setting, groups: Sequence[LayerGroup]) -> Q | None:
    """Tokens between the states that a prefill can export, where every state layer can (get_mamba_prefill_checkpoint_alignment)."""
    states = [g.kind for g in groups if isinstance(g.kind, State)]
    if not states or not all(isinstance(k, GatedDelta) and _exports(here) for k in states):
        return None
    return here.constants.number("gated_delta_checkpoint")


def _exports(here: Setting) -> bool:
    """Whether Gated DeltaNet prefills with FlashInfer: compute capability 9, or 10 and 12 with keys of 128 and CUDA 13."""
    if here.constants.listed("no_checkpoint_families", here.traits.family) or not here.constants.flag("checkpoint_blocks"):
        return False
    keys = [int(g.kind.key_dim) for g in here.model.layers if isinstance(g.kind, GatedDelta)]
    return here.device.major == 9 or (here.device.major in (10, 12) and all(k == 128 for k in keys))


def state_bytes(here: Setting, kind: State) -> Q:
    """B/sequence of one state, in the dtypes that the user or the family chose, with room for draft tokens."""
    conv, recurrent = kind.conv_bytes, kind.recurrent_bytes
    follows = conv.value == recurrent.value and not isinstance(kind, Kda)
    first = _element(here.settings.mamba_cache_dtype, "--mamba-cache-dtype")
    second = _element(here.settings.mamba_ssm_cache_dtype, "--mamba-ssm-cache-dtype")
    if first is not None:
        conv = first
        if follows or isinstance(kind, Linear):
            recurrent = first
    if second is not None and not isinstance(kind, Linear):
        recurrent = second
    return replace(kind, conv_bytes=conv, recurrent_bytes=recurrent).state_bytes(here.settings.tp, here.settings.drafts or 0)


def _element(dtype: str | None, option: str) -> Q | None:
    size = {"float32": 4, "float16": 2, "bfloat16": 2, "fp32": 4, "fp16": 2, "bf16": 2}.get(dtype or "")
    if size is None:
        return None
    return fact(size, STATE_UNIT, symbol="b_s", name="bytes of one element of a state", origin=f"{option} {dtype}")


def state_page(here: Setting, groups: Sequence[LayerGroup], placed: Sequence[Placed], block: Q, cache: str) -> Q | None:
    """The page that states are padded to beside attention: a block of attention; None without attention."""
    if not here.traits.stateful or not placed:
        return None
    page = block * token_bytes(here, main_attention(placed).kind, cache)
    return page.as_step("p_s", "page of a recurrent state, padded to that of attention")


def state_spec(here: Setting, kind: State, block: Q, page: Q | None) -> CacheSpec:
    state = state_bytes(here, kind)
    own = state * _SEQUENCE_PER_BLOCK
    return CacheSpec(
        kind=SpecKind.STATE,
        title=kind.title,
        block_size=block,
        page=own if page is None else page,
        layout=(kind.kind, state.value),
        padded=page is not None,
        state_blocks=_state_blocks(here, kind),
        sharded=False,
    )


def _state_blocks(here: Setting, kind: State) -> Q:
    """Block/sequence of a state layer: one state and one for each draft token; with prefix caching one more and an exported one."""
    count, why = (2, "with prefix caching: the last state and the one that is being written") if here.caching else (1, "its state")
    held = fact(count, BLOCK_PER_SEQUENCE, symbol="n_state", name="states that a sequence holds", origin=f"vLLM MambaSpec, {why}")
    drafts = here.settings.drafts
    if drafts is not None:
        each = fact(
            1,
            BLOCK_PER_SEQUENCE,
            symbol="n_draft",
            name="state of each draft token",
            origin="vLLM MambaSpec.num_speculative_blocks",
        )
        held = held + drafts * each
    if here.caching and _has_checkpoint(here, kind):
        held = held + here.constants.number("checkpoint_blocks")
    return held.as_step("n_s", f"blocks of one sequence in a {kind.title} layer")


def _has_checkpoint(here: Setting, kind: State) -> bool:
    if isinstance(kind, Mamba2):
        return True
    if isinstance(kind, GatedDelta):
        return export_alignment(here, here.model.layers) is not None
    if isinstance(kind, Kda):
        bounded = here.constants.listed("bounded_gate_families", here.traits.family)
        return bounded and here.device.major in (9, 10, 12) and int(kind.head_dim) == 128
    return False
