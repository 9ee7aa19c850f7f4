"""The command line: parses words, calls the library, ends the process with an exit code that scripts can rely on."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from gpufit._version import __version__
from gpufit.cli import options as o
from gpufit.errors import GpufitError

HELP = """Which language models fit on your GPUs, in what format, how many sequences at once, and why.

Memory is arithmetic: every number can show its derivation (gpufit explain). There is no speed in here: throughput is not arithmetic.

\b
Examples:
  gpufit fit --gpu h100-sxm:4
  gpufit fit llama-3.3-70b --gpu 2xh100 --context 32k
  gpufit kv meta-llama/Llama-3.1-8B
  gpufit explain gpt-oss-120b --gpu h100-sxm --context 8k
  gpufit plan llama-3.3-70b --context 32k --concurrency 64
"""

COMMANDS = ("fit", "kv", "explain", "plan", "check", "catalogue")
"""The commands, in the order of the help screen; each is the module of its name."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpufit {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
    debug: o.Debug = False,
) -> None:
    """What every command shares; --debug is read before the words are parsed, wherever it stands."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application that answers these words: with the one command that they begin with, else with all.

    Reading the options of every command would cost a run as much as reading the hardware.
    """
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        module = import_module(f"gpufit.cli.{name}")
        app.command(name, help=module.HELP)(module.command)
    return app


def main(argv: list[str] | None = None) -> None:
    """The entry point: runs a command and turns every failure into a message and an exit code."""
    words = sys.argv[1:] if argv is None else argv
    sys.exit(run(words))


def run(words: list[str]) -> int:
    """Runs one command line and returns its exit code; nothing but --debug lets a traceback through."""
    debug = "--debug" in words
    wants_json = "--json" in words or "--format=json" in words or ("--format" in words and "json" in words)
    try:
        # Text from configs and the Hub is printed: a terminal that cannot show a character must not break the answer.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        asked = [w for w in words if w != "--debug"]
        ended = typer.main.get_command(application(asked)).main(args=asked, prog_name="gpufit", standalone_mode=False)
        sys.stdout.flush()
        return ended if isinstance(ended, int) else 0
    except (BrokenPipeError, SystemExit) as ended_early:
        # The reader of a pipe has seen enough (gpufit ... | head): point stdout elsewhere so that closing it cannot fail again. typer
        # turns a closed pipe into an exit with 1, which means "does not fit" here; nothing of gpufit's own leaves by SystemExit.
        if isinstance(ended_early, SystemExit) and ended_early.code != 1:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except GpufitError as error:
        if debug:
            raise
        return _say(error.message, error.hint, error.exit_code, wants_json)
    except KeyboardInterrupt:
        return _say("interrupted", "", 130, wants_json)
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if isinstance(code, int):
            # typer's own exits and usage errors; which module they live in differs between its versions.
            message = error.format_message() if hasattr(error, "format_message") else str(error)
            if not message or type(error).__name__ in ("Exit", "NoArgsIsHelpError"):
                if message:
                    typer.echo(message)
                return code
            context = getattr(error, "ctx", None)
            hint = f"{context.command_path} --help lists what works" if context is not None else "gpufit --help lists what works"
            return _say(message.rstrip("."), hint, code, wants_json)
        if debug:
            raise
        what = f"{type(error).__name__}: {error}"
        return _say(f"a fault of gpufit: {what}", "run the same command with --debug and report what it prints", 70, wants_json)


def _say(message: str, hint: str, code: int, wants_json: bool) -> int:
    sys.stdout.flush()
    if wants_json:
        print(
            json.dumps({"schema": "gpufit.error/1", "error": {"message": message, "hint": hint, "exit_code": code}}),
            file=sys.stderr,
        )
        return code
    _err(f"error: {message}")
    if hint:
        _err(f"hint: {hint}")
    return code


def _err(text: str) -> None:
    """One sentence on stderr: broken at words where a terminal ends, on one line for a pipe or a file."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(textwrap.fill(t, max(20, width), break_long_words=False, break_on_hyphens=False) for t in text.split("\n"))
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
