"""How a model is laid over GPUs: tensor and pipeline parallel degrees, which are legal, and which layers each stage holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gpufit.model import Model
from gpufit.quantity import NUMBER, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Degrees of one replica: `tensor_parallel` x `pipeline_parallel` GPUs, times `data_parallel` ranks where an engine joins them."""

    tensor_parallel: Q
    pipeline_parallel: Q
    data_parallel: Q | None = None

    def gpus_each(self) -> Q:
        """GPUs that one replica takes."""
        inside = self.tensor_parallel * self.pipeline_parallel
        return inside if self.data_parallel is None else inside * self.data_parallel

    @property
    def gpus(self) -> int:
        """GPUs that one replica takes, as a plain number."""
        return int(self.gpus_each())


@lru_cache(maxsize=4096)
def placed(
    tp: int, pp: int = 1, dp: int | None = None, *, tp_origin: str = "placement rule", pp_origin: str = "placement rule"
) -> Placement:
    """A Placement from plain numbers, with the origin of each degree; the same one for the same numbers."""
    return Placement(
        tensor_parallel=fact(tp, NUMBER, symbol="tp", name="tensor parallel degree", origin=tp_origin),
        pipeline_parallel=fact(pp, NUMBER, symbol="pp", name="pipeline parallel degree", origin=pp_origin),
        data_parallel=None
        if dp is None
        else fact(dp, NUMBER, symbol="dp", name="data parallel degree", origin="--data-parallel-size"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a placement is not legal, and the degrees that would be (`legal`, empty when none is known)."""

    reason: str
    legal: tuple[int, ...] = ()


def tensor_reason(model: Model, tp: int) -> str | None:
    """Why this model's layers cannot be split over `tp` GPUs, or None when they can."""
    for group in model.layers:
        reason = group.kind.tp_refusal(tp)
        if reason:
            return reason
    if not model.layers and model.attention_heads is not None and int(model.attention_heads) % tp:
        return f"{int(model.attention_heads)} attention heads do not divide by {tp}"
    return None


@lru_cache(maxsize=512)
def legal_tensor_degrees(model: Model, most: int) -> tuple[int, ...]:
    """Every tensor parallel degree up to `most` whose heads divide."""
    return tuple(tp for tp in range(1, most + 1) if tensor_reason(model, tp) is None)


def stages(num_layers: int, pp: int) -> tuple[range, ...]:
    """The layers of each pipeline stage.

    floor(L / pp) each; what is left goes one each to the stages before the last, from the back, since the last also holds the output
    head (vLLM 0.33.0, distributed/utils.py get_pp_indices).
    """
    each, left = divmod(num_layers, pp)
    sizes = [each] * pp
    for back in range(left):
        sizes[(pp - 2 - back) % pp] += 1
    starts = [sum(sizes[:i]) for i in range(pp)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
