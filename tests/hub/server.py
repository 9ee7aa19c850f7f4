"""A Hub for tests, in this process and on the loopback: a few repositories, and faults on demand. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit


def safetensors(tensors: Mapping[str, tuple[str, Iterable[int], int]]) -> bytes:
    """The head of a safetensors file: tensors by name as (dtype, shape, bytes of one element)."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, width) in tensors.items():
        size = width
        for n in shape:
            size *= n
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@dataclass
class File:
    """A served file: `head` is real, the rest up to `size` is zeros, which stand for weights."""

    head: bytes
    size: int

    @property
    def etag(self) -> str:
        """The hash of what is real."""
        return hashlib.sha1(self.head).hexdigest()

    def part(self, start: int, end: int) -> bytes:
        """Bytes [start, end)."""
        real = self.head[start:end]
        return real + bytes(max(0, min(end, self.size) - start - len(real)))


@dataclass
class Repository:
    """One model: its files, whether it is gated, and the counts that the API tells."""

    files: dict[str, File] = field(default_factory=dict)
    gated: bool = False
    parameters: dict[str, int] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: bytes | str | Mapping[str, Any], *, weights: int = 0) -> Repository:
        """Puts a file there; `weights` bytes of zeros follow its content."""
        body = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
        self.files[name] = File(head=body, size=len(body) + weights)
        return self

    @property
    def sha(self) -> str:
        """The commit: another one whenever a file changes."""
        return hashlib.sha1("".join(f"{n}{f.etag}{f.size}" for n, f in sorted(self.files.items())).encode()).hexdigest()


@dataclass
class Row:
    """One request as it was answered."""

    method: str
    path: str
    status: int
    token: str
    weights: int = 0


class LittleHub:
    """The server. `fault` and `times` say what the next requests meet; `rows` what was asked.

    Faults: "" (none), "503", "429" (with `retry_after`), "truncated", "html", "reset", "silent", "drip".
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.token = "hf_goodtokengoodtoken"
        self.fault = ""
        self.times = 0
        self.retry_after = "1"
        self.only = ""
        self.rows: list[Row] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.listen()

    @property
    def url(self) -> str:
        """Its address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def listen(self) -> None:
        """Begins to listen, on the same port as before."""
        handler = type("Bound", (Answer,), {"hub": self})

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that went away are no news."""

        self._server = Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def refuse(self) -> None:
        """Stops listening: clients get "connection refused"."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> LittleHub:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.released.set()
        self.refuse()

    def fail(self, fault: str, times: int = 1_000_000, *, only: str = "", retry_after: str = "1") -> None:
        """The next `times` requests (whose path matches `only`) meet a fault."""
        self.fault, self.times, self.only, self.retry_after = fault, times, only, retry_after

    def heal(self) -> None:
        """No faults any more, and no record of what was."""
        self.fail("", 0)
        self.rows.clear()

    def meets(self, path: str) -> str:
        """The fault that this request meets."""
        with self._lock:
            if self.times > 0 and re.search(self.only, path):
                self.times -= 1
                return self.fault
            return ""

    @property
    def weights(self) -> int:
        """Bytes of weights that anybody asked for."""
        return sum(r.weights for r in self.rows)


class Answer(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: ClassVar[LittleHub]

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        """As GET without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Meets the fault that is due, or answers."""
        hub = self.hub
        fault = hub.meets(self.path)
        self.asked = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if fault in ("reset", "silent"):
            hub.rows.append(Row(self.command, self.path, 0, self.asked))
            if fault == "silent":
                hub.released.wait(60)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif fault == "503":
            self.send(503, b'{"error":"busy"}')
        elif fault == "429":
            self.send(429, b'{"error":"slow down"}', {"Retry-After": hub.retry_after})
        elif fault == "html":
            self.send(200, b"<!doctype html><title>Sign in</title>", {"Content-Type": "text/html"})
        else:
            self.route(fault)

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, fault: str = "", weights: int = 0
    ) -> None:
        """Status, headers and body, cut or dripping where the fault says so."""
        self.hub.rows.append(Row(self.command, self.path, status, self.asked, weights))
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "truncated":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif fault == "drip":
            for i in range(len(body)):
                self.wfile.write(body[i : i + 1])
                self.wfile.flush()
                if self.hub.released.wait(0.2):
                    return
        else:
            self.wfile.write(body)

    def refuse(self, status: int, code: str, message: str = "") -> None:
        """A refusal with the Hub's headers."""
        self.send(
            status, json.dumps({"error": message or code}).encode(), {"X-Error-Code": code, "X-Error-Message": message or code}
        )

    def route(self, fault: str) -> None:
        """The API's metadata, or a file."""
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        if self.asked and self.asked != self.hub.token:
            self.send(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
            return
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            found = self.repository(match[1], match[2])
            if found is not None:
                self.send(200, json.dumps(self.info(match[1], found[0], found[1], parse_qs(parts.query))).encode(), fault=fault)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            found = self.repository(match[1], match[2])
            if found is not None:
                self.file(found[0], found[1], match[3], fault)
        else:
            self.refuse(404, "", "no such page")

    def repository(self, id: str, revision: str | None) -> tuple[Repository, str] | None:
        """A repository and the commit that a revision names, or None after a refusal."""
        found = self.hub.repositories.get(id)
        if found is None:
            self.refuse(404 if self.asked else 401, "RepoNotFound", "Repository not found")
            return None
        named = {"main": found.sha, **found.revisions}
        sha = {**{v: v for v in named.values()}, **named}.get(revision or "main")
        if sha is None:
            self.refuse(404, "RevisionNotFound")
            return None
        return found, sha

    def info(self, id: str, found: Repository, sha: str, query: Mapping[str, list[str]]) -> dict[str, Any]:
        """What the API tells of a repository."""
        sizes = query.get("blobs") == ["true"]
        siblings = [{"rfilename": n, **({"size": f.size} if sizes else {})} for n, f in sorted(found.files.items())]
        info: dict[str, Any] = {"id": id, "sha": sha, "gated": "manual" if found.gated else False, "siblings": siblings}
        if "config.json" in found.files:
            with contextlib.suppress(ValueError):
                info["config"] = {"model_type": json.loads(found.files["config.json"].head).get("model_type")}
        if found.parameters:
            info["safetensors"] = {"parameters": found.parameters, "total": sum(found.parameters.values())}
        return info

    def file(self, found: Repository, sha: str, name: str, fault: str) -> None:
        """A file or a part of it."""
        if found.gated and not self.asked:
            self.refuse(401, "GatedRepo", "Access to this model is restricted")
            return
        entry = found.files.get(name)
        if entry is None:
            self.refuse(404, "EntryNotFound")
            return
        headers = {"X-Repo-Commit": sha, "ETag": f'"{entry.etag}"', "Accept-Ranges": "bytes"}
        start, end, status = 0, entry.size, 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
            start, end, status = int(match[1]), min(entry.size, int(match[2]) + 1), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
        body = b"" if self.command == "HEAD" else entry.part(start, end)
        weights = max(0, end - max(start, len(entry.head))) if self.command == "GET" else 0
        self.send(status, body, headers, fault=fault, weights=weights)


def seconds(started: float) -> float:
    """Time since a moment of time.monotonic()."""
    return time.monotonic() - started
