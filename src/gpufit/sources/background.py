"""Work in threads that nobody has to wait for: a deadline holds whatever the work does, and an exit is never held up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Overdue(Exception):
    """The work was not done in time. It was told to stop and left behind."""


def in_time(work: Callable[[threading.Event], T], left: Callable[[], float]) -> T:
    """The result of `work`, raised errors included; `Overdue` as soon as `left()` says that no seconds remain.

    `left` is asked again and again, so the work itself may earn time. The event is set when the work should stop.
    """
    results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
    stop = threading.Event()

    def run() -> None:
        try:
            results.put((True, work(stop)))
        except BaseException as error:  # handed to the caller's thread
            results.put((False, error))

    threading.Thread(target=run, name="gpufit-wait", daemon=True).start()
    while True:
        try:
            done, value = results.get(timeout=max(0.005, left()))
            break
        except queue.Empty:
            if left() <= 0:
                stop.set()
                raise Overdue from None
    if not done:
        raise value
    result: T = value
    return result


def each(work: Callable[[A], T], items: Sequence[A], *, at_once: int) -> list[T]:
    """`work` of every item, in order, at most `at_once` at a time. The first error ends the rest and is raised."""
    todo = iter(range(len(items)))
    lock = threading.Lock()
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    finished: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run() -> None:
        try:
            while not errors:
                with lock:
                    index = next(todo, None)
                if index is None:
                    break
                results[index] = work(items[index])
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)
        finally:
            finished.put(None)

    workers = min(at_once, len(items))
    for _ in range(workers):
        threading.Thread(target=run, name="gpufit-each", daemon=True).start()
    for _ in range(workers):
        finished.get()
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(items))]
