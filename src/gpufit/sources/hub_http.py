"""Requests to the Hub through its own client's session, with a bound on the time that any fault may cost.

Every request of one question shares a `Patience`: retries, waits and silence together never pass its total. A request runs in a thread
of its own, so that even a name server that does not answer, or a body that drips byte by byte, ends on time. Nothing here depends on
which HTTP library huggingface_hub is built on (requests before 1.0, httpx since).
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, TypeVar

from gpufit._version import __version__
from gpufit.errors import AccessError, NetworkError
from gpufit.sources import hub_env
from gpufit.sources.background import Overdue, in_time

T = TypeVar("T")

MOST_BODY = 64 << 20
"""Bytes of one answer that are read at most: real ones stay below a few megabytes."""
_FOREIGN = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "requests", "urllib3", "huggingface_hub", "http")
CUT = "the connection was cut"
RETRIED = (408, 429, 500, 502, 503, 504)


@dataclass(slots=True, kw_only=True)
class Patience:
    """How long one question may wait for the Hub.

    `total` seconds in all, of which a single try may be silent for `silence`. Bodies that do arrive extend the total by their size over
    `slowest` bytes a second, so that a slow line is not a fault. `sleep` and `clock` are replaced by tests.
    """

    total: float = 10.0
    silence: float = 4.0
    attempts: int = 4
    first_wait: float = 0.3
    slowest: int = 200_000
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    _until: float | None = field(default=None)

    def left(self) -> float:
        """Seconds that remain; the clock starts at the first look."""
        if self._until is None:
            self._until = self.clock() + self.total
        return self._until - self.clock()

    def received(self, size: int) -> None:
        """Grants time for bytes that came."""
        self.left()
        assert self._until is not None
        self._until += size / self.slowest

    def renew(self) -> None:
        """A new allowance, for the next of many requests when the last one succeeded."""
        self._until = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: `headers` by lower-case name; `body` may be cut at the limit that was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The Hub's word for what is wrong, as in "GatedRepo"; empty when it says none."""
        return self.headers.get("x-error-code", "")


