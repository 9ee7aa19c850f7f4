"""The reverse question: the smallest hardware that holds a wanted number of sequences of one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpufit.engines.base import Capacity, WeightChoice
from gpufit.hardware import Hardware
from gpufit.placement import Placement, Refusal, legal_tensor_degrees, placed
from gpufit.quantity import NUMBER, SEQUENCE, Q, ceil_div, fact
from gpufit.sizing.question import Question
from gpufit.sizing.search import cache_format, context_of
from gpufit.sizing.weights import published_weights, weights_in

MOST_NODES = 16
MOST_GPUS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """So many GPUs of one kind, how a replica stands on them, and what they hold together."""

    hardware: Hardware
    placement: Placement
    capacity: Capacity
    replicas: Q
    total: Q

    @property
    def servers(self) -> int:
        """Servers that hold the GPUs."""
        return -(-self.hardware.count // self.hardware.gpus_per_node)

    @property
    def memory(self) -> int:
        """Bytes of all GPUs together, for ordering plans by size."""
        return int(self.hardware.gpu.memory) * self.hardware.count


def plans(question: Question, wanted: int) -> tuple[Plan, ...]:
    """For each kind of hardware in the question the fewest GPUs that hold `wanted` sequences.

    Fewest servers first, then the smallest total memory: forty small GPUs hold as much as eight large ones, in ten servers.

    Counts in the question's hardware do not matter. Pipeline stages cross whole nodes only, up to 16 of them. Weights are those of the
    published checkpoint for `auto`: more GPUs always make room for it. Hardware on which nothing is legal is left out.
    """
    weights = published_weights(question.model) if question.weights == "auto" else weights_in(question.model, question.weights)
    found = (_smallest(question, hardware, weights, wanted) for hardware in question.hardware)
    return tuple(sorted((p for p in found if p is not None), key=lambda p: (p.servers, p.memory, p.hardware.count)))


def _smallest(question: Question, hardware: Hardware, weights: WeightChoice, wanted: int) -> Plan | None:
    asked = fact(wanted, SEQUENCE, symbol="C_w", name="sequences wanted at once", origin="--concurrency")
    options = [
        p
        for placement in _placements(question, hardware)
        if (p := _plan(question, hardware, placement, weights, asked)) is not None
    ]
    return min(options, key=lambda p: (p.hardware.count, int(p.placement.pipeline_parallel), p.placement.gpus), default=None)


def _plan(question: Question, hardware: Hardware, placement: Placement, weights: WeightChoice, asked: Q) -> Plan | None:
    context = context_of(question)
    assert context is not None, "the caller checked the context"
    capacity = question.engine.capacity(
        question.model, hardware.gpu, placement, question.workload, weights, context, cache_format(question)
    )
    if isinstance(capacity, Refusal) or not capacity.fits:
        return None
    if capacity.unlimited:
        replicas = fact(1, NUMBER, symbol="R", name="replicas", origin="no cache limits the sequences of one replica")
    else:
        replicas = ceil_div(asked, capacity.per_replica).as_step("R", "replicas that hold the sequences wanted")
    count = int(replicas) * placement.gpus
    if count > MOST_GPUS:
        return None
    total = (replicas * capacity.per_replica).as_step("C_t", "full-length sequences at once in all replicas")
    return Plan(
        hardware=replace(hardware, count=count, instance=None),
        placement=placement,
        capacity=capacity,
        replicas=replicas,
        total=total,
    )


def _placements(question: Question, hardware: Hardware) -> Iterator[Placement]:
    node = hardware.gpus_per_node
    fixed = question.tensor_parallel
    degrees = legal_tensor_degrees(question.model, node) if fixed is None else (fixed,)
    origin = "placement rule" if fixed is None else "--tensor-parallel-size"
    for tp in degrees:
        yield placed(tp, question.pipeline_parallel or 1, question.data_parallel, tp_origin=origin)
    if question.pipeline_parallel is None and degrees:
        for nodes in range(2, min(MOST_NODES, int(question.model.num_layers)) + 1):
            yield placed(max(degrees), nodes, question.data_parallel, tp_origin=origin)
