"""BART and its relatives: mBART, Marian, Pegasus, Blenderbot, M2M100 and NLLB."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import labels
from gpufit.sources.patterns import class_defaults
from gpufit.sources.seq2seq import Encoder, keep, top_of

NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How one family of the tribe differs: rows of the position table before the first (None: no table), and two sets of norms."""

    source: str
    offset: int | None
    embedding_norm: bool
    last_norm: bool


KINDS = {
    "bart": Kind(source="BartConfig", offset=2, embedding_norm=True, last_norm=False),
    "plbart": Kind(source="PLBartConfig", offset=2, embedding_norm=True, last_norm=False),
    "mbart": Kind(source="MBartConfig", offset=2, embedding_norm=True, last_norm=True),
    "marian": Kind(source="MarianConfig", offset=0, embedding_norm=False, last_norm=False),
    "pegasus": Kind(source="PegasusConfig", offset=0, embedding_norm=False, last_norm=True),
    "blenderbot": Kind(source="BlenderbotConfig", offset=0, embedding_norm=False, last_norm=True),
    "blenderbot-small": Kind(source="BlenderbotSmallConfig", offset=0, embedding_norm=True, last_norm=False),
    "m2m_100": Kind(source="M2M100Config", offset=None, embedding_norm=False, last_norm=True),
}
MODEL_TYPES = tuple(KINDS)
INERT = frozenset({"num_hidden_layers", "is_encoder_decoder", "add_bias_logits", "add_final_layer_norm", "normalize_before",
                   "normalize_embedding", "static_position_embeddings", "extra_pos_embeddings", "extra_layer_norm"})  # fmt: skip


def read(config: Config) -> Decoder:
    """Each decoder layer keeps its own tokens and the encoder's, of which there are `max_position_embeddings` at most."""
    kind = KINDS[config.text("model_type") or "bart"]
    source = f"{kind.source} (transformers 5.24.0)"
    config.fall_back(class_defaults(source, max_position_embeddings=1024, vocab_size=50265))
    hidden = config.count("d_model", symbol="H", label="hidden size")
    heads = config.count("decoder_attention_heads", symbol="n_q", label="attention heads")
    config.ignore("encoder_attention_heads", "num_hidden_layers")
    if not config.flag("share_encoder_decoder_embeddings", default=True):
        where = config.where("share_encoder_decoder_embeddings")
        raise ConfigError(f"{where} is false", hint="one table of embeddings for encoder and decoder is understood")
    top = top_of(config)
    prefix = "" if top == "none" else "model."
    limit = config.count("max_position_embeddings", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE)
    d = Decoder(
        config=config, hidden=hidden, prefix=prefix + "decoder.", max_context=limit,
        num_layers=config.count("decoder_layers", symbol="L", label="decoder layers"),
        vocab=config.count("vocab_size", symbol="V", label="vocabulary"),
        tied=config.flag("tie_word_embeddings", default=Default(value=True, source=source)) or top != "lm",
        attention_heads=heads, kv_heads=heads, head_dim=(hidden // heads).as_step("d", "head dimension"),
    )  # fmt: skip
    encoder_tokens = config.count("max_position_embeddings", symbol="n_src", label="encoder positions", unit=TOKEN_PER_SEQUENCE)
    keep(d, encoder_tokens)
    d.embedding(module=f"/{prefix}shared")
    for side in ("encoder", "decoder"):
        _ends(d, kind, f"/{prefix}{side}.", side)
    _encoder(d, f"{prefix}encoder.layers.{{e}}.")
    for module in ("self_attn", "encoder_attn"):
        d.attention(d.all, bias=True, out_bias=True, module=f"layers.{{i}}.{module}", names=NAMES)
        d.norm(f"{module} norm", f"layers.{{i}}.{module}_layer_norm", layers=d.all, bias=True)
    inner = config.count("decoder_ffn_dim", symbol="I", label="MLP width")
    d.mlp(d.all, inner, gated=False, bias=True, module="layers.{i}", names=("", "fc1", "fc2"))
    d.norm("MLP norm", "layers.{i}.final_layer_norm", layers=d.all, bias=True)
    if top == "sequence":
        d.part("classification layer", Role.HEAD, "/classification_head.dense", hidden, hidden)
        d.part("classification layer bias", Role.HEAD, "/classification_head.dense.bias", hidden)
        count = labels(config, otherwise=3)
        d.part("classification head", Role.HEAD, "/classification_head.out_proj", count, hidden)
        d.part("classification head bias", Role.HEAD, "/classification_head.out_proj.bias", count)
    return d


def _ends(d: Decoder, kind: Kind, at: str, side: str) -> None:
    """Positions and norms around the layers of one side."""
    if kind.offset is not None:
        rows = d.config.count("max_position_embeddings", symbol="n_pos", label="learned positions")
        d.part(f"{side} positions", Role.EMBEDDING, at + "embed_positions", rows + kind.offset if kind.offset else rows, d.hidden)
    if kind.embedding_norm:
        d.norm(f"{side} embedding norm", at + "layernorm_embedding", bias=True)
    if kind.last_norm:
        d.norm(f"{side} last norm", at + "layer_norm", bias=True)


def _encoder(d: Decoder, at: str) -> None:
    depth = d.config.count("encoder_layers", symbol="L_e", label="encoder layers")
    e = Encoder(decoder=d, depth=depth, at=at)
    e.attention(NAMES, d.hidden, bias=True, module="self_attn")
    inner = d.config.count("encoder_ffn_dim", symbol="I_e", label="MLP width of the encoder")
    e.matrix("fc1", inner, d.hidden, bias=True, shard=Shard.COLUMN)
    e.matrix("fc2", d.hidden, inner, bias=True, shard=Shard.ROW)
    e.norm("self_attn_layer_norm", bias=True)
    e.norm("final_layer_norm", bias=True)
