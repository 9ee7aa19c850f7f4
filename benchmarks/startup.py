"""Start-up and whole-catalogue times as ratios to a bare interpreter, and evaluations of the core per second.

    python benchmarks/startup.py [RUNS]

Each figure is the median of RUNS runs (15) over the median of `python -c pass` measured in turn with them, so that a busy machine
moves both. Nothing here is a test.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "gpufit --help": ["-m", "gpufit", "--help"],
    "fit, whole catalogue, JSON": ["-m", "gpufit", "fit", "--gpu", "h100-sxm:4", "--json"],
    "fit, whole catalogue, table": ["-m", "gpufit", "fit", "--gpu", "h100-sxm:4"],
    "kv, whole catalogue, JSON": ["-m", "gpufit", "kv", "--json"],
    "fit, one model, table": ["-m", "gpufit", "fit", "llama-3.3-70b", "--gpu", "h100-sxm:4"],
    "explain, one model": ["-m", "gpufit", "explain", "llama-3.1-8b", "--gpu", "h100-sxm"],
    "import gpufit": ["-c", "import gpufit"],
    "import typer": ["-c", "import typer"],
    "import rich": ["-c", "import rich.console, rich.table"],
    "import pydantic": ["-c", "from pydantic import TypeAdapter"],
}


def seconds(arguments: list[str]) -> float:
    """One run's wall time."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    return time.perf_counter() - begin


def core_rate() -> tuple[int, float]:
    """Capacity answers per second of one model on one kind of hardware, and the milliseconds of one."""
    from gpufit.engines.arithmetic import Arithmetic
    from gpufit.quantity import TOKEN_PER_SEQUENCE, fact
    from gpufit.sizing.question import Question
    from gpufit.sizing.search import answer
    from gpufit.sources.catalogue import model_of
    from gpufit.sources.gpuspec import parse_spec
    from gpufit.workload import Workload

    tokens = fact(8192, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="benchmark")
    question = Question(
        model=model_of("llama-3.3-70b"),
        hardware=(parse_spec("h100-sxm:4"),),
        workload=Workload(context=tokens),
        engine=Arithmetic(),
    )
    answer(question)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 1:
        answer(question)
        count += 1
    each = (time.perf_counter() - begin) / count
    return round(1 / each), each * 1000


def main() -> None:
    """Prints the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {"bare": []} | {name: [] for name in COMMANDS}
    for _ in range(runs):
        times["bare"].append(seconds(["-c", "pass"]))
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times["bare"])
    print(f"bare interpreter {bare * 1000:.1f} ms, {runs} runs, Python {sys.version.split()[0]}")
    for name in COMMANDS:
        print(f"{statistics.median(times[name]) / bare:6.1f} x  {name}")
    rate, each = core_rate()
    print(f"{rate:6,} answers a second of one model on one kind of hardware ({each:.2f} ms each)")


if __name__ == "__main__":
    main()
