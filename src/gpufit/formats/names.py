"""Module names as quantisers write them: which weight parts an ignore list, a target list or a per-module map means.

Tools write one module in several ways: with or without the path of the text model in front, as the fused module that an engine builds
or as the parts that a file holds, with `*` or as a regular expression. The rules here follow what the tools themselves do
(transformers 5.24 `should_convert_module`, torchao `should_skip`, modelopt's trees with a closing `*`, compressed-tensors' `re:`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from gpufit.errors import ConfigError
from gpufit.model import WeightPart

_TEXT_ROOTS = frozenset({"model", "language_model", "text_model", "backbone", "transformer", "thinker"})
"""First components of a path that say no more than "the text model"."""

FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "w13": ("w1", "w3"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
    "fused_wqa_wkv": ("wq_a", "wkv"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
"""Modules that engines and some classes fuse, to the modules they consist of."""

ALSO: dict[str, tuple[str, ...]] = {
    "w1": ("gate_proj",), "w2": ("down_proj",), "w3": ("up_proj",),
    "gate_proj": ("w1",), "down_proj": ("w2",), "up_proj": ("w3",),
}  # fmt: skip
"""Names that the same matrix of a gated MLP goes by in published files and in transformers' classes."""

_PARENTS: dict[str, tuple[str, ...]] = {
    part: tuple(fused for fused, parts in FUSED.items() if part in parts) for parts in FUSED.values() for part in parts
}
_EXPERT = re.compile(r"\bexperts\.(\d+)\b")

Path = tuple[str, ...]


def _split(name: str) -> Path:
    return tuple([c for c in name.split(".") if c])


def rootless(path: Path) -> Path:
    """The path without the components that only say "the text model"."""
    start = 0
    while start < len(path) - 1 and path[start] in _TEXT_ROOTS:
        start += 1
    return path[start:]


@lru_cache(maxsize=65536)
def module_path(module: str, layer: int | None) -> str:
    """The published path of a part in one layer, the expert's number left out."""
    path = module.replace("experts.{e}", "experts")
    return path if layer is None else path.replace("{i}", str(layer))


