"""How a checkpoint stores its parts: rules by module name, and the plain dtype for whatever no rule takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpufit.formats.names import Names, alike
from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.model import TOWERS, Role, WeightPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which parts a quantiser looks at, before any list of names.

    All look at linear layers. `head` is the output head, `embeddings` the embedding tables, `towers` the vision and audio parts;
    `blocks_only` leaves out what stands outside the decoder layers; `every_matrix` takes routers and the like too; `experts_only`
    takes routed experts alone. `multiple` leaves out matrices whose input features are no multiple of it. `recast` takes matrices that the
    original checkpoint keeps in a dtype of their own: the converter cast them first. `routers` False leaves routers out of `every_matrix`.
    """

    head: bool = False
    embeddings: bool = False
    towers: bool = True
    blocks_only: bool = False
    every_matrix: bool = False
    experts_only: bool = False
    multiple: int | None = None
    recast: bool = False
    routers: bool = True

    def covers(self, part: WeightPart) -> bool:
        """Whether the quantiser looks at this part."""
        if part.columns is None or part.buffer or (part.dtype is not None and not self.recast):
            return False
        if part.role is Role.ROUTER and not self.routers:
            return False
        if self.multiple is not None and int(part.columns) % self.multiple:
            return False
        if self.experts_only:
            return part.role is Role.ROUTED_EXPERTS
        if part.role is Role.EMBEDDING:
            return self.embeddings
        if part.role is Role.HEAD:
            return self.head
        if part.role in TOWERS and not self.towers:
            return False
        if self.blocks_only and (not part.layers or part.role in TOWERS):
            return False
        return part.linear or self.every_matrix


Spread = tuple[tuple[TensorFormat, int], ...]
"""The formats that one part has over its layers, in the order in which they first appear, each with its number of layers."""


def _added(found: Iterable[tuple[TensorFormat, int]]) -> Spread:
    counts: dict[int, tuple[TensorFormat, int]] = {}
    for chosen, layers in found:
        counts[id(chosen)] = (chosen, counts.get(id(chosen), (chosen, 0))[1] + layers)
    return tuple(counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Modules by name and the format they have; `format` None: they keep the plain dtype. `head` reaches the output head by name."""

    names: Names
    format: TensorFormat | None
    scope: Scope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByModule:
    """A recipe: the first rule that names a part decides, then `default`, then the plain dtype.

    `scope` says which parts `default` and rules without a scope of their own may take. `default` None: only named modules are
    quantised.
    """

    plain: TensorFormat
    scope: Scope
    rules: tuple[Rule, ...] = ()
    default: TensorFormat | None = None
    known: dict[tuple[str, int | None], TensorFormat] = field(default_factory=dict, compare=False, repr=False)
    spread: dict[tuple[str, tuple[int, ...]], Spread] = field(default_factory=dict, compare=False, repr=False)

    def stored(self, part: WeightPart) -> Spread:
        """The formats that this part has over its layers, each with the number of layers that have it.

        Layers that no rule tells apart are decided once.
        """
        if not part.layers or part.columns is None or part.buffer:
            return ((self.format_of(part, part.layers[0] if part.layers else None), max(1, len(part.layers))),)
        key = (part.module, part.layers)
        found = self.spread.get(key)
        if found is None:
            told = frozenset([r.names.told_apart(part.module) for r in self.rules if (r.scope or self.scope).covers(part)])
            groups = alike(part.layers, told)
            found = self.spread[key] = _added([(self.format_of(part, layers[0]), len(layers)) for layers in groups])
        return found

    def format_of(self, part: WeightPart, layer: int | None) -> TensorFormat:
        """The storage format of this part in this layer."""
        own = part.dtype if part.columns is None or part.buffer or not self.scope.recast else None
        if part.columns is None or part.buffer or own is not None:
            return PLAIN[own] if own is not None else self.plain
        key = (part.module, layer)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._decided(part, layer)
        return found

    def _decided(self, part: WeightPart, layer: int | None) -> TensorFormat:
        covered = self.scope.covers(part)
        for rule in self.rules:
            if (rule.scope.covers(part) if rule.scope is not None else covered) and rule.names.match(part, layer):
                return rule.format or self.plain
        return self.default if covered and self.default is not None else self.plain


@dataclass(frozen=True, slots=True, kw_only=True)
class AllPlain:
    """Every part in the plain dtype, but those that the checkpoint keeps in a dtype of their own."""

    plain: TensorFormat

    def format_of(self, part: WeightPart, layer: int | None) -> TensorFormat:
        """The storage format of this part in this layer."""
        return self.plain if part.dtype is None else PLAIN[part.dtype]

    def stored(self, part: WeightPart) -> Spread:
        """One format in all its layers."""
        return ((self.format_of(part, None), max(1, len(part.layers))),)
