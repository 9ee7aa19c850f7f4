"""Chunked local attention: tokens attend within their own chunk of fixed length (Llama 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.full import Full
from gpufit.quantity import Q, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked(Full):
    """Attention within chunks of `chunk` tokens (unit token/sequence): at most one chunk is needed at a time."""

    kind: ClassVar[str] = "chunked"
    title: ClassVar[str] = "chunked local"
    grows: ClassVar[bool] = False

    chunk: Q

    def tokens_kept(self, context: Q) -> Q:
        """The context, but never more than one chunk."""
        return least(context, self.chunk).as_step("n_c", "tokens kept in a chunked layer")
