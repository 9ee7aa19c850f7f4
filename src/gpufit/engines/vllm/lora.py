"""LoRA adapters: memory that vLLM allocates at start for every adapter slot."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.vllm.stage_parts import Stage, held
from gpufit.engines.vllm.weight_shards import Spread, cut
from gpufit.model import Model, Role, Shard
from gpufit.quantity import BYTE, Q, total

_TARGETS = (Role.ATTENTION, Role.LATENT, Role.MLP, Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loras:
    """`slots` adapters held at once, of at most `rank`."""

    slots: Q
    rank: Q


def lora_bytes(model: Model, loras: Loras, spread: Spread, stage: Stage) -> Q:
    """Slots times rank times (input + output) of every linear layer, in 16 bit.

    Column layers keep their whole input, row layers their whole output; experts count one by one (vLLM 0.33.0, lora/layers).
    """
    widths = []
    for part, layers in held(model, stage, spread):
        if part.role not in _TARGETS or not part.linear or part.columns is None:
            continue
        here = cut(part, spread)
        into = here.columns if part.shard is Shard.ROW and here.columns is not None else part.columns
        out = part.rows if part.shard is Shard.ROW else here.rows
        each = into + out
        each = each if here.copies is None else here.copies * each
        widths.append(len(layers) * each if layers else each)
    size = loras.slots * loras.rank * total(widths, unit=loras.rank.unit) * Q(2, BYTE, "const")
    return size.as_step("W_lora", "LoRA slots on one GPU")
