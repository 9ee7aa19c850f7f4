"""The text model inside a multimodal config: its own family's reading, put in its place in the larger checkpoint.

Nested configs are published as differences from their class defaults, so a field that stands in no file still has a known value:
the families' adapters state those defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gpufit.model import Role, Shard, WeightPart
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import STRUCTURE
from gpufit.sources.patterns import class_defaults
from gpufit.sources.read import decoder_of

VERSION = "transformers 5.24.0"


def open_text(config: Config, *names: str, model_type: str = "") -> Config:
    """The nested text config; `model_type` is meant where it names none. Raises `ConfigError` when no such object is there."""
    sub = config.sub(*names)
    if sub is None:
        raise config.missing(*names)
    said_again(config, sub)
    if model_type and not sub.has("model_type"):
        sub.data = {**sub.data, "model_type": model_type}
    return sub


def said_again(config: Config, sub: Config) -> None:
    """Marks outer fields that repeat the nested ones as read; one that differs is left for the guard to name.

    Files saved while a family moved its text fields inwards hold them at both levels; the published classes read the inner ones.
    """
    config.ignore(*(name for name, value in config.data.items() if name in sub.data and sub.data[name] == value))


def text_model(
    config: Config,
    *names: str,
    prefix: str = "",
    inside: str = "",
    model_type: str = "",
    tied: bool | None = None,
    reader: Callable[[Config], Decoder] | None = None,
) -> Decoder:
    """The decoder of the text model that `names` (default `text_config`) hold, with its module paths as the checkpoint has them.

    `prefix` replaces the decoder's own prefix ("model.language_model." for "model."), `inside` is put before every path, the head's
    included. `tied` overrides what the text config says of its head. `reader` replaces the family's own adapter.
    """
    sub = open_text(config, *(names or ("text_config",)), model_type=model_type)
    d = (reader or decoder_of)(sub)
    if tied is not None:
        set_tied(d, tied)
    relocate(d, prefix=prefix, inside=inside)
    return d


def outer_tied(config: Config, default: bool | Default, *names: str) -> bool:
    """Whether embedding and head are one: as the outer config says, else as the text config does, else the outer class."""
    if config.has("tie_word_embeddings"):
        return config.flag("tie_word_embeddings")
    sub = config.sub(*(names or ("text_config",)))
    if sub is not None and sub.has("tie_word_embeddings"):
        return sub.flag("tie_word_embeddings")
    return config.flag("tie_word_embeddings", default=default)


def set_tied(d: Decoder, tied: bool) -> None:
    """Makes the decoder's output head one with its embedding, or gives it one of its own."""
    if tied:
        d.parts[:] = [p for p in d.parts if not (p.role is Role.HEAD and p.columns is not None)]
    elif d.tied:
        d.part("output head", Role.HEAD, "/lm_head", d.need(d.vocab), d.hidden, shard=Shard.VOCAB, linear=True)
    d.tied = tied


def relocate(d: Decoder, *, prefix: str = "", inside: str = "") -> None:
    """Gives the decoder's parts the module paths that they have inside a larger checkpoint."""
    old = d.prefix

    def moved(part: WeightPart) -> WeightPart:
        path = part.module
        if prefix and path.startswith(old):
            path = prefix + path[len(old) :]
        return replace(part, module=inside + path)

    d.parts[:] = map(moved, d.parts)
    d.draft_parts[:] = map(moved, d.draft_parts)
    d.prefix = inside + (prefix or old)


def flat_or_nested(
    config: Config,
    reader: Callable[[Config], Decoder],
    *,
    tied: bool,
    source: str,
    defaults: Mapping[str, Default],
    prefix: str = "",
) -> Decoder:
    """The text model of a family that once wrote its fields at the top level and now writes them into `text_config`.

    `defaults` are those of the family's text class, `tied` is that of `source` where neither level says. A text config on its own
    is read as it stands.
    """
    nested = config.sub("text_config")
    level = config if nested is None else nested
    if nested is not None:
        said_again(config, nested)
        if not config.flag("use_sliding_window"):
            config.ignore("sliding_window", "max_window_layers")
    level.fall_back({n: v for n, v in defaults.items() if level.path or n not in STRUCTURE})
    d = reader(level)
    if nested is None and config.path:
        return d
    set_tied(d, outer_tied(config, Default(value=tied, source=source)))
    relocate(d, prefix=prefix)
    return d


def read_flat(
    config: Config, reader: Callable[[Config], Decoder], *, inside: str = "", tied: bool | None = None, **changed: object
) -> Decoder:
    """The text model whose fields stand at the top level of a multimodal file, read by its own family's reader.

    The file's `architectures` names the multimodal class, so it is kept from the reader; `changed` fields take other values for it.
    """
    whole = config.data
    config.data = {**whole, "architectures": [], **changed}
    try:
        d = reader(config)
    finally:
        config.data = whole
    if tied is not None:
        set_tied(d, tied)
    relocate(d, inside=inside)
    return d


def fixed(source: str, **values: object) -> Config:
    """Shapes that no config file holds because the published code fixes them: read like a config, with `source` as their origin."""
    shapes = Config({}, origin=source)
    shapes.fall_back(class_defaults(source, **values))
    return shapes
