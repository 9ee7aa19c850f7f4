"""The built-in models: one TOML each with the published config fields, exact counts, sources and the day they were checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any, ClassVar

from gpufit.errors import DataError, UnknownModelError
from gpufit.model import Model
from gpufit.quantity import NUMBER, fact
from gpufit.sources.data import data_root
from gpufit.sources.read import read_model
from gpufit.sources.toml_rows import toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Exact parameter counts: `total` with every tower, `active` per token (embeddings counted), `vision` inside the total."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    total: int
    active: int
    source: str
    vision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file below data/models. `config` holds published config.json fields under their published names.

    `null_fields` are dotted paths of config fields that are published as null where that differs from absent (TOML has no null).
    `hf_quant_config` is the separate modelopt file where the repository has one. `published` is the weight format of the checkpoint.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    id: str
    name: str
    slug: str
    aliases: list[str]
    published: str
    source: str
    checked: date
    parameters: Parameters
    config: dict[str, Any]
    null_fields: list[str] = field(default_factory=list)
    hf_quant_config: dict[str, Any] | None = None
    notes: str = ""

    def published_config(self) -> dict[str, Any]:
        """The config with its nulls put back."""
        if not self.null_fields:
            return self.config
        whole = _copied(self.config)
        for path in self.null_fields:
            *levels, last = path.split(".")
            level = whole
            for name in levels:
                level = level[name]
            level[last] = None
        return whole


def _copied(value: dict[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, dict) else v for k, v in value.items()}


@cache
def _raw() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Every model file as (path below data/, content), sorted by path."""
    root = str(data_root())
    found = []
    # Names and not Paths: with a hundred files these cost as much as the parsing.
    for folder in sorted(os.listdir(f"{root}/models")):
        if not os.path.isdir(f"{root}/models/{folder}"):
            continue
        for file in sorted(os.listdir(f"{root}/models/{folder}")):
            if file.endswith(".toml"):
                found.append(_read(root, f"models/{folder}/{file}"))
    return tuple(found)


def _read(root: str, name: str) -> tuple[str, dict[str, Any]]:
    with open(f"{root}/{name}", encoding="utf-8") as file:
        try:
            return name, toml.loads(file.read())
        except toml.TOMLDecodeError as error:
            raise DataError(f"{name} is not TOML: {error}", hint="undo the last change to the file") from error


def _entry(name: str, content: dict[str, Any]) -> Entry:
    try:
        return Entry(**{**content, "parameters": Parameters(**content["parameters"])})
    except (TypeError, KeyError) as error:
        # Only a broken file pays for pydantic.
        from gpufit.sources.model_schema import file_problems

        problems = file_problems(content) or [str(error)]
        raise DataError(f"{name}: " + "; ".join(problems), hint="the keys are those of the files beside it") from error


@cache
def entries() -> tuple[Entry, ...]:
    """Every entry, sorted by slug."""
    return tuple(sorted((_entry(name, content) for name, content in _raw()), key=lambda e: e.slug))


def names_of(entry: Entry) -> tuple[str, ...]:
    """Every name by which an entry is found."""
    return (entry.id, entry.slug, *entry.aliases)


@cache
def _index() -> dict[str, int]:
    index: dict[str, int] = {}
    for position, (_, content) in enumerate(_raw()):
        for name in (content.get("id", ""), content.get("slug", ""), *content.get("aliases", ())):
            index.setdefault(str(name).lower(), position)
    return index


def find_entry(name: str) -> Entry | None:
    """The entry that an id, slug or alias stands for (any case), or None."""
    position = _index().get(name.strip().lower())
    return None if position is None else _entry(*_raw()[position])


@cache
def model_of(slug: str) -> Model:
    """The Model of an entry, by slug: its config through the same reader as any other, with its published exact counts."""
    entry = find_entry(slug)
    if entry is None:
        raise unknown_model(slug)
    stated = f"data/models: {entry.slug}.parameters"
    return read_model(
        entry.published_config(),
        id=entry.id,
        name=entry.name,
        slug=entry.slug,
        origin=f"{entry.id} config.json",
        hf_quant=entry.hf_quant_config,
        total_params=fact(entry.parameters.total, NUMBER, symbol="N", name="parameters", origin=f"{stated}.total"),
        active_params=fact(
            entry.parameters.active, NUMBER, symbol="N_act", name="active parameters per token", origin=f"{stated}.active"
        ),
    )


def find_model(name: str) -> Model | None:
    """The catalogue's Model for an id, slug or alias, or None when it has none."""
    entry = find_entry(name)
    return None if entry is None else model_of(entry.slug)


def all_models() -> tuple[Model, ...]:
    """Every model of the catalogue, sorted by slug."""
    return tuple(model_of(entry.slug) for entry in entries())


def nearest(name: str, most: int = 3) -> tuple[str, ...]:
    """The slugs nearest to a name that is not there, by any of their names."""
    import difflib

    asked = name.strip().lower()
    tail = asked.rsplit("/", 1)[-1]
    known = {n.lower(): e.slug for e in entries() for n in names_of(e)}
    close = [*difflib.get_close_matches(asked, known, n=6, cutoff=0.6), *difflib.get_close_matches(tail, known, n=6, cutoff=0.6)]
    close += [n for n in known if len(tail) > 2 and (tail in n or n in tail)]
    return tuple(dict.fromkeys(known[n] for n in close))[:most]


def unknown_model(name: str, also: Iterable[str] = ()) -> UnknownModelError:
    """The error for a model that nobody knows, with the nearest names of the catalogue."""
    near = [*also, *nearest(name)]
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return UnknownModelError(
        f"unknown model {name!r}",
        hint=f"{hint}`gpufit catalogue models` lists the built-in ones; any Hugging Face id ORG/NAME, folder or config.json works too",
    )
