"""Holds a built wheel to the tracked files: every tracked file of src/gpufit and data is in it, and nothing else.

python tests/wheel_check.py WHEEL
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def expected() -> set[str]:
    """The paths inside the wheel that git tracks."""
    listed = subprocess.run(["git", "ls-files", "src/gpufit", "data"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = (line for line in listed.splitlines() if line)
    return {"gpufit/" + n.removeprefix("src/gpufit/") if n.startswith("src/") else "gpufit/" + n for n in names}


def main() -> int:
    """Prints each difference; 1 when there is one."""
    inside = {n for n in zipfile.ZipFile(sys.argv[1]).namelist() if ".dist-info/" not in n and not n.endswith("/")}
    missing, extra = sorted(expected() - inside), sorted(inside - expected())
    for name in missing:
        print(f"missing from the wheel: {name}")
    for name in extra:
        print(f"in the wheel but not tracked: {name}")
    print(f"{len(inside)} files in the wheel")
    return 1 if missing or extra else 0


if __name__ == "__main__":
    sys.exit(main())
