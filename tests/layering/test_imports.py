"""Imports point one way: what each room of the house may know, checked on the import statements themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support import ROOT

PACKAGE = ROOT / "src" / "gpufit"

BASE = {"errors", "quantity", "derivation", "_version"}
FACTS = BASE | {"formats", "layers", "model", "hardware", "placement", "workload"}
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "quantity": {"errors"},
    "derivation": {"quantity"},
    "formats": BASE | {"formats", "model"},
    "layers": BASE | {"layers", "formats"},
    "model": BASE | {"layers", "formats"},
    "hardware": BASE,
    "placement": BASE | {"model"},
    "workload": BASE,
    "engines": FACTS | {"engines"},
    "sizing": FACTS | {"engines", "sizing"},
    "sources": FACTS | {"sources"},
    "report": FACTS | {"engines", "sizing", "report"},
    "cli": FACTS | {"engines", "sizing", "sources", "report", "cli"},
    "__init__": {"_version", "errors", "api"},
    "api": FACTS | {"engines", "sizing", "sources"},
    "__main__": {"cli"},
}
"""Which rooms a room may import. Adding an arrow is editing this table, on purpose."""

# The method page works its examples out with the catalogue's own models.
EXCEPTIONS = {("report/method.py", "sources")}

LIBRARIES = {
    "rich": {"cli", "report"},
    "typer": {"cli"},
    "pydantic": {"sources"},
    "huggingface_hub": {"sources"},
    "tomli": {"sources"},
}
"""Where a library may be imported."""


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    """Every module that a file imports, inside functions too, with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names if node.module == "gpufit"]
    return found


def offenders(package: Path) -> list[str]:
    """Each forbidden import as file:line."""
    found = []
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = inside.parts[0].removesuffix(".py")
        if room == "data":
            continue
        for line, name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            top, *rest = name.split(".")
            if top == "gpufit" and rest:
                if rest[0] not in ALLOWED[room] and rest[0] != room and (inside.as_posix(), rest[0]) not in EXCEPTIONS:
                    found.append(f"{inside.as_posix()}:{line} imports {name}")
            elif top in LIBRARIES and room not in LIBRARIES[top]:
                found.append(f"{inside.as_posix()}:{line} imports {name}")
    return found


def test_imports_point_one_way() -> None:
    """No file imports a room or a library that its own room may not know."""
    assert offenders(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("sizing/search.py", "from gpufit.sources.catalogue import find_model"),
        ("report/result.py", "import gpufit.sources.hub"),
        ("engines/arithmetic.py", "from gpufit.sizing.search import answer"),
        ("layers/full.py", "import rich"),
        ("model.py", "import pydantic"),
        ("sources/read.py", "def f():\n    from gpufit.sizing import search"),
        ("quantity.py", "from gpufit import model"),
    ],
)
def test_a_forbidden_import_is_named(tmp_path: Path, file: str, line: str) -> None:
    """A forbidden import, also one inside a function, is reported with its file and line."""
    target = tmp_path / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f'"""Doc."""\n{line}\n', encoding="utf-8")
    found = offenders(tmp_path)
    assert len(found) >= 1
    assert found[0].startswith(f"{file}:")
