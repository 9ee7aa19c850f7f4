"""Sliding-window attention: only the last `window` tokens are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpufit.layers.full import Full
from gpufit.quantity import Q, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding(Full):
    """Attention over the last `window` tokens (unit token/sequence)."""

    kind: ClassVar[str] = "sliding"
    title: ClassVar[str] = "sliding-window"
    grows: ClassVar[bool] = False

    window: Q

    def tokens_kept(self, context: Q) -> Q:
        """The context, but never more than the window."""
        return least(context, self.window).as_step("n_w", "tokens kept in a sliding-window layer")
