"""A vLLM start-up log as facts: how the server was started, and the memory figures that it printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gpufit.errors import UsageError

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One figure of a log: what it is (`quantity`), its value in bytes or plain counts, and the `text` it stood in.

    `step` is the rounding of the print in the same unit: a figure of two decimals of a GiB is known to 0.01 GiB.
    """

    quantity: str
    value: Fraction
    step: Fraction
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a log says of its server. None where it says nothing; `figures` in the order printed, the first of each kind."""

    model: str | None = None
    version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    figures: tuple[Logged, ...] = ()


_MODEL = re.compile(r"Initializing a V?1? ?LLM engine \(v([0-9][^)\s]*)\) with config: (.*)")
_VERSION = re.compile(r"vLLM (?:API )?server version v?([0-9][0-9.a-z+]*)")
_ARGUMENTS = re.compile(r"non-default args: (\{.*\})")
_PAIR = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|[^,\s]+)")
_FIGURES: tuple[tuple[str, re.Pattern[str], bool], ...] = (
    ("model loading", re.compile(r"[Mm]odel (?:loading took|weights take) ([0-9.]+) ?GiB"), True),
    ("available KV cache memory", re.compile(r"Available KV cache memory: (-?[0-9.]+) GiB"), True),
    ("GPU blocks", re.compile(r"# GPU blocks: ([0-9,]+)"), False),
    ("GPU KV cache size, tokens", re.compile(r"GPU KV cache size: ([0-9,]+) tokens"), False),
    ("maximum concurrency", re.compile(r"Maximum concurrency for [0-9,]+ tokens per request: ([0-9.]+)x"), False),
)
_LENGTH = re.compile(r"Maximum concurrency for ([0-9,]+) tokens per request")
_BATCH = re.compile(r"max_num_batched_tokens=([0-9]+)")
_CONFIG_NAMES = {
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "kv_cache_dtype", "enforce_eager", "enable_prefix_caching",
    "decode_context_parallel_size",
}  # fmt: skip


def read_log(lines: Iterable[str]) -> Run:
    """The run that a log tells of. Raises `UsageError` when it has none of the memory lines."""
    model: str | None = None
    version: str | None = None
    options: dict[str, Any] = {}
    figures: dict[str, Logged] = {}
    for line in lines:
        if found := _MODEL.search(line):
            version = found[1]
            pairs = {name: _value(text) for name, text in _PAIR.findall(found[2])}
            model = model or str(pairs.get("model") or "") or None
            options |= {n: v for n, v in pairs.items() if n in _CONFIG_NAMES}
            if "max_seq_len" in pairs:
                options.setdefault("max_model_len", pairs["max_seq_len"])
        if (found := _VERSION.search(line)) and version is None:
            version = found[1]
        if found := _ARGUMENTS.search(line):
            given = _arguments(found[1])
            model = str(given.pop("model", None) or given.pop("model_tag", None) or model or "") or None
            options |= given
        if found := _LENGTH.search(line):
            options.setdefault("max_model_len", int(found[1].replace(",", "")))
        if (found := _BATCH.search(line)) and "Chunked prefill" in line:
            options.setdefault("max_num_batched_tokens", int(found[1]))
        for quantity, pattern, is_memory in _FIGURES:
            if quantity not in figures and (found := pattern.search(line)):
                figures[quantity] = _figure(quantity, found[1], is_memory, found[0])
    if not figures:
        raise UsageError(
            "no memory line of a vLLM start-up log was found", hint="lines such as 'GPU KV cache size: 457,440 tokens' are"
        )
    return Run(model=model, version=version, options=options, figures=tuple(figures.values()))


def _figure(quantity: str, text: str, is_memory: bool, whole: str) -> Logged:
    digits = text.rstrip(".").replace(",", "")
    scale = _GIB if is_memory else 1
    places = len(digits.partition(".")[2])
    return Logged(quantity=quantity, value=Fraction(digits) * scale, step=Fraction(scale, 10**places), text=whole)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _arguments(text: str) -> dict[str, Any]:
    """The printed dict of arguments; values that are no literals (enums) are left out."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = {name: _value(value) for name, value in re.findall(r"'(\w+)': ('[^']*'|[0-9.]+|True|False)", text)}
    return {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
