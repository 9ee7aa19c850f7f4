"""What encoder-decoders have in common: an encoder beside the decoder, and decoder layers that keep the encoder's tokens too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.errors import ConfigError
from gpufit.layers.cross import Cross
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder


def top_of(config: Config) -> str:
    """What the class puts on top: "lm", "sequence", or "none"; "encoder" for the encoder alone."""
    listed = config.items("architectures") or ["ForConditionalGeneration"]
    name = str(listed[0])
    for end, word in (
        ("ForConditionalGeneration", "lm"), ("MTModel", "lm"), ("WithLMHeadModel", "lm"), ("ForSequenceClassification", "sequence"),
        ("EncoderModel", "encoder"), ("Model", "none"),
    ):  # fmt: skip
        if name.endswith(end):
            return word
    raise ConfigError(
        f"{config.where('architectures')} is {name}", hint="encoder-decoders with an output head, a classifier or neither"
    )


def keep(d: Decoder, encoder_tokens: Q) -> None:
    """The decoder's two caches: its own tokens, and the encoder's."""
    heads, dim = d.need(d.attention_heads), d.need(d.head_dim)
    d.full(d.all)
    d.layer(Cross(attention_heads=heads, kv_heads=heads, head_dim=dim, encoder_tokens=encoder_tokens), d.all)


@dataclass(kw_only=True)
class Encoder:
    """The encoder of a model under construction: its blocks are parts with copies, as they are no decoder layers.

    `at` is the module path of a block, with `{e}` for its number.
    """

    decoder: Decoder
    depth: Q
    at: str

    def matrix(self, module: str, rows: Q, columns: Q, *, bias: bool, shard: Shard, heads: Q | None = None) -> None:
        """One linear layer in each block."""
        name = f"encoder {module.rsplit('.', 1)[-1]}"
        self.decoder.linear(
            name,
            Role.OTHER,
            f"/{self.at}{module}",
            rows,
            columns,
            layers=(),
            shard=shard,
            bias=bias,
            copies=self.depth,
            heads=heads,
        )

    def norm(self, module: str, *, bias: bool) -> None:
        """One norm of the hidden size in each block."""
        size = self.decoder.hidden
        self.decoder.part("encoder norm", Role.NORM, f"/{self.at}{module}", size, copies=self.depth)
        if bias:
            self.decoder.part("encoder norm bias", Role.NORM, f"/{self.at}{module}.bias", size, copies=self.depth)

    def attention(self, names: Sequence[str], rows: Q, *, bias: bool, module: str) -> None:
        """Queries, keys and values of `rows` outputs, and the way back."""
        h = self.decoder.hidden
        for name in names[:3]:
            self.matrix(f"{module}.{name}", rows, h, bias=bias, shard=Shard.COLUMN)
        self.matrix(f"{module}.{names[3]}", h, rows, bias=bias, shard=Shard.ROW)
