"""The strict schema of a model file, for tests and for a file that did not build; only then is pydantic loaded."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from gpufit.sources.catalogue import Entry


def file_problems(content: dict[str, Any]) -> list[str]:
    """Everything that is wrong with one file's content, in words; empty when nothing is."""
    try:
        TypeAdapter(Entry).validate_python(content)
    except ValidationError as error:
        return [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
    return []
