"""`gpufit fit` for people: what the hardware is, what fits, what does not and what would make it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gpufit.engines.base import Capacity, EnginePolicy
from gpufit.hardware import Hardware
from gpufit.model import Model
from gpufit.quantity import Q
from gpufit.report.bars import bar, legend
from gpufit.report.command import Named, serve_line
from gpufit.report.console import console, heading, model_heading, print_rows, table, width_of
from gpufit.report.units import gib, kib, memory, params, plural
from gpufit.sizing.question import Answer
from gpufit.workload import Workload

EXACT = (
    "Exact: parameters, cache bytes, GPU memory as its tool reports it. "
    "Modelled: even weight shards, formats that are not the published one."
)
LEFT_OUT = (
    "Left out: throughput (no tokens per second, by design), engine overhead, CUDA graphs, LoRA, speculative decoding, "
    "encoder activations of vision towers."
)


ENGINE_EXACT = (
    "Exact: weights as vLLM creates them, blocks, tokens and concurrency of the memory left. "
    "Modelled: the overhead line, what kernels repack at load time."
)
ENGINE_LEFT_OUT = (
    "Left out: throughput (no tokens per second, by design), CUDA context and NCCL (they live outside the budget), "
    "encoder activations of vision towers."
)


def print_fit(
    answers: Sequence[Answer],
    hardware: Sequence[Hardware],
    workload: Workload,
    engine: EnginePolicy,
    *,
    whole_catalogue: bool,
    others: Sequence[Answer] = (),
    notes: Sequence[str] = (),
    named: Named | None = None,
) -> None:
    """The answers, largest model first in a list, or one model in full."""
    out = console()
    for h in hardware:
        out.print(hardware_line(h))
        for note in h.notes:
            out.print(f"  note: {note}")
    for note in notes:
        out.print(f"note: {note}")
    out.print()
    if len(answers) == 1 and not whole_catalogue:
        _one(out, answers[0], others, named)
    else:
        _list(out, answers, hardware, workload, engine)
    out.print()
    plain = engine.version is None
    if any(a.fits and a.sequences is not None for a in answers):
        one = len(answers) == 1 and not whole_catalogue
        out.print(floor_text("" if one else "Each and Total"), style="dim")
    if any(a.capacity is not None for a in answers):
        for line in (EXACT if plain else ENGINE_EXACT, LEFT_OUT if plain else ENGINE_LEFT_OUT):
            out.print(line, style="dim")


def floor_text(columns: str) -> str:
    """What the counts are, by their names in the view; empty where they stand in sentences."""
    lead = f"{columns} count" if columns else "Counted are"
    return f"{lead} sequences whose whole cache fits at the full context: a floor for real traffic, not a number of users."


def hardware_line(h: Hardware) -> str:
    """Count, name, total GiB, architecture, bandwidth; what is not known is left out."""
    gpu = h.gpu
    size = (
        f"{gib(h.total_memory)} in all, {int(gpu.memory) / 2**30:.2f} GiB each"
        if h.count > 1
        else f"{int(gpu.memory) / 2**30:.2f} GiB"
    )
    facts = [size]
    if gpu.architecture:
        facts.append(gpu.architecture)
    if gpu.compute_capability:
        facts.append(f"compute capability {gpu.compute_capability}")
    if gpu.bandwidth_gb_s:
        facts.append(f"{gpu.bandwidth_gb_s:,} GB/s")
    name = f"{h.instance}: " if h.instance else ""
    return f"{name}{h.count:,} x {gpu.name} ({', '.join(facts)})"


def _asked(workload: Workload, engine: EnginePolicy) -> str:
    share = workload.utilization or engine.utilization()
    context = "the model's own limit" if workload.context is None else plural(int(workload.context), "token")
    dtype = "cache dtype auto" if workload.kv_cache_dtype is None else f"{workload.kv_cache_dtype} cache"
    return (
        f"Context {context}, {dtype}, {float(share.value):.0%} of memory used."
        if float(share.value) * 100 == round(float(share.value) * 100)
        else (f"Context {context}, {dtype}, {float(share.value)} of memory used.")
    )


def placement_text(a: Answer) -> str:
    """Placement and replicas, as in "tp 4, 2 replicas"."""
    p = a.placement
    if p is None:
        return "none legal"
    tp, pp = int(p.tensor_parallel), int(p.pipeline_parallel)
    if p.data_parallel is not None and int(p.data_parallel) > 1:
        ranks = f"tp {tp} pp {pp} dp {int(p.data_parallel)}"
        return f"{ranks}, {plural(int(a.replicas), 'replica')}" if a.replicas is not None else ranks
    where = "1 GPU" if p.gpus == 1 else f"tp {tp}" if pp == 1 else f"pp {pp}" if tp == 1 else f"tp {tp} pp {pp}"
    return f"{where}, {plural(int(a.replicas), 'replica')}" if a.replicas is not None else where


def short_placement(a: Answer) -> str:
    """The same in few cells, as in "tp 4 x2"."""
    p = a.placement
    if p is None or a.replicas is None:
        return placement_text(a)
    where = placement_text(a).rpartition(",")[0]
    return f"{where} x{int(a.replicas)}"


def _list(out: Console, answers: Sequence[Answer], hardware: Sequence[Hardware], workload: Workload, engine: EnginePolicy) -> None:
    out.print(_asked(workload, engine))
    ordered = sorted(answers, key=lambda a: -int(a.question.model.total_params))
    fitting = [a for a in ordered if a.fits]
    missing = [a for a in ordered if not a.fits and not a.context_too_long]
    short = [a for a in ordered if a.context_too_long]
    if fitting:
        out.print()
        out.print(heading(f"Fits ({len(fitting)} of {len(answers)})"))
        _fitting(out, fitting, hardware, own_context=workload.context is None)
        if any(a.lowered for a in fitting):
            out.print("* not the published format: needs a checkpoint in this one", style="dim")
        _common_warnings(out, fitting)
    if missing:
        gpu = _gpu_names(hardware)
        rows = table(
            ("Model", "fixed"), *([("GPU", "fixed")] if gpu else []), ("GiB short", "right"), "One change that would make it fit"
        )
        for a in missing:
            named = [gpu[a.hardware]] if gpu else []
            rows.add_row(a.question.model.slug, *named, f"{a.short_by / 2**30:,.1f}" if a.short_by else "", _changes_text(a))
        asked_format = all(a.question.weights in ("auto",) for a in missing)
        out.print()
        out.print(heading(f"Does not fit{' in any format' if asked_format else ''} ({len(missing)})"))
        out.print(rows)
        out.print("GiB short: on each GPU of the best placement.", style="dim")
    if short:
        out.print()
        out.print(heading(f"Context beyond the model's own limit ({len(short)})"))
        out.print(", ".join(f"{a.question.model.slug} ({int(a.question.model.max_context or 0):,})" for a in short))


def _gpu_names(hardware: Sequence[Hardware]) -> dict[Hardware, str]:
    """How a list tells several kinds of hardware apart: by GPU, with counts where one GPU is asked about twice; empty for one kind."""
    if len(hardware) < 2:
        return {}
    ids = [h.gpu.id for h in hardware]
    return {h: h.gpu.id if len(set(ids)) == len(ids) else f"{h.count:,} x {h.gpu.id}" for h in hardware}


def _fitting(out: Console, answers: Sequence[Answer], hardware: Sequence[Hardware], *, own_context: bool) -> None:
    """One line a model that fits; placements are shortened where the terminal is narrow."""
    gpu = _gpu_names(hardware)
    columns = [("Model", "left"), ("Weights", "left"), ("GiB", "right")]
    columns += [("GPU", "left")] if gpu else []
    columns += [("Context", "right")] if own_context else []
    columns += [("Placement", "left"), ("Each", "right"), ("Total", "right")]

    def row(a: Answer, placement: str) -> tuple[str, ...]:
        assert a.capacity is not None
        weights = a.capacity.weights
        return (
            a.question.model.slug,
            f"{weights.format}{'*' if a.lowered else ''}",
            f"{int(weights.bytes) / 2**30:,.1f}",
            *([gpu[a.hardware]] if gpu else []),
            *([f"{int(a.capacity.context):,}"] if own_context else []),
            placement,
            *_counts(a),
        )

    rows = [row(a, placement_text(a)) for a in answers]
    shortened = width_of(columns, rows) > out.width
    if shortened:
        rows = [row(a, short_placement(a)) for a in answers]
    print_rows(out, columns, rows, drop=("GiB", "Weights"))
    if shortened:
        out.print("Placement: tp (tensor parallel) or pp (pipeline parallel) degree, x replicas.", style="dim")


def _counts(a: Answer) -> tuple[str, str]:
    """Sequences of one replica and of all; a dash where no cache limits them."""
    if a.sequences is None or a.capacity is None:
        return "-", "-"
    return f"{int(a.capacity.per_replica):,}", f"{a.sequences:,}"


def _changes_text(a: Answer) -> str:
    if a.changes:
        return ", or ".join(c.what for c in a.changes)
    return a.reason or "no single change"


def _common_warnings(out: Console, answers: Sequence[Answer]) -> None:
    """Warnings that a list would repeat are said once, with how many models they touch."""
    counts: dict[str, list[str]] = {}
    for a in answers:
        for warning in a.warnings:
            if "needs a checkpoint in this format" not in warning:
                counts.setdefault(warning, []).append(a.question.model.slug)
    for warning, slugs in counts.items():
        shown = ", ".join(slugs[:3]) + (f" and {len(slugs) - 3} more" if len(slugs) > 3 else "")
        out.print(f"note: {warning} ({shown})", style="dim")


def _one(out: Console, a: Answer, others: Sequence[Answer], named: Named | None) -> None:
    model, c, p = a.question.model, a.capacity, a.placement
    active = f", {params(model.active_params)} active per token" if model.active_params is not None and _sparse(a) else ""
    vision = f", {params(model.vision_params)} of them in towers" if model.vision_params is not None else ""
    out.print(model_heading(model))
    out.print(
        f"{params(model.total_params)} parameters{active}{vision}; {int(model.num_layers)} layers; published in {published_text(model)}"
    )
    out.print()
    if c is None or p is None:
        out.print(f"Does not fit: {a.reason}.")
        return
    rows = table("", "")
    rows.show_header = False
    kept = "" if c.weights.published or c.weights.cast else f", needs a checkpoint in {c.weights.format}"
    # The published format's detail stands in the line above.
    note = f" ({c.weights.note})" if c.weights.note and not c.weights.published else ""
    rows.add_row(
        "weights",
        f"{c.weights.format}, {memory(c.weights.bytes)}{kept}{note}; {memory(c.weights_per_gpu)} on each GPU"
        if p.gpus > 1
        else f"{c.weights.format}, {memory(c.weights.bytes)}{kept}{note}",
    )
    rows.add_row("placement", f"{_long_placement(a)}")
    per_token = (
        ""
        if a.bytes_per_token is None
        else f"{kib(a.bytes_per_token)} KiB per token{' while windows fill' if model.windowed else ''}; "
    )
    if c.unlimited:
        rows.add_row("cache", "none is kept")
    else:
        rows.add_row(
            "cache", f"{c.cache.name}, {per_token}{memory(c.sequence_bytes)} for one sequence of {plural(int(c.context), 'token')}"
        )
    if a.fits and c.unlimited:
        rows.add_row("holds", "as many sequences as a batch takes: no cache limits them")
    elif a.fits:
        each = f" ({int(c.per_replica):,} in each replica)" if a.replicas is not None and int(a.replicas) > 1 else ""
        rows.add_row("holds", f"{plural(a.total_sequences, 'sequence')} of {plural(int(c.context), 'token')} at once{each}")
    else:
        rows.add_row("holds", f"none: {a.reason}")
        rows.add_row("memory", _shortage(a))
    if c.details:
        rows.add_row(f"{c.details['name']} {c.details['version']}", _engine_text(c))
    out.print(rows)
    said = f"{c.weights.format}: needs a checkpoint in this format"
    for warning in (*(w for w in a.warnings if not w.startswith(said)), *c.remarks, *model.notes):
        out.print(f"note: {warning}")
    if a.fits:
        _memory_bar(out, a, c)
    if a.changes:
        out.print()
        out.print(heading("One change that would make it fit"))
        for change in a.changes:
            then = "" if change.sequences is None else f" (then {change.sequences:,} at once)"
            out.print(f"  {change.what}: {change.option}{then}")
    if others:
        out.print()
        out.print(heading("Other placements of the same weights"))
        rows = table("Placement", ("Each", "right"), ("Total", "right"))
        for other in others:
            if other.capacity is not None:
                rows.add_row(placement_text(other), *_counts(other))
        out.print(rows)
    line = serve_line(a, named)
    if line is not None and not line.words:
        out.print()
        out.print(line.note)
    if line is not None and line.words:
        words = line.words
        out.print()
        replicas = int(a.replicas) if a.replicas is not None else 1
        out.print(heading("To serve it so" + (f" ({replicas} times, one per replica)" if replicas > 1 else "")))
        for position, word in enumerate(words):
            # Printed line by line without padding: a space after the backslash would break the pasted command.
            end = "" if position == len(words) - 1 else " \\"
            out.print(Text(("  " if position == 0 else "    ") + word + end), soft_wrap=True)
        if line.note:
            out.print(line.note, style="dim")


def _memory_bar(out: Console, a: Answer, c: Capacity) -> None:
    """Where one GPU's memory goes, as a bar and its legend."""
    size = f"{int(a.hardware.gpu.memory) / 2**30:.2f} GiB"
    out.print()
    out.print(f"Each GPU, {size}:" if a.placement is not None and a.placement.gpus > 1 else f"The GPU, {size}:")
    if all(int(line.bytes) >= 0 for line in c.ledger):
        out.print(Text(bar(c.ledger, min(out.width, 100)), no_wrap=True))
    uses = table("", "", ("", "right"))
    uses.show_header = False
    for fill, name, text in legend(c.ledger):
        uses.add_row(fill, name, text)
    out.print(uses)


