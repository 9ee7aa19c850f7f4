"""What was learnt from the Hub before: gpufit's own small answers, and the repositories that the Hub's client keeps.

An answer is one JSON file, written whole or not at all. A file that cannot be read, or that another version wrote, is no answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpufit.sources import hub_env

SCHEMA = 1
_FULL_SHA = re.compile(r"[0-9a-f]{40}")


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit hash, whose content never changes."""
    return bool(_FULL_SHA.fullmatch(revision))


def place(id: str, revision: str) -> Path:
    """Where the answer for a repository at a revision is kept; one place per endpoint, letter case kept apart."""
    key = hashlib.sha256(f"{hub_env.endpoint()}\n{id}\n{revision}".encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", f"{id}@{revision}".replace("/", "--"))[:120]
    return hub_env.answer_cache() / f"{readable}.{key}.json"


def read(path: Path) -> dict[str, Any] | None:
    """A stored answer, or None."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else None


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Stores an answer in one move. A folder that cannot be written costs the next question its short cut, nothing else."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".gpufit-", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({**content, "schema": SCHEMA}, file, separators=(",", ":"))
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def snapshot(id: str, revision: str) -> Path | None:
    """The folder in which the Hub's client keeps this revision of a repository, when it has its config.json or a GGUF file.

    The layout is the client's documented one: models--ORG--NAME/refs/REVISION names the commit below snapshots/.
    """
    repository = hub_env.hub_cache() / f"models--{id.replace('/', '--')}"
    sha = revision
    if not is_commit(revision):
        try:
            sha = (repository / "refs" / revision).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
    folder = repository / "snapshots" / sha
    try:
        usable = (folder / "config.json").is_file() or any(folder.glob("*.gguf"))
    except OSError:
        return None
    return folder if sha and usable else None
