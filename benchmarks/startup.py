"""Start-up and whole-catalogue times as ratios to a bare interpreter, and evaluations of the core per second.

    python benchmarks/startup.py [RUNS]

Each figure is the fastest of RUNS runs (15) over the fastest `python -c pass`, all measured in turn, so that a busy machine moves both;
the median of each pair of neighbours stands beside it. Bytecode is compiled before anything is measured, as it is after an installation,
into a folder of its own. Nothing here is a test: tests/cli/test_counts.py guards the work by counts. README.md beside this file has
what was measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version

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


def seconds(arguments: list[str], bytecode: str) -> float:
    """One run's wall time; compiled modules are found, and left, in a folder."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        env=env | {"HF_HUB_OFFLINE": "1", "PYTHONPYCACHEPREFIX": bytecode},
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
    bare: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    ratios: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as bytecode:
        for arguments in (["-c", "pass"], *COMMANDS.values()):
            seconds(arguments, bytecode)
        for _ in range(runs):
            for name, arguments in COMMANDS.items():
                bare.append(seconds(["-c", "pass"], bytecode))
                times[name].append(seconds(arguments, bytecode))
                ratios[name].append(times[name][-1] / bare[-1])
    print(f"bare interpreter {min(bare) * 1000:.1f} ms, {runs} runs, Python {sys.version.split()[0]}, typer {version('typer')}")
    print("fastest  median")
    for name in COMMANDS:
        print(f"{min(times[name]) / min(bare):5.1f} x {statistics.median(ratios[name]):5.1f} x  {name}")
    rate, each = core_rate()
    print(f"{rate:6,} answers a second of one model on one kind of hardware ({each:.2f} ms each)")


if __name__ == "__main__":
    main()
