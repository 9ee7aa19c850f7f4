"""Which weight parts a pipeline stage holds, and in how many layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufit.engines.vllm.class_facts import class_parts, has_output_head
from gpufit.model import TOWERS, Model, Role, WeightPart
from gpufit.quantity import NUMBER, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: the decoder layers it runs, and whether it is the first (embedding, towers) or the last (norm, head)."""

    layers: range
    first: bool = True
    last: bool = True

    @property
    def whole(self) -> bool:
        """Whether there is no other stage."""
        return self.first and self.last


def held(model: Model, stage: Stage, tp: Q) -> Iterator[tuple[WeightPart, tuple[int, ...]]]:
    """The parts on a stage with the layers in which they stand there; no layers for a part that stands once.

    Towers are loaded on the first stage. An embedding that is also the output head has a copy on a last stage of its own.
    Source: vLLM 0.33.0, the classes' own get_pp_group() conditions, as its planner's weights per stage show them.
    """
    for part in class_parts(model, tp):
        if part.layers and part.role not in TOWERS:
            here = part.layers if stage.whole else tuple(i for i in part.layers if i in stage.layers)
            if here:
                yield part, here
        elif stage.first if _at_front(part) else stage.last:
            yield part, part.layers
        elif part.role is Role.EMBEDDING and stage.last and has_output_head(model) and _is_table(part, model):
            yield part, ()


def _at_front(part: WeightPart) -> bool:
    """Parts outside the layers: embeddings and towers come before them, norms and heads after."""
    return part.role in TOWERS or part.role is Role.EMBEDDING


def _is_table(part: WeightPart, model: Model) -> bool:
    """Whether this is the token embedding itself, which the output head shares."""
    return model.vocab_size is not None and int(part.rows) == int(model.vocab_size) and part.columns is not None


def layer_count(model: Model, part: WeightPart, layers: tuple[int, ...]) -> Q:
    """How many of these layers have the part, as a fact of the model."""
    inside = len(layers)
    where = "" if inside == len(part.layers) else f" on this stage (of {len(part.layers)})"
    return fact(inside, NUMBER, symbol="L_w", name=f"layers with {part.name}{where}", origin=f"{model.slug}: its weight parts")