class Fault(Exception):
    """One try that failed; `words` say how. `again` tells whether another try may do better."""

    def __init__(self, words: str, *, again: bool = True, wait: float | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.again = again
        self.wait = wait


class Hub:
    """The Hub at the endpoint of the environment, behind the session of huggingface_hub. The client is imported at the first request."""

    def __init__(self, patience: Patience | None = None, *, say: Callable[[str], None] | None = None) -> None:
        self.patience = patience or Patience()
        self.say = say or (lambda text: None)
        self._headers: dict[str, str] | None = None

    def headers(self) -> dict[str, str]:
        """User agent and, where there is a token, the authorisation.

        The client's own build_hf_headers is not used: since 2.x it may ask the Hub for a list of agents first, a request more.
        """
        if self._headers is None:
            import huggingface_hub

            agent = f"gpufit/{__version__}; hf_hub/{huggingface_hub.__version__}"
            self._headers = {"user-agent": agent}
            token = None
            if hub_env.token() is not None:  # honours HF_HUB_DISABLE_IMPLICIT_TOKEN; the client may refresh a stored login
                token = huggingface_hub.get_token() or hub_env.token()
            if token:
                self._headers["authorization"] = f"Bearer {token.strip()}"
        return self._headers

    def get(
        self,
        path: str,
        *,
        what: str,
        span: tuple[int, int] | None = None,
        limit: int | None = None,
        check: Callable[[Reply], T],
    ) -> T:
        """What `check` makes of the answer to GET `path`, tried again while patience lasts.

        `span` asks for bytes [start, end) only; an answer that ignores it is read up to the end and cut. `limit` stops reading after so
        many bytes. `check` raises `Fault` for an answer that is none (an HTML page, a broken text). Raises `NetworkError` in the end.
        """
        wait = self.patience.first_wait
        for attempt in range(1, self.patience.attempts + 1):
            try:
                return check(self._whole(path, span, limit))
            except Fault as fault:
                pause = wait if fault.wait is None else fault.wait
                if fault.wait is not None and pause >= self.patience.left():
                    raise self.gone(f"{fault.words} and asks to wait {round(pause)} s", what) from None
                if not fault.again or attempt == self.patience.attempts or pause + 0.1 >= self.patience.left():
                    raise self.gone(fault.words + (f" ({attempt} tries)" if attempt > 1 else ""), what) from None
                self.say(f"{hub_env.shown_endpoint()}: {fault.words}; trying again")
                self.patience.sleep(pause)
                wait *= 2
        raise AssertionError("the last attempt returns or raises")

    def gone(self, words: str, what: str) -> NetworkError:
        """The error for a Hub that gave no answer."""
        hint = "check the network, or HF_ENDPOINT if the Hub is reached through a mirror; a config.json from elsewhere can be read with `-`"
        if "429" in words:
            hint = "wait and try again; callers with a token (HF_TOKEN) may ask more often"
        elif "instead of" in words:
            hint = (
                "something between here and the Hub answers in its place (a sign-in page, a proxy): open the address in a browser"
            )
        return NetworkError(f"{hub_env.shown_endpoint()} gave no usable answer for {what}: {words}", hint=hint)

    def _whole(self, path: str, span: tuple[int, int] | None, limit: int | None) -> Reply:
        left = self.patience.left()
        if left <= 0:
            raise Fault("no answer in time", again=False)
        headers = dict(self.headers())
        if span is not None:
            headers["range"] = f"bytes={span[0]}-{span[1] - 1}"
            headers["accept-encoding"] = "identity"
        self.patience.requests += 1
        url = hub_env.endpoint() + path
        silence = self.patience.silence
        last = [self.patience.clock()]
        got: list[int] = []

        def work(stop: threading.Event) -> Reply:
            return _fetch(url, headers, span=span, limit=limit, silence=silence, stop=stop, received=received)

        def received(size: int) -> None:
            got.append(size)
            last[0] = self.patience.clock()
            self.patience.received(size)

        def quiet() -> float:
            return last[0] + silence + 0.5 - self.patience.clock()

        # A body that keeps coming has all the time that is left, one that does not no more than `silence`.
        try:
            reply = in_time(work, lambda: min(self.patience.left(), quiet()))
        except Overdue:
            if got and self.patience.left() <= 0 and quiet() > 0:
                raise Fault("its answer came too slowly", again=False) from None
            raise Fault(f"no answer within {silence:g} s") from None
        except Exception as error:
            raise _as_fault(error, silence) from None
        if span is not None and reply.status == 200 and "html" in reply.headers.get("content-type", ""):
            raise Fault("it sent an HTML page instead of a part of the file")
        if reply.status in RETRIED:
            raise Fault(f"it answered {reply.status}", wait=_retry_after(reply.headers) if reply.status in (429, 503) else None)
        return reply


@contextmanager
def _opened(
    session: Any, url: str, headers: Mapping[str, str], silence: float
) -> Iterator[tuple[int, Mapping[str, str], Iterable[bytes]]]:
    """An answer whose body is not read yet, from either kind of session."""
    if callable(getattr(session, "stream", None)):
        with session.stream("GET", url, headers=headers, timeout=silence) as reply:
            yield reply.status_code, {k.lower(): v for k, v in reply.headers.items()}, reply.iter_bytes()
        return
    with session.get(url, headers=headers, timeout=(silence, silence), stream=True) as reply:
        yield reply.status_code, {k.lower(): v for k, v in reply.headers.items()}, reply.iter_content(4096)


def _fetch(
    url: str,
    headers: Mapping[str, str],
    *,
    span: tuple[int, int] | None,
    limit: int | None,
    silence: float,
    stop: threading.Event,
    received: Callable[[int], None],
) -> Reply:
    """One try. Reads no further than was asked for, whatever the server sends."""
    # By name: which modules re-export it to type checkers differs between releases.
    session = import_module("huggingface_hub.utils").get_session()
    with _opened(session, url, headers, silence) as (status, answered, chunks):
        skipped = span is not None and status == 200  # Range was ignored: the body begins at the file's start
        most = MOST_BODY if limit is None else limit
        if span is not None and status in (200, 206):
            most = span[1] if skipped else span[1] - span[0]
        parts: list[bytes] = []
        size = 0
        try:
            for chunk in chunks:
                if stop.is_set():
                    raise Fault("given up")
                parts.append(chunk)
                size += len(chunk)
                received(len(chunk))
                if size >= most:
                    break
        except Exception as error:
            fault = _as_fault(error, silence)
            if isinstance(fault, Fault) and fault.words == CUT:
                raise Fault(f"its answer broke off after {size:,} bytes") from None
            raise
    body = b"".join(parts)[:most]
    declared = answered.get("content-length", "")
    if declared.isdigit() and "content-encoding" not in answered:
        expected = min(int(declared), most)
        if len(body) < expected:
            raise Fault(f"its answer broke off after {len(body):,} of {expected:,} bytes")
    if skipped and span is not None:
        body = body[span[0] :]
    return Reply(status=status, headers=answered, body=body)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a 429 or 503 asks to wait: Retry-After (seconds or date), else the `t` of a RateLimit header that is used up."""
    told = headers.get("retry-after", "").strip()
    if told:
        try:
            return max(0.0, float(told))
        except ValueError:
            try:
                return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
            except (TypeError, ValueError):
                return None
    match = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d+)", headers.get("ratelimit", ""))
    return float(match[1]) if match else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        for inner in error.args:
            if isinstance(inner, BaseException):
                yield from _causes(inner)
        reason = getattr(error, "reason", None)
        if isinstance(reason, BaseException):
            yield from _causes(reason)
        error = error.__cause__ or error.__context__


def _as_fault(error: BaseException, silence: float) -> BaseException:
    """What an HTTP library raised, in words. Its own text is not repeated: it may hold a header or an address with a password."""
    if isinstance(error, Fault | KeyboardInterrupt | SystemExit | AccessError):
        return error
    chain = list(_causes(error))
    names = " ".join(cls.__name__ for e in chain for cls in type(e).__mro__)
    for cause in chain:
        if isinstance(cause, UnicodeEncodeError) or type(cause).__name__ in ("InvalidHeader", "LocalProtocolError"):
            return AccessError(
                "the token (HF_TOKEN) has characters that cannot be sent", hint="set HF_TOKEN to the token alone, as in hf_..."
            )
        if isinstance(cause, ssl.SSLError):
            return Fault("its certificate could not be checked", again=False)
        if isinstance(cause, socket.gaierror):
            return Fault("its name could not be resolved", again=False)
        if isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED:
            return Fault("connection refused")
        if isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return Fault("no route to it", again=False)
    if "OfflineModeIsEnabled" in names:
        return Fault("HF_HUB_OFFLINE is set", again=False)
    if any(word in names for word in ("UnsupportedProtocol", "InvalidURL", "MissingSchema", "InvalidSchema")):
        return Fault("HF_ENDPOINT is not an http(s) address", again=False)
    if "ProxyError" in names:
        return Fault("the proxy did not let the request through")
    if "Timeout" in names:
        return Fault(f"no answer within {silence:g} s")
    if "TooManyRedirects" in names:
        return Fault("it redirects in circles", again=False)
    if "ConnectError" in names:
        return Fault("no connection")
    if isinstance(error, OSError) or any(
        w in names for w in ("ReadError", "ProtocolError", "NetworkError", "RequestException", "TransportError")
    ):
        return Fault(CUT)
    if "DecodingError" in names or "ContentDecodingError" in names:
        return Fault("its answer was garbled")
    if type(error).__module__.partition(".")[0] in _FOREIGN:
        return Fault(f"the request failed ({type(error).__name__})")
    return error
