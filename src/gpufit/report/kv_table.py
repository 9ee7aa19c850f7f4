"""`gpufit kv` for people: the reference table, or one model's cache by kind of layer and by context."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gpufit.quantity import Q
from gpufit.report.console import console, heading, model_heading, print_rows, table
from gpufit.report.units import kib, memory
from gpufit.sizing.cost import CacheCost


def print_kv(costs: Sequence[CacheCost], *, whole_catalogue: bool) -> None:
    """One line a model for the catalogue, a page a model for those that were named."""
    out = console()
    if whole_catalogue:
        _reference(out, costs)
        return
    for position, cost in enumerate(costs):
        if position:
            out.print()
        _one(out, cost)


def _number(value: Q | None) -> str:
    return "-" if value is None else f"{int(value):,}"


def _reference(out: Console, costs: Sequence[CacheCost]) -> None:
    columns = (
        ("Model", "left"), ("Layers", "right"), ("KV heads", "right"), ("Head dim", "right"), ("KiB/token", "right"),
        ("8k tokens", "right"), ("Kinds", "left"),
    )  # fmt: skip
    rows = []
    for cost in costs:
        at = next((memory(whole) for n, whole, _ in cost.per_sequence if int(n) == 8192), "-")
        kinds = "+".join(dict.fromkeys(k.kind.kind for k in cost.kinds)) or "no cache"
        m = cost.model
        rows.append((m.slug, *map(_number, (m.num_layers, m.kv_heads, m.head_dim)), kib(cost.per_token), at, kinds))
    out.print(heading("KV cache of the catalogue, whole model"))
    print_rows(out, columns, rows, drop=("Kinds", "Head dim", "KV heads", "Layers"))
    out.print()
    out.print(
        "KiB/token: one more token, with windowed layers counted while their window fills; past it they cost nothing more.",
        style="dim",
    )
    out.print("A cache of latents is copied to each tensor-parallel GPU; KV heads never fall below one a GPU.", style="dim")


def _one(out: Console, cost: CacheCost) -> None:
    m, tp = cost.model, cost.tensor_parallel
    out.print(model_heading(m))
    if not cost.kinds:
        out.print("keeps no KV cache: " + ("; ".join(m.notes) or "it has no layer that stores anything between tokens"))
        return
    heads = (
        f", {_number(m.attention_heads)} attention heads, {_number(m.kv_heads)} KV heads of {_number(m.head_dim)}"
        if m.kv_heads is not None
        else ""
    )
    out.print(f"{int(m.num_layers)} layers{heads}; cache {cost.cache.name}")
    if not int(cost.per_token):
        out.print("a longer sequence costs no more")
    elif m.windowed:
        out.print(f"one more token: {kib(cost.per_token)} KiB while windows fill, {kib(cost.growing)} KiB past them")
    else:
        out.print(f"one more token: {kib(cost.per_token)} KiB, 1k tokens: {memory(1024 * int(cost.per_token))}")
    if int(cost.fixed):
        out.print(f"whatever the length: {memory(cost.fixed)} a sequence")
    if tp > 1 and int(cost.per_token):
        out.print(f"on each of {tp} GPUs: {kib(cost.per_token_on_gpu)} KiB for one more token")
    out.print()
    rows = table("Kind", ("Layers", "right"), ("B/token", "right"), ("Fixed", "right"), "Keeps")
    for k in cost.kinds:
        rows.add_row(
            k.kind.title, _number(k.layers), _number(k.per_token), "-" if k.fixed is None else memory(k.fixed), _keeps(k.kind)
        )
    out.print(rows)
    out.print(f"B/token and fixed: of one layer{' on one GPU' if tp > 1 else ''}.", style="dim")
    out.print()
    rows = table(
        ("Context", "right"),
        ("One sequence", "right"),
        *([(f"On each of {tp} GPUs", "right")] if tp > 1 else []),
        ("Average B/token", "right"),
    )
    for n, whole, here in cost.per_sequence:
        row = [f"{int(n):,}", memory(whole)]
        if tp > 1:
            row.append(memory(here))
        rows.add_row(*row, f"{int(whole) // int(n):,}")
    out.print(rows)
    for line in (*m.assumptions, *m.notes):
        out.print(f"note: {line}")
    if cost.cache.lossy:
        wants = " and wants hardware with fp8 (Ada, Hopper and later)" if cost.cache.eight_bit else ""
        out.print(f"note: {cost.cache.phrase} changes attention numerics{wants}")


def _keeps(kind: object) -> str:
    for name, words in (("window", "the last {} tokens"), ("chunk", "at most {} tokens")):
        value = getattr(kind, name, None)
        if isinstance(value, Q):
            return words.format(f"{int(value):,}")
    ratio = getattr(kind, "ratio", None)
    if isinstance(ratio, Q):
        return f"one entry per {int(ratio):,} tokens"
    if getattr(kind, "grows", False):
        return "every token"
    return "nothing" if getattr(kind, "kind", "") in ("none", "shared") else "a fixed amount"