@lru_cache(maxsize=65536)
def _spellings(path: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The ways to name one module (any may match), and its parts where it is a fused one (all must match)."""
    whole = _split(path)
    head, last = whole[:-1], whole[-1]
    names = [whole, *((*head, p) for p in _PARENTS.get(last, ())), *((*head, a) for a in ALSO.get(last, ()))]
    parts = tuple((*head, p) for p in FUSED.get(last, ()))
    return tuple(names), parts


class _Paths:
    """Plain names of one kind, found by the component that they begin with."""

    def __init__(self) -> None:
        self.keys: set[Path] = set()
        self.lengths: dict[str, list[int]] = {}
        self.numbers: dict[Path, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: Path) -> None:
        """One more name."""
        self.keys.add(key)
        lengths = self.lengths.setdefault(key[0], [])
        if len(key) not in lengths:
            lengths.append(len(key))
            lengths.sort()
        bare = _unnumbered(key)
        if bare != key:
            self.numbers.setdefault(bare, set()).update([c for c in key if c.isdigit()])

    def at(self, path: Path, start: int) -> Iterator[Path]:
        """The names that stand in a path from one component on, the shortest first."""
        for length in self.lengths.get(path[start], ()):
            key = path[start : start + length]
            if len(key) == length and key in self.keys:
                yield key

    def templates_in(self, path: Path) -> Iterator[tuple[Path, set[str]]]:
        """The pieces of a path that names write with numbers in them, and those numbers; `{i}` and `{e}` stand for any number."""
        if self.numbers:
            bare = _unnumbered(path)
            for start in range(len(bare)):
                for end in range(start + 1, len(bare) + 1):
                    found = self.numbers.get(bare[start:end])
                    if found is not None:
                        yield bare[start:end], found


def _unnumbered(path: Path) -> Path:
    return tuple(["{i}" if c == "{e}" or c.isdigit() else c for c in path])


class Told(NamedTuple):
    """What a list of names sees of a layer's number: the number itself, how long it is, and which of these sets it is in."""

    number: bool = False
    length: bool = False
    numbers: frozenset[frozenset[str]] = frozenset()


EACH = Told(number=True)


@lru_cache(maxsize=4096)
def alike(layers: tuple[int, ...], told: frozenset[Told]) -> tuple[tuple[int, ...], ...]:
    """The layers in groups that look the same to all of these lists, in the order of their first layers."""
    if any(t.number for t in told):
        return tuple([(layer,) for layer in layers])
    sets = frozenset().union(*[t.numbers for t in told])
    length = any(t.length for t in told)
    if not sets and not length:
        return (layers,)
    groups: dict[tuple[int, ...], list[int]] = {}
    for layer in layers:
        text = str(layer)
        groups.setdefault((len(text) if length else 0, *[text in numbers for numbers in sets]), []).append(layer)
    return tuple([tuple(group) for group in groups.values()])


def _sees_no_digit(pattern: str) -> bool:
    """Whether an expression or glob takes every digit for every other, so that only the length of a number can matter.

    True where it names no digit, no class but all digits, and repeats nothing that it found before.
    """
    left = pattern.replace("[0-9]", "")
    return not any(c.isdigit() or c == "[" for c in left) and not any(s in left for s in ("(?P=", "\\N"))


class Names:
    """A list of module names, globs and `re:` expressions, asked about one module at a time.

    A plain name means the module or the tree below it: it matches where its components stand side by side in a module's path. A name
    that begins with the text model's path is tied to the beginning. Raises `ConfigError` when a list names some experts of a layer and
    not others: nothing here stores the experts of one matrix in two formats.
    """

    def __init__(self, patterns: Iterable[str], *, regex: bool = False) -> None:
        self.anchored = _Paths()
        self.loose = _Paths()
        self.globs: list[str] = []
        self.regexes: list[re.Pattern[str]] = []
        self.experts: dict[Path, set[int]] = {}
        self._blind: bool | None = None
        for text in patterns:
            if regex:
                self.regexes.append(_compiled(text, text))
            elif text.startswith("re:"):
                self.regexes.append(_compiled(text[3:], text))
            else:
                self._add(text)

    def __bool__(self) -> bool:
        return bool(self.anchored or self.loose or self.globs or self.regexes)

    def _add(self, text: str) -> None:
        bare = text[:-2] if text.endswith(".*") else text[:-1] if text.endswith("*") else text
        if "*" in bare or "?" in bare or "[" in bare:
            self.globs += [bare, bare + ".*"]
            return
        found = _EXPERT.search(bare) if "experts" in bare else None
        path = _split(_EXPERT.sub("experts", bare) if found else bare)
        if not path:
            return
        short = rootless(path)
        key = short if short != path else path
        (self.anchored if short != path else self.loose).add(key)
        if found:
            self.experts.setdefault(key, set()).add(int(found.group(1)))

    def told_apart(self, module: str) -> Told:
        """What this list can see of a layer's number in a module: layers that look the same are meant alike, so one stands for all.

        Plain names see a number only where they write one; expressions and globs without a digit of their own see no more of a number
        than how long it is. Where that is not certain every layer answers for itself.
        """
        if self._blind is None:
            self._blind = not self.experts and all(map(_sees_no_digit, (*self.globs, *(r.pattern for r in self.regexes))))
        split = _split(module.replace("experts.{e}", "experts"))
        if not self._blind or any("{i}" in c and c != "{i}" for c in split):
            return EACH
        names, parts = _spellings(".".join(split))
        at = [t for path in (*names, *parts) for t in (*self.anchored.templates_in(rootless(path)), *self.loose.templates_in(path))]
        if any(t.count("{i}") > 1 for t, _ in at):
            return EACH
        return Told(length=bool(self.globs or self.regexes), numbers=frozenset([frozenset(numbers) for _, numbers in at]))

    def match(self, part: WeightPart, layer: int | None) -> bool:
        """Whether the list means this part in this layer; a part that stands for several numbered modules must be meant whole."""
        path = module_path(part.module, layer)
        if "{e}" not in path:
            return self._meant(path, part)
        count = int(part.copies) if part.copies is not None else 1
        hits = sum(self._meant(path.replace("{e}", str(e)), part) for e in range(count))
        if 0 < hits < count:
            raise ConfigError(
                f"quantization_config names {hits} of the {count} modules {part.module.replace('{e}', 'N')}",
                hint="modules of one kind in different formats are not supported there from the config alone; use the file sizes",
            )
        return hits == count

    def _meant(self, path: str, part: WeightPart) -> bool:
        names, parts = _spellings(path)
        return any(self._one(n, part) for n in names) or (bool(parts) and all(self._one(p, part) for p in parts))

    def _one(self, path: Path, part: WeightPart) -> bool:
        return self._named(path, part) or self._globbed(path) or self._expressed(path, part)

    def _named(self, path: Path, part: WeightPart) -> bool:
        if self.anchored and any(self._whole(key, part) for key in self.anchored.at(rootless(path), 0)):
            return True
        return bool(self.loose) and any(self._whole(key, part) for start in range(len(path)) for key in self.loose.at(path, start))

    def _whole(self, key: Path, part: WeightPart) -> bool:
        """True for a name without an expert's number, or with the numbers of all experts; refused for some of them."""
        numbers = self.experts.get(key)
        if numbers is None:
            return True
        of = int(part.copies) if part.copies is not None else 1
        if len(numbers) < of:
            raise ConfigError(
                f"quantization_config names {len(numbers)} of the {of} experts in {'.'.join(key)}",
                hint="experts of one layer in different formats are not supported from the config alone; use the file sizes",
            )
        return True

    def _globbed(self, path: Path) -> bool:
        if not self.globs:
            return False
        texts = {".".join(path), ".".join(rootless(path)), "model." + ".".join(rootless(path))}
        return any(fnmatchcase(t, g) for t in texts for g in self.globs)

    def _expressed(self, path: Path, part: WeightPart) -> bool:
        if not self.regexes:
            return False
        bare = ".".join(rootless(path))
        texts = {".".join(path), bare, "model." + bare, "language_model.model." + bare, "model.language_model." + bare}
        count = int(part.copies) if "experts.{e}" in part.module and part.copies is not None else 0
        if count:
            return self._experts_expressed(texts, count)
        return any(r.match(t) for t in texts for r in self.regexes)

    def _experts_expressed(self, texts: set[str], count: int) -> bool:
        """The same for experts, whose numbers an expression may name."""
        for r in self.regexes:
            numbers = range(count) if _names_numbers(r.pattern) else range(1)
            hits = sum(any(r.match(t.replace("experts", f"experts.{e}", 1)) for t in texts) for e in numbers)
            if hits == len(numbers) or any(r.match(t) for t in texts):
                return True
            if hits:
                raise ConfigError(
                    f"quantization_config: {r.pattern!r} names {hits} of {count} experts",
                    hint="experts of one layer in different formats are not supported from the config alone; use the file sizes",
                )
        return False


@lru_cache(maxsize=4096)
def _names_numbers(pattern: str) -> bool:
    """Whether an expression says something about what follows "experts"."""
    after = pattern.partition("experts")[2]
    return bool(re.search(r"\d|\[", after.replace(r"\d+", "").replace("[0-9]+", "").replace(r"\d*", "")))


def _compiled(text: str, shown: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"quantization_config has {shown!r}, which is no regular expression: {error}", hint="check the config.json"
        ) from None
