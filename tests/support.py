"""What several tests share: where the collected facts are, an evaluator of printed lines, and a way to run the command."""

from __future__ import annotations

import ast
import json
import operator
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def shared() -> Path | None:
    """The folder of collected facts beside the checkout; None in a clone that lacks it."""
    found = ROOT.parent / "shared"
    return found if found.is_dir() else None


_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a) / b,
}
_CALLS: dict[str, Any] = {"floor": lambda a: a // 1, "ceil": lambda a: -(-a // 1), "min": min, "max": max}


def calculate(text: str) -> Fraction:
    """The exact value of a printed expression. Shares no code with gpufit: digits, + - * / brackets, floor, ceil, min, max."""

    def value(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant):
            return Fraction(ast.get_source_segment(plain, node) or "")
        if isinstance(node, ast.BinOp):
            return Fraction(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return Fraction(_CALLS[node.func.id](*(value(a) for a in node.args)))
        raise AssertionError(f"not an arithmetic expression: {text}")

    # 8,192 is one number; the comma between two arguments is followed by a space.
    plain = re.sub(r"(?<=\d),(?=\d)", "", text)
    return value(ast.parse(plain, mode="eval").body)


def equations(screen: str) -> list[tuple[str, list[str]]]:
    """The equations of an explain screen as (symbol, sides), with continued lines joined."""
    inside = screen.split("Arithmetic\n", 1)[1] if "Arithmetic\n" in screen else ""
    joined: list[str] = []
    for line in inside.splitlines():
        body = line.strip()
        if re.match(r"    \S+ = ", line):
            joined.append(body)
        elif line.startswith("     ") and joined:
            joined[-1] += " " + body
    found = []
    for text in joined:
        symbol, *sides = text.split(" = ")
        found.append((symbol, sides))
    return found


def leading_number(text: str) -> Fraction:
    """The number that a printed value begins with, its unit dropped."""
    match = re.match(r"-?[\d,]+(\.\d+)?", text)
    assert match, text
    return Fraction(match[0].replace(",", ""))


def gives(value: Fraction | int, printed: str) -> bool:
    """Whether a printed result is the value: exactly, or to the digits before the dots of a fraction that does not end."""
    number = leading_number(printed)
    digits = re.match(r"-?[\d,]+\.(\d+)\.\.\.", printed)
    return number == (value if digits is None else Fraction(int(value * 10 ** len(digits[1])), 10 ** len(digits[1])))


def gpufit(*words: str, width: int = 80, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the installed command as a user does, offline, at a terminal width, without a colour terminal."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "GPUFIT_"))}
    return subprocess.run(
        [sys.executable, "-m", "gpufit", *words],
        capture_output=True,
        text=True,
        input=stdin,
        check=False,
        encoding="utf-8",
        env=inherited
        | {"COLUMNS": str(width), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"}
        | (env or {}),
    )


def gpufit_json(*words: str, env: dict[str, str] | None = None) -> Any:
    """The one JSON object that a command prints."""
    ended = gpufit(*words, "--json", env=env)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
