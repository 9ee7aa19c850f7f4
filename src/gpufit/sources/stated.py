"""Class defaults that an answer owns up to: a reader with the defaults of its published class behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import STRUCTURE
from gpufit.sources.states import say_defaults

Reader = Callable[[Config], Decoder]


def with_defaults(defaults: Mapping[str, Default]) -> Callable[[Reader], Reader]:
    """Makes a reader fall back on class defaults for absent fields, and say in the answer which ones it took.

    A file of its own always names its width, layers and heads: there an absence means that it is not whole, and is refused.
    """

    def decorate(read: Reader) -> Reader:
        def reading(config: Config) -> Decoder:
            known = defaults if config.path else {name: value for name, value in defaults.items() if name not in STRUCTURE}
            config.fall_back(known)
            decoder = read(config)
            say_defaults(decoder)
            return decoder

        reading.__doc__ = read.__doc__
        return reading

    return decorate
