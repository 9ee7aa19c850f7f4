"""What the environment says about the Hub, read at each question and without importing its client.

The names and their precedence are those of huggingface_hub (environment variables page of its documentation).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = ("1", "on", "yes", "true")


def _on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in _TRUE


def endpoint() -> str:
    """The Hub's address: HF_ENDPOINT, else the public one. No slash at the end."""
    return os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT


def shown_endpoint() -> str:
    """The Hub's address as it may be printed: without a user name or password in it."""
    parts = urlsplit(endpoint())
    host = parts.hostname or endpoint()
    return host if parts.port is None else f"{host}:{parts.port}"


def is_offline() -> bool:
    """Whether the environment forbids asking the Hub."""
    return _on("HF_HUB_OFFLINE") or _on("TRANSFORMERS_OFFLINE")


def _path(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))


def home() -> Path:
    """HF_HOME, else huggingface/ in the user's cache folder."""
    if told := os.environ.get("HF_HOME"):
        return _path(told)
    return _path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"


def hub_cache() -> Path:
    """The folder in which the Hub's client keeps downloaded repositories."""
    told = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _path(told) if told else home() / "hub"


def answer_cache() -> Path:
    """The folder of gpufit's own small answers.

    HF_ASSETS_CACHE, the client's place for what other libraries keep; else below HF_HOME. When only HF_HUB_CACHE is set, it says where
    there is room to write, so the answers go beside the repositories there.
    """
    told = os.environ.get("HF_ASSETS_CACHE") or os.environ.get("HUGGINGFACE_ASSETS_CACHE")
    if told:
        return _path(told) / "gpufit"
    if not os.environ.get("HF_HOME") and (os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")):
        return hub_cache() / ".locks" / "gpufit"
    return home() / "assets" / "gpufit"


def token() -> str | None:
    """The token that the client would send by itself: HF_TOKEN, else the one stored by its login."""
    if _on("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if found := os.environ.get(name, "").strip():
            return found
    path = _path(os.environ.get("HF_TOKEN_PATH") or str(home() / "token"))
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


_SECRET = re.compile(r"\b(hf_|api_org_)[A-Za-z0-9_-]{3,}|(?i:bearer)\s+\S+|(?<=://)[^/\s@]+@")


def scrubbed(text: str) -> str:
    """A text from elsewhere without tokens, authorisation headers or passwords in addresses."""
    found = token()
    if found:
        text = text.replace(found, "***")
    return _SECRET.sub("***", text)
