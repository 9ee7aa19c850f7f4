"""Writes a catalogue entry from a published config.json: the fields that its adapter reads, and the exact counts.

    python tools/catalogue_entry.py CONFIG.json ORG/NAME --slug SLUG --name NAME --source TEXT --checked 2026-11-01 [--alias A ...]

The file goes to data/models/ORG/SLUG.toml. Counts come from the weight parts; `--total` states the published count, and a difference
stops the tool.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gpufit.sources.config import Config, used_fields
from gpufit.sources.read import decoder_of, read_model

ROOT = Path(__file__).resolve().parent.parent
KEEP = frozenset(
    {"model_type", "architectures", "torch_dtype", "dtype", "quantization_config", "compression_config", "quantization"}
)


def toml_value(value: Any) -> str:
    """One TOML value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value if v is not None) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + inside + " }" if inside else "{}"
    return str(value)


def key(name: str) -> str:
    """A TOML key, quoted where it must be."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def table(path: str, values: dict[str, Any]) -> list[str]:
    """A TOML table with its nested tables after its own keys."""
    lines = [f"[{path}]"]
    lines += [f"{key(k)} = {toml_value(v)}" for k, v in values.items() if not isinstance(v, dict) and v is not None]
    for name, inner in values.items():
        if isinstance(inner, dict):
            lines += ["", *table(f"{path}.{key(name)}", inner)]
    return lines


def entry_text(
    data: dict[str, Any],
    *,
    id: str,
    slug: str,
    name: str,
    aliases: list[str],
    source: str,
    checked: str,
    counts_source: str,
    total: int | None = None,
    hf_quant: dict[str, Any] | None = None,
    notes: str = "",
) -> str:
    """The text of the TOML file."""
    config = Config(data)
    decoder_of(config)
    kept, nulls = used_fields(config, KEEP)
    model = read_model(data, id=id, hf_quant=hf_quant)
    counted = int(model.total_params)
    if total is not None and total != counted:
        raise SystemExit(f"{id}: the parts count {counted:,} parameters, the published count is {total:,}")
    assert model.active_params is not None
    lines = [
        f"id = {toml_value(id)}",
        f"name = {toml_value(name)}",
        f"slug = {toml_value(slug)}",
        f"aliases = {toml_value(sorted(aliases))}",
        f"published = {toml_value(model.published.format)}",
        f"source = {toml_value(source)}",
        f"checked = {checked}",
    ]
    if nulls:
        lines.append(f"null_fields = {toml_value(nulls)}")
    if notes:
        lines.append(f"notes = {toml_value(notes)}")
    lines += ["", "[parameters]", f"total = {counted}", f"active = {int(model.active_params)}"]
    if model.vision_params is not None:
        lines.append(f"vision = {int(model.vision_params)}")
    lines += [f"source = {toml_value(counts_source)}", "", *table("config", kept)]
    if hf_quant:
        lines += ["", *table("hf_quant_config", hf_quant)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("id")
    parser.add_argument("--slug", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--alias", action="append", default=[])
    parser.add_argument("--source", required=True)
    parser.add_argument("--counts-source", default="weight shapes of the published config")
    parser.add_argument("--checked", required=True)
    parser.add_argument("--total", type=int)
    parser.add_argument("--hf-quant", type=Path)
    given = parser.parse_args()
    text = entry_text(
        json.loads(given.config.read_text(encoding="utf-8")),
        id=given.id,
        slug=given.slug,
        name=given.name,
        aliases=given.alias,
        source=given.source,
        checked=given.checked,
        counts_source=given.counts_source,
        total=given.total,
        hf_quant=json.loads(given.hf_quant.read_text(encoding="utf-8")) if given.hf_quant else None,
    )
    target = ROOT / "data" / "models" / given.id.split("/", maxsplit=1)[0] / f"{given.slug}.toml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {target.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
