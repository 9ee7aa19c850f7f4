"""What encoders have in common: embeddings of words, positions and kinds of token, layers that see both ways, no KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import ENCODER_NOTE, STRUCTURE, labels, state_defaults
from gpufit.sources.patterns import class_defaults

TOPS = {
    "ForMaskedLM": "masked",
    "ForPreTraining": "pretraining",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "span",
    "Model": "bare",
}


def encoder(config: Config, source: str, *, inside: str = "", late: bool = False, **fields: Any) -> tuple[Decoder, str]:
    """A Decoder for an encoder and what its class puts on top (a word of `TOPS`).

    `inside` is the module path of the encoder in a class with a head; a bare model has none. Encoders tie their word embeddings.
    `late` says that the family's reader knows late interaction (ColBERT), whose word is "late".
    """
    if config.flag("is_decoder") or config.flag("add_cross_attention"):
        raise ConfigError(
            f"{config.where('is_decoder')} is true: an encoder class used as a decoder",
            hint="encoders are understood in this family",
        )
    listed = config.items("architectures") or ["Model"]
    top = next((word for end, word in TOPS.items() if str(listed[0]).endswith(end)), None)
    if str(listed[0]).endswith("LMHeadModel"):
        top = None
    if "ColBERT" in str(listed[0]):
        top = "late" if late else None
    if top is None:
        raise ConfigError(
            f"{config.where('architectures')} is {listed[0]}, and what it puts on top of the encoder is not known",
            hint=f"classes that end in {', '.join(TOPS)} are",
        )
    if not config.path:
        fields = {name: value for name, value in fields.items() if name not in STRUCTURE}
    config.fall_back(class_defaults(source, **fields))
    prefix = inside if top != "bare" and inside else ""
    d = open_decoder(config, tie_default=Default(value=True, source=source), prefix=prefix)
    state_defaults(d, source, fields)
    d.notes.append(ENCODER_NOTE)
    return d, top


def embeddings(
    d: Decoder,
    *,
    module: str = "embeddings",
    words: str = "word_embeddings",
    positions: str = "position_embeddings",
    kinds: bool = True,
    norm: str = "LayerNorm",
    width: Q | None = None,
) -> None:
    """The tables that make a token's first vector, and the norm behind them. vLLM splits all three by rows (models/bert.py)."""
    h = width or d.hidden
    d.part("token embedding", Role.EMBEDDING, f"{module}.{words}", d.need(d.vocab), h, shard=Shard.VOCAB)
    if positions:
        rows = d.config.count("max_position_embeddings", symbol="n_pos", label="learned positions")
        d.part("position embedding", Role.EMBEDDING, f"{module}.{positions}", rows, h, shard=Shard.VOCAB)
    if kinds:
        count = d.config.count("type_vocab_size", symbol="n_t", label="kinds of token")
        if int(count):
            d.part("token type embedding", Role.EMBEDDING, f"{module}.token_type_embeddings", count, h, shard=Shard.VOCAB)
    if norm:
        d.norm("embedding norm", f"{module}.{norm}", size=h, bias=True)


def block(
    d: Decoder,
    *,
    at: str = "encoder.layer.{i}.",
    names: Sequence[str] = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    mlp: Sequence[str] = ("intermediate.dense", "output.dense"),
    norms: Sequence[str] = ("attention.output.LayerNorm", "output.LayerNorm"),
) -> None:
    """BERT's layer: four projections, an MLP without a gate, two norms behind their branches; biases everywhere."""
    d.attention(d.all, bias=True, out_bias=True, module=at.removesuffix("."), names=names)
    inner = d.config.count("intermediate_size", "hidden_dim", symbol="I", label="MLP width")
    d.mlp(d.all, inner, gated=False, bias=True, module=at.removesuffix("."), names=("", *mlp))
    d.norm("attention norm", at + norms[0], layers=d.all, bias=True)
    d.norm("MLP norm", at + norms[1], layers=d.all, bias=True)


def matrix(
    d: Decoder, name: str, module: str, rows: Q, columns: Q | None = None, *, role: Role = Role.HEAD, bias: bool = True
) -> None:
    """One linear layer of a head, whole on every rank, and its bias. `module` stands outside the encoder."""
    d.part(name, role, f"/{module}", rows, columns or d.hidden)
    if bias:
        d.part(f"{name} bias", role, f"/{module}.bias", rows)


def head_norm(d: Decoder, module: str, *, size: Q | None = None, bias: bool = True) -> None:
    """A norm within a head."""
    d.part("head norm", Role.NORM, f"/{module}", size or d.hidden)
    if bias:
        d.part("head norm bias", Role.NORM, f"/{module}.bias", size or d.hidden)


def pooler(d: Decoder, module: str = "pooler.dense") -> None:
    """The dense layer over the first token. Sentence embedders rarely use it, and vLLM does not load it."""
    d.part("pooler", Role.OTHER, module, d.hidden, d.hidden)
    d.part("pooler bias", Role.OTHER, module + ".bias", d.hidden)


def late_head(d: Decoder) -> None:
    """The matrix that gives each token its vector in late interaction: no bias, 128 wide where the file does not say."""
    names = ("colbert_dim", "dim", "projection_dim")
    width = d.config.count(*names, symbol="d_c", label="token vector", default=Default(value=128, source="ColBERTConfig"))
    if not d.config.has(*names):
        d.assumptions.append(f"{d.config.origin} has no {names[0]}: the default of ColBERTConfig, 128, is used")
    matrix(d, "token vectors", "linear", width, bias=False)


def words(d: Decoder, module: str, *, bias_module: str = "", width: Q | None = None) -> None:
    """The output over the vocabulary of a masked language model: a bias, and a matrix where it is not the embedding itself."""
    vocab = d.need(d.vocab)
    if not d.tied:
        d.part("output head", Role.HEAD, f"/{module}", vocab, width or d.hidden, shard=Shard.VOCAB, linear=True)
    d.part("output head bias", Role.HEAD, f"/{bias_module or module + '.bias'}", vocab)


def count(d: Decoder, top: str) -> Q:
    """The outputs of a classification head; a span has a start and an end."""
    if top == "span":
        return d.config.item(2, "architectures", symbol="n_l", label="start and end of a span")
    return labels(d.config)
