"""The bytes of a checkpoint from its parts and its recipe."""

from __future__ import annotations

import re
from functools import lru_cache

from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.model import Model, Recipe, WeightPart, layers_having
from gpufit.quantity import Q, total


def part_bytes(model: Model, part: WeightPart, recipe: Recipe) -> Q:
    """Bytes of one part in all its layers and copies, one step for each format that it has."""
    return total(_one_format(model, part, chosen, layers) for chosen, layers in recipe.stored(part))


def _one_format(model: Model, part: WeightPart, chosen: TensorFormat, layers: int) -> Q:
    size = chosen.tensor_bytes(part.rows, part.columns)
    if part.copies is not None:
        size = part.copies * size
    if part.layers:
        size = layers_having(part, layers, model.num_layers) * size
    return size.as_step(_symbol(part.name), f"{part.name}, {chosen.name}")


@lru_cache(maxsize=1024)
def _symbol(name: str) -> str:
    return "W_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def checkpoint_bytes(model: Model, recipe: Recipe, *, with_draft: bool) -> Q:
    """Bytes of all tensors of a checkpoint: layers x copies x the bytes of one matrix in its format, summed over the parts.

    `with_draft` adds the draft (multi-token-prediction) layers that the files hold and engines do not load by default, with the embedding
    and head that DeepSeek's layout repeats for each. Left out, since no config tells them: file headers, rotary buffers, a tied head stored
    twice.
    """
    sizes = [part_bytes(model, p, recipe) for p in model.parts]
    if with_draft:
        sizes += [part_bytes(model, p, recipe) for p in model.draft_parts]
        tables = model.extras.get("draft_tables")
        if tables is not None:
            plain = PLAIN[model.dtype].bytes_per_element
            sizes.append((tables * plain).as_step("W_t", "embedding and head repeated for the draft"))
    return total(sizes).as_step("W", "weights as published")