def _shortage(a: Answer) -> str:
    """What one GPU would have to hold, of how much, and how much is missing."""
    c, p = a.capacity, a.placement
    assert c is not None and p is not None
    uses = [f"{line.name} {memory(line.bytes)}" for line in c.ledger if line.name.startswith(("weights", "overhead"))]
    if not c.unlimited:
        uses.append(f"cache of one sequence {memory(c.sequence_bytes_per_gpu)}")
    on_each = " on each GPU" if p.gpus > 1 else ""
    return f"{', '.join(uses)}, of the {memory(c.budget)} that may be used{on_each}: short by {memory(a.short_by)}"


def _engine_text(c: Capacity) -> str:
    """The engine's own figures, as its log would print them, and both costs of a sequence side by side."""
    d = c.details

    def number(name: str) -> int:
        value = d[name]
        assert isinstance(value, int | Q), name
        return int(value)

    if c.unlimited:
        return f"requests {memory(number('requested_bytes'))} of a GPU; no KV cache"
    return (
        f"requests {memory(number('requested_bytes'))} of a GPU; {number('blocks'):,} blocks of {number('block_size')} tokens "
        f"({memory(number('block_bytes'))} each), {number('blocks_per_request'):,} a request; "
        f"GPU KV cache size {number('kv_cache_tokens'):,} tokens, maximum concurrency {d['max_concurrency']:.2f}x; "
        f"a sequence needs {memory(number('needed_bytes_per_sequence_per_gpu'))} on a GPU, "
        f"vLLM reserves {memory(number('reserved_bytes_per_sequence_per_gpu'))}"
    )


def _sparse(a: Answer) -> bool:
    model = a.question.model
    return model.active_params is not None and int(model.active_params) != int(model.total_params)


def published_text(model: Model) -> str:
    """The published checkpoint: its format, what is to be known of it, and the size of its files where that is known."""
    known = model.published
    files = "" if known.bytes is None else f", files {int(known.bytes) / 1e9:,.1f} GB"
    return (f"{known.format} ({known.detail})" if known.detail else known.format) + files


def _long_placement(a: Answer) -> str:
    assert a.placement is not None
    tp, pp = int(a.placement.tensor_parallel), int(a.placement.pipeline_parallel)
    parts = ["1 GPU"] if a.placement.gpus == 1 else [f"tensor parallel {tp}"] + ([f"pipeline parallel {pp}"] if pp > 1 else [])
    if a.placement.data_parallel is not None:
        parts.append(f"data parallel {int(a.placement.data_parallel)}")
    replicas = int(a.replicas) if a.replicas is not None else 0
    return f"{', '.join(parts)}; {plural(replicas, 'replica')} on {plural(a.hardware.count, 'GPU')}"
