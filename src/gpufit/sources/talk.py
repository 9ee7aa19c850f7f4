"""Words for someone who waits: on stderr, only on a terminal, only after a while, and gone when the answer is there."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

PATIENCE_SECONDS = 1.5
"""How long nothing is said."""


class Talk:
    """One line on a terminal's stderr that says what is being waited for. `say` changes it; leaving the context wipes it."""

    def __init__(self, text: str, *, after: float = PATIENCE_SECONDS) -> None:
        self._text = text
        self._after = after
        self._shown = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Talk:
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(self._after, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._shown = False

    def say(self, text: str) -> None:
        """Changes the line; shown at once when the line is already up."""
        self._text = text
        if self._shown:
            self._show()

    def _show(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            sys.stderr.write(f"\r\x1b[K{self._text} ...")
            sys.stderr.flush()
            self._shown = True
