"""One cheap question to the Hub: does a cached answer still hold? Standard library only, so a cached answer needs no client."""

from __future__ import annotations

import threading
import time
from enum import Enum
from urllib.parse import quote

from gpufit.sources import hub_env
from gpufit.sources.background import Overdue, in_time

SECONDS = 3.0
"""How long a warm answer waits to be confirmed."""


class Probe(Enum):
    """What came of it: the cached answer holds, it may not (ask in full), or nobody answered."""

    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"


def probe(id: str, revision: str, file: str, *, sha: str, etag: str, seconds: float | None = None) -> tuple[Probe, str]:
    """Compares the commit (and the file's ETag) that the Hub has now with those of a cached answer; with words when nobody answered.

    Redirects are not followed, so the token goes nowhere else: the Hub names the commit on the redirect itself.
    """
    seconds = SECONDS if seconds is None else seconds
    ends = time.monotonic() + seconds

    def work(stop: threading.Event) -> tuple[Probe, str]:
        return _ask(id, revision, file, sha=sha, etag=etag, seconds=seconds)

    try:
        return in_time(work, lambda: ends - time.monotonic())
    except Overdue:
        return Probe.GONE, f"did not answer within {seconds:g} s"


def _ask(id: str, revision: str, file: str, *, sha: str, etag: str, seconds: float) -> tuple[Probe, str]:
    import ssl
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    class Stay(urllib.request.HTTPRedirectHandler):
        """Takes a redirect for an answer."""

        def redirect_request(self, *args: object, **more: object) -> None:
            return None

    headers = {"User-Agent": "gpufit"}
    if token := hub_env.token():
        headers["Authorization"] = f"Bearer {token}"
    url = f"{hub_env.endpoint()}/{quote(id)}/resolve/{quote(revision, safe='')}/{quote(file)}"
    try:
        request = urllib.request.Request(url, method="HEAD", headers=headers)
        with urllib.request.build_opener(Stay).open(request, timeout=seconds) as reply:
            status, found = reply.status, reply.headers
    except urllib.error.HTTPError as error:
        status, found = error.code, error.headers
        error.close()
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLError | ValueError):
            return Probe.CHANGED, ""  # the client may know other certificates
        if isinstance(error.reason, TimeoutError):
            return Probe.GONE, f"did not answer within {seconds:g} s"
        return Probe.GONE, "refused the connection" if isinstance(error.reason, ConnectionRefusedError) else "could not be reached"
    except TimeoutError:
        return Probe.GONE, f"did not answer within {seconds:g} s"
    except (OSError, HTTPException):
        return Probe.GONE, "cut the connection"
    except ValueError:  # an address or a token that the standard library cannot send: the full question will say so
        return Probe.CHANGED, ""
    if status in (408, 429) or status >= 500:
        return Probe.GONE, f"answered {status}"
    if status in (401, 403, 404):
        return Probe.CHANGED, ""  # the full question will say why
    commit = found.get("X-Repo-Commit")
    seen = (found.get("ETag") or "").removeprefix("W/").strip('"')
    if commit is None:  # a mirror without the Hub's headers, or a page that is not the Hub's at all
        if seen and seen == etag:
            return Probe.SAME, ""
        return (Probe.GONE, "gave no usable answer") if "html" in found.get("Content-Type", "") else (Probe.CHANGED, "")
    if commit == sha and (status // 100 == 3 or not etag or not seen or seen == etag):
        return Probe.SAME, ""
    return Probe.CHANGED, ""
