"""T5, Flan-T5, mT5 and UMT5: encoder-decoders with relative positions and no biases; their encoders alone serve as embedders."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import ENCODER_NOTE
from gpufit.sources.patterns import class_defaults
from gpufit.sources.seq2seq import Encoder, keep, top_of

MODEL_TYPES = ("t5", "mt5", "umt5")
SOURCES = {
    "t5": "T5Config (transformers 5.24.0)",
    "mt5": "MT5Config (transformers 5.24.0)",
    "umt5": "UMT5Config (transformers 5.24.0)",
}
NAMES = ("q", "k", "v", "o")
TRAINED = 512
"""Tokens that T5's encoder was trained with (arXiv 1910.10683, section 3.1.2); relative positions set no limit."""
INERT = frozenset({"is_encoder_decoder", "relative_attention_max_distance", "output_past"})


def read(config: Config) -> Decoder:
    """Each decoder layer keeps its own tokens and the encoder's. Heads times `d_kv` need not be the hidden size.

    The library's classes have one matrix for embedding and head, always.
    """
    kind = config.text("model_type") or "t5"
    source = SOURCES[kind]
    config.fall_back(
        class_defaults(source, d_kv=64, relative_attention_num_buckets=32, vocab_size=32128 if kind == "t5" else 250112)
    )
    top = top_of(config)
    heads = config.count("num_heads", symbol="n_q", label="attention heads")
    depth = config.count("num_layers", symbol="L_e", label="encoder layers")
    d = Decoder(
        config=config, prefix="decoder.", hidden=config.count("d_model", symbol="H", label="hidden size"),
        num_layers=config.maybe("num_decoder_layers", symbol="L", label="decoder layers") or depth,
        vocab=config.count("vocab_size", symbol="V", label="vocabulary"),
        tied=True,
        attention_heads=heads, kv_heads=heads, head_dim=config.count("d_kv", symbol="d", label="head dimension"),
        max_context=config.maybe("n_positions", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE),
    )  # fmt: skip
    if top == "lm" and not config.flag("tie_word_embeddings", default=True):
        d.notes.append(
            f"{source} ties embedding and output head whatever the file says (false there turns a scale off); "
            "checkpoints of T5 1.1 and Flan-T5 hold an output head of its own as well"
        )
    if top not in ("lm", "none", "encoder"):
        raise ConfigError(
            f"{config.where('architectures')} has a classifier", hint="an output head, a bare model or an encoder are understood"
        )
    d.embedding(module="/shared")
    _encoder(d, depth, every=kind == "umt5")
    if top == "encoder":
        d.notes.append(ENCODER_NOTE)
        d.num_layers = depth
        return d
    keep(d, _source(config, d))
    _decoder(d, every=kind == "umt5")
    return d


def _source(config: Config, d: Decoder) -> Q:
    known = config.maybe("n_positions", symbol="n_src", label="encoder positions", unit=TOKEN_PER_SEQUENCE)
    if known is not None:
        return known
    d.assumptions.append(
        f"the file sets no limit to the encoder's input: {TRAINED} tokens, as in training, are counted for cross-attention"
    )
    default = Default(value=TRAINED, source="arXiv 1910.10683")
    return config.count("n_positions", symbol="n_src", label="encoder positions", default=default, unit=TOKEN_PER_SEQUENCE)


def _mlp_names(config: Config) -> tuple[str, ...]:
    """The first projections of the MLP: two where it is gated."""
    word = config.text("feed_forward_proj") or ("relu" if config.text("model_type") == "t5" else "gated-gelu")
    return ("wi_0", "wi_1") if word.startswith("gated-") else ("wi",)


def _encoder(d: Decoder, depth: Q, *, every: bool) -> None:
    rows = d.need(d.attention_heads) * d.need(d.head_dim)
    e = Encoder(decoder=d, depth=depth, at="encoder.block.{e}.")
    e.attention(NAMES, rows, bias=False, module="layer.0.SelfAttention")
    inner = d.config.count("d_ff", symbol="I", label="MLP width")
    for name in _mlp_names(d.config):
        e.matrix(f"layer.1.DenseReluDense.{name}", inner, d.hidden, bias=False, shard=Shard.COLUMN)
    e.matrix("layer.1.DenseReluDense.wo", d.hidden, inner, bias=False, shard=Shard.ROW)
    e.norm("layer.0.layer_norm", bias=False)
    e.norm("layer.1.layer_norm", bias=False)
    buckets = d.config.count("relative_attention_num_buckets", symbol="n_b", label="buckets of relative positions")
    d.part("encoder relative positions", Role.OTHER, "/encoder.block.0.layer.0.SelfAttention.relative_attention_bias", buckets,
           d.need(d.attention_heads), copies=depth if every else None)  # fmt: skip
    d.norm("encoder last norm", "/encoder.final_layer_norm")


def _decoder(d: Decoder, *, every: bool) -> None:
    heads = d.need(d.attention_heads)
    for index, module in enumerate(("SelfAttention", "EncDecAttention")):
        d.attention(d.all, module=f"block.{{i}}.layer.{index}.{module}", names=NAMES)
        d.norm(f"{module} norm", f"block.{{i}}.layer.{index}.layer_norm", layers=d.all)
    inner = d.config.count("d_ff", symbol="I", label="MLP width")
    at = "block.{i}.layer.2.DenseReluDense"
    for name in _mlp_names(d.config):
        d.linear(f"MLP {name}", Role.MLP, f"{at}.{name}", inner, d.hidden, layers=d.all, shard=Shard.COLUMN)
    d.linear("MLP wo", Role.MLP, f"{at}.wo", d.hidden, inner, layers=d.all, shard=Shard.ROW)
    d.norm("MLP norm", "block.{i}.layer.2.layer_norm", layers=d.all)
    buckets = d.config.count("relative_attention_num_buckets", symbol="n_b", label="buckets of relative positions")
    where = list(d.all) if every else [0]
    d.part(
        "relative positions", Role.OTHER, "block.{i}.layer.0.SelfAttention.relative_attention_bias", buckets, heads, layers=where
    )
    d.norm("last norm", "final_layer_norm")
