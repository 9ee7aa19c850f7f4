"""The weights that one GPU holds once a server has loaded them: which checkpoint vLLM sees, what it creates, what loading adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpufit.engines.base import WeightChoice
from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.linear_weights import sixteen_bit
from gpufit.engines.vllm.loaded import load_extras
from gpufit.engines.vllm.lora import Loras, lora_bytes
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.engines.vllm.weights import draft_weights_on_rank, recognised, weights_on_rank
from gpufit.formats.asked import assumed_recipe, recipe_for
from gpufit.model import TOWERS, Model, Published, Recipe
from gpufit.quantity import BYTE, Q, ceil, fact

_SIXTEEN = fact(2, BYTE, symbol="w16", name="bytes of one 16-bit weight", origin="16-bit formats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What vLLM loads: the `model` with the quantisation that vLLM sees, the `weights` so named, and the `recipe` of its parts.

    `assumed` says that the recipe is gpufit's own, so that nothing may be refused on it.
    """

    model: Model
    weights: WeightChoice
    recipe: Recipe | None
    assumed: bool = False


def checkpoint_seen(model: Model, choice: WeightChoice) -> Checkpoint:
    """The checkpoint behind a choice of weights as vLLM sees it.

    A published one whose declaration names no quantiser is a plain one to vLLM. A format that is asked for stands in a checkpoint that
    need not exist: the published one's quantiser has no part in it.
    """
    if not choice.published:
        known = model.published
        recipe = recipe_for(choice.format, model)
        asked = Published(
            format=choice.format,
            recipe=recipe,
            kv_cache_dtype=known.kv_cache_dtype if known.signed else None,
            kv_cache_origin=known.kv_cache_origin,
        )
        return Checkpoint(model=replace(model, published=asked), weights=choice, recipe=recipe, assumed=True)
    if not recognised(model):
        return Checkpoint(model=model, weights=_plain(model), recipe=None)
    if choice.recipe is not None:
        return Checkpoint(model=model, weights=choice, recipe=choice.recipe)
    recipe = assumed_recipe(choice.format, model)
    if recipe is not None and choice.format == "fp8":
        choice = replace(choice, assumption=f"{choice.assumption}; on a GPU as one scale for each matrix")
    return Checkpoint(model=model, weights=choice, recipe=recipe, assumed=recipe is not None)


def _plain(model: Model) -> WeightChoice:
    name = sixteen_bit(model.dtype).name
    size = (model.total_params * _SIXTEEN).as_step("W", f"weights in {name}, as vLLM takes them")
    return WeightChoice(format=name, bytes=size, published=True, note=f"published in {model.published.format}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWeights:
    """The weights of one GPU: as `created` for loading, and `held` once loaded with `extras`, which are named steps (B each).

    `refitted` names modules that an assumed format does not fit, with the format taken instead.
    """

    created: Q
    held: Q
    extras: tuple[Q, ...]
    refitted: tuple[tuple[str, str], ...]


def gpu_weights(
    seen: Checkpoint, spread: Spread, stage: Stage, settings: VllmSettings, loras: Loras | None, constants: Constants
) -> GpuWeights:
    """The weights of one GPU of a stage. Raises `UsageError` where vLLM would refuse the degrees or the format."""
    model, recipe = seen.model, seen.recipe
    made = weights_on_rank(model, recipe, spread, stage, assumed=seen.assumed)
    extras = load_extras(model, recipe, spread, stage, constants)
    if settings.speculative_method == "mtp" and stage.last:
        extras.append(draft_weights_on_rank(model, recipe, spread, assumed=seen.assumed))
    if loras is not None:
        extras.append(lora_bytes(model, loras, spread, stage))
    held = made.created
    for extra in extras:
        held = held + extra
    if extras:
        held = held.as_step("W_g", "weights on one GPU, once loaded")
    return GpuWeights(created=made.created, held=held, extras=tuple(extras), refitted=made.refitted)


def loading_remarks(weights: GpuWeights, seen: Checkpoint, settings: VllmSettings) -> Iterable[str]:
    """Sentences on what the bar of weights holds beside the checkpoint's own bytes, and where an assumed format gave way."""
    share = seen.weights.bytes / settings.tp
    if int(settings.pp) == 1 and int(weights.created) * 100 > share.value * 105:
        even = f"{_gib(ceil(share))} GiB" if int(settings.tp) == 1 else f"an even share of {_gib(ceil(share))} GiB"
        why = "what it does not split or quantise counts whole, widths are padded"
        yield f"vLLM creates {_gib(weights.created)} GiB of weights on a GPU, not {even}: {why}"
    if _gib(weights.held) != _gib(weights.created):
        parts = ", ".join(f"{_gib(q)} GiB {q.name.removesuffix(' on one GPU')}" for q in weights.extras if int(q) >= _VISIBLE)
        yield f"{_gib(weights.held)} GiB of weights on a GPU are {_gib(weights.created)} GiB as created and, once loaded, {parts}"
    if seen.assumed and seen.recipe is not None and any(p.role in TOWERS for p in seen.model.parts):
        yield f"towers and projectors are taken at 16 bit, whatever {seen.weights.format} checkpoints there are"
    if weights.refitted:
        by_form: dict[str, list[str]] = {}
        for name, form in weights.refitted:
            by_form.setdefault(form, []).append(name)
        said = "; ".join(f"{', '.join(names)} in {form}" for form, names in by_form.items())
        yield f"shards that cut through a block of {seen.weights.format} scales are taken otherwise: {said}"


_VISIBLE = 2**30 // 200
"""Bytes that show in hundredths of a GiB."""


def _gib(size: Q) -> str:
    """GiB as screens print it: three digits."""
    value = int(size) / 2**30
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
