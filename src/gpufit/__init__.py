"""Which language models fit on which GPUs, and why: the public names, each imported on first use.

import gpufit
found = gpufit.answer("llama-3.3-70b", gpu="h100-sxm:4", context=8192)
found.total_sequences, found.placement, found.capacity.pool
for step in gpufit.explain("llama-3.3-70b", gpu="h100-sxm:4"): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpufit._version import __version__

if TYPE_CHECKING:
    from gpufit.api import answer, explain, gpus, kv, models
    from gpufit.errors import GpufitError

__all__ = ["GpufitError", "__version__", "answer", "explain", "gpus", "kv", "models"]

_HOMES = {"answer": "api", "explain": "api", "gpus": "api", "kv": "api", "models": "api", "GpufitError": "errors"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gpufit' has no attribute {name!r}")
    return getattr(import_module(f"gpufit.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
