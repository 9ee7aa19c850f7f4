"""Prints what a user meets when the Hub fails: the command, each fault, what is said, the exit code, the seconds.

    python tests/hub/fault_table.py            # about two minutes: silence and long waits are real here
    python tests/hub/fault_table.py --only 503

Every row starts from an empty HF_HOME ("cold") or from one in which the answer was stored before ("warm").
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hub.conftest import LLAMA, kept, sharded
from hub.server import LittleHub

TOKEN = "hf_neverprintedneverprinted"
ROWS = (
    # fault, how many requests it hits, Retry-After, warm
    ("none", 0, "1", False),
    ("503", 1, "1", False),
    ("503", 1_000_000, "1", False),
    ("429", 1, "2", False),
    ("429", 1_000_000, "2", False),
    ("429", 1_000_000, "300", False),
    ("truncated", 1, "1", False),
    ("truncated", 1_000_000, "1", False),
    ("html", 1, "1", False),
    ("html", 1_000_000, "1", False),
    ("reset", 1, "1", False),
    ("reset", 1_000_000, "1", False),
    ("silent", 1, "1", False),
    ("silent", 1_000_000, "1", False),
    ("drip", 1_000_000, "1", False),
    ("refused", 1_000_000, "1", False),
    ("503", 1_000_000, "1", True),
    ("429", 1_000_000, "300", True),
    ("html", 1_000_000, "1", True),
    ("reset", 1_000_000, "1", True),
    ("silent", 1_000_000, "1", True),
    ("refused", 1_000_000, "1", True),
)


def command(home: str, url: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """One run of the command against a Hub, and how long it took."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "gpufit", "kv", "org/llama"],
        capture_output=True,
        text=True,
        check=False,
        env=clean | {"HF_HOME": home, "HF_ENDPOINT": url, "HF_TOKEN": TOKEN, "COLUMNS": "200", "NO_COLOR": "1"},
    )
    return ended, time.monotonic() - started


def row(fault: str, times: int, retry_after: str, warm: bool) -> str:
    """One line of the table; raises AssertionError for what must never happen."""
    with tempfile.TemporaryDirectory() as home, LittleHub() as hub:
        hub.token = TOKEN
        hub.repositories["org/llama"] = sharded(139, config=LLAMA)
        if warm:
            command(home, hub.url)
        stored = [p.read_bytes() for p in kept(Path(home))]
        hub.heal()
        if fault == "refused":
            hub.refuse()
        elif fault != "none":
            hub.fail(fault, times, retry_after=retry_after)
        ended, seconds = command(home, hub.url)
        asked = len(hub.rows)
        hub.released.set()
        assert "Traceback" not in ended.stderr, ended.stderr
        assert TOKEN not in ended.stdout + ended.stderr
        assert seconds < 15, seconds
        after = [p.read_bytes() for p in kept(Path(home))]
        assert after == stored if ended.returncode or warm else len(after) == 1
        said = next((line for line in ended.stderr.splitlines() if line), "") if ended.returncode else _said(ended.stdout)
    words = {"429": f"429, Retry-After {retry_after}"}.get(fault, fault) + ("" if times != 1 else ", once")
    return f"| {words} | {'warm' if warm else 'cold'} | {said} | {ended.returncode} | {asked} | {seconds:.1f} |"


def _said(stdout: str) -> str:
    notes = [line.strip() for line in stdout.splitlines() if "not checked" in line]
    return "the answer" + (f"; {notes[0]}" if notes else "")


def main() -> None:
    """The table on stdout."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="only rows of this fault")
    only = options.parse_args().only
    print("| fault | cache | what the user sees | exit | requests | seconds |\n|---|---|---|---|---|---|")
    for fault, times, retry_after, warm in ROWS:
        if only in ("", fault):
            print(row(fault, times, retry_after, warm), flush=True)


if __name__ == "__main__":
    main()
