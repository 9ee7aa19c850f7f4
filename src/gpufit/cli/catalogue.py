"""`gpufit catalogue`: what is built in, with sources and check dates."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from gpufit.cli import options as o

HELP = """What is built in, with sources and the day it was checked: models, GPUs, cloud instances, formats.

\b
Examples:
  gpufit catalogue models qwen3
  gpufit catalogue gpus h100 --json
"""


class Section(str, Enum):
    """What can be listed."""

    MODELS = "models"
    GPUS = "gpus"
    INSTANCES = "instances"
    FORMATS = "formats"


def command(
    section: Annotated[Section | None, typer.Argument(help="What to list; everything when left out.")] = None,
    filter: Annotated[str | None, typer.Argument(metavar="[FILTER]", help="Only what has this text in one of its names.")] = None,
    as_json: o.Json = False,
    format: o.OutputFormat = o.Format.TABLE,
) -> None:
    """Lists sections of the catalogue."""
    from gpufit.sources.listing import listing

    chosen = o.output_format(format, as_json)
    wanted = [section.value] if section is not None else [s.value for s in Section]
    found = listing(wanted, filter)
    if filter and not any(found.values()):
        from gpufit.errors import UnknownNameError

        raise UnknownNameError(f"nothing in the catalogue has {filter!r} in its name", hint="gpufit catalogue lists everything")
    if chosen is o.Format.JSON:
        from gpufit.report.result import to_json

        sys.stdout.write(to_json({"schema": "gpufit.catalogue/1"} | found))
    elif chosen is o.Format.TABLE:
        from gpufit.report.catalogue_table import print_catalogue

        print_catalogue(found)
    else:
        from gpufit.report.rows import written

        for rows in found.values():
            flat = [
                {
                    k: ", ".join(v) if isinstance(v, list) else v if isinstance(v, int | str) or v is None else str(v)
                    for k, v in r.items()
                }
                for r in rows
            ]
            sys.stdout.write(written(flat, chosen.value))
