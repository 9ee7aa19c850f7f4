"""A gated model by what the Hub tells of it openly, when that is enough: exactly the parameters of a model that is known."""

from __future__ import annotations

from dataclasses import replace

from gpufit.model import Model
from gpufit.quantity import BYTE, fact
from gpufit.sources.catalogue import entries, model_of
from gpufit.sources.hub import GatedError

_PLAIN = {"F32", "F16", "BF16"}


def twin_of(error: GatedError) -> Model | None:
    """The Model of a gated repository, with the shapes of the catalogue's model that has its class and its exact parameter count.

    None when there is no such model, when several differ in their layers, or when the checkpoint is quantised (its counts are then of
    packed words). What is taken over is said in `assumptions`; the context limit only from an entry of the same
    repository, since siblings differ in it.
    """
    answer, stated = error.answer, error.stated
    held = sum(answer.parameters.values())
    family = stated.get("model_type")
    if not held or not family or not set(answer.parameters) <= _PLAIN or stated.get("quantization_config"):
        return None
    classes = stated.get("architectures")
    alike = [
        e
        for e in entries()
        if e.parameters.total == held
        and e.config.get("model_type") == family
        and (not classes or e.config.get("architectures") == classes)
        and not e.config.get("quantization_config")
    ]
    models = [model_of(e.slug) for e in alike]
    if not models or any(_shape(m) != _shape(models[0]) for m in models[1:]):
        return None
    model = models[0]
    itself = model.id.lower() == answer.id.lower()
    if itself:
        taken = "exactly those that the catalogue has for it: the catalogue's shapes and context limit are taken"
    else:
        taken = f"exactly those of {model.id}: its layers, heads and windows are taken over. Missing: the context limit"
    said = (
        f"{answer.id} is gated and its config.json was not read. The Hub openly says {family} and {held:,} parameters, {taken}. "
        "With access, HF_TOKEN reads the config"
    )
    published = model.published
    if size := answer.tensor_bytes():
        published = replace(
            published, bytes=fact(size[0], BYTE, symbol="W_f", name="bytes of the published tensors", origin=size[1])
        )
    tail = answer.id.rsplit("/", 1)[-1]
    return replace(
        model,
        id=answer.id,
        name=tail,
        slug=tail.lower(),
        max_context=model.max_context if itself else None,
        published=published,
        assumptions=(said, *model.assumptions),
    )


def _shape(model: Model) -> list[tuple[str, tuple[int, ...], tuple[int | None, ...]]]:
    """The layers of a model as plain numbers, to compare two models."""
    found = []
    for group in model.layers:
        fields = ("kv_heads", "head_dim", "value_dim", "window", "chunk", "latent_rank", "rope_dim")
        widths = (getattr(group.kind, f, None) for f in fields)
        found.append((group.kind.kind, group.indices, tuple(None if w is None else int(w) for w in widths)))
    return found
