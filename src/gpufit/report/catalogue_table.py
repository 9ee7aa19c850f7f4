"""`gpufit catalogue` for people: one table a section."""

from __future__ import annotations

from typing import Any

from gpufit.report.console import console, heading, print_rows, table
from gpufit.report.units import params

Row = dict[str, Any]


def print_catalogue(found: dict[str, list[Row]]) -> None:
    """Each section that has rows."""
    out = console()
    first = True
    for name, rows in found.items():
        if not rows:
            continue
        if not first:
            out.print()
        first = False
        out.print(heading(f"{_TITLES[name]} ({len(rows)})"))
        _SECTIONS[name](out, rows)


def _models(out: Any, rows: list[Row]) -> None:
    columns = (
        ("Slug", "left"), ("Parameters", "right"), ("Active", "right"), ("Published", "left"), ("Id on the Hub", "left"),
        ("Checked", "left"),
    )  # fmt: skip
    shown = []
    for r in rows:
        active = params(r["active_parameters"]) if r["active_parameters"] != r["parameters"] else "all"
        shown.append((r["slug"], params(r["parameters"]), active, r["published"], r["model"], r["checked"]))
    print_rows(out, columns, shown, drop=("Checked", "Id on the Hub", "Active", "Published"))


def _gpus(out: Any, rows: list[Row]) -> None:
    columns = (
        ("Id", "left"), ("GiB", "right"), ("Architecture", "left"), ("GB/s", "right"), ("Node", "right"), ("Seen", "right"),
        ("Checked", "left"),
    )  # fmt: skip
    shown = []
    for r in rows:
        bandwidth = "-" if r["bandwidth_gb_s"] is None else f"{r['bandwidth_gb_s']:,}"
        size = f"{r['memory_bytes'] / 2**30:.2f}"
        shown.append((r["gpu"], size, r["architecture"], bandwidth, str(r["gpus_per_node"]), str(r["sightings"]), r["checked"]))
    print_rows(out, columns, shown, drop=("Checked", "Seen", "Node", "Architecture"))
    out.print("GiB: what the vendor's tool reports. Seen: independent sightings. Sources: --json.", style="dim")


def _instances(out: Any, rows: list[Row]) -> None:
    columns = (("Instance", "left"), ("Cloud", "left"), ("GPU", "left"), ("Count", "right"), ("Checked", "left"))
    shown = [
        (r["instance"], r["cloud"], r["gpu"], str(r["count"] if r["count"] is not None else r["share"]), r["checked"]) for r in rows
    ]
    print_rows(out, columns, shown, drop=("Checked", "Cloud"))


def _formats(out: Any, rows: list[Row]) -> None:
    shown = table(("Format", "fixed"), ("Bits/parameter", "right"), "Embeddings and head", "Rule")
    for r in rows:
        shown.add_row(r["format"], f"{r['bits_per_parameter']:g}", r["embeddings_and_head"], r["source"])
    out.print(shown)
    out.print("GGUF: bits of the type that holds most weights; --weights sizes a model by llama.cpp's rules.", style="dim")


_SECTIONS = {"models": _models, "gpus": _gpus, "instances": _instances, "formats": _formats}

_TITLES = {"models": "Models", "gpus": "GPUs", "instances": "Cloud instances", "formats": "Weight formats"}
