"""Multi-token-prediction layers: parts and layers of a draft are gathered apart from the model's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpufit.model import Role, Shard
from gpufit.sources.decoder import Decoder


@contextmanager
def drafting(d: Decoder) -> Iterator[Decoder]:
    """While open, parts and layers that are added to the decoder go to its draft."""
    parts, groups = d.parts, d.groups
    d.parts, d.groups = d.draft_parts, d.draft_groups
    try:
        yield d
    finally:
        d.parts, d.groups = parts, groups


def draft_layers(d: Decoder, *names: str) -> tuple[int, ...]:
    """The layer numbers of the draft, which follow the model's own; empty where the config names none."""
    own = int(d.num_layers)
    return tuple(range(own, own + d.config.integer(*names, default=0)))


def draft_joint(d: Decoder, layers: tuple[int, ...], *, module: str = "layers.{i}") -> None:
    """What a DeepSeek draft layer has beside a decoder layer: two norms, a projection that joins embedding and state, a last norm.

    Embedding and output head are repeated in published files but shared with the model when loaded, so they stand in no part:
    `extras["draft_tables"]` counts their elements.
    """
    if layers and d.vocab is not None:
        d.extras["draft_tables"] = len(layers) * (2 * d.vocab * d.hidden)
    d.norm("embedding norm", f"{module}.enorm", layers=layers)
    d.norm("state norm", f"{module}.hnorm", layers=layers)
    d.part("joining projection", Role.DRAFT, f"{module}.eh_proj", d.hidden, 2 * d.hidden, layers=layers, shard=Shard.REPLICATED)
    d.norm("draft norm", f"{module}.shared_head.norm", layers=layers)
