"""BERT, also under many sentence embedders, with late interaction (ColBERT), and Jina's form with ALiBi and a gated MLP."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, late_head, matrix, pooler, words

CLASS = "BertConfig (transformers 5.24.0)"
INERT = frozenset({"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"})
NAMES = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
FIELDS: dict[str, Any] = {"vocab_size": 30522, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}


def read(config: Config) -> Decoder:
    """Positions are learned, or ALiBi with a gated MLP (Jina embeddings v2); other forms are refused."""
    if config.text("position_embedding_type") == "alibi":
        return _jina(config)
    plain(config)
    whole = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, **FIELDS}
    d, top = encoder(config, CLASS, inside="bert.", late=True, **whole)
    embeddings(d)
    block(d)
    if top in ("bare", "sequence", "pretraining", "late"):
        pooler(d)
    if top == "late":
        late_head(d)
        return d
    if top in ("masked", "pretraining"):
        matrix(d, "head transform", "cls.predictions.transform.dense", d.hidden)
        head_norm(d, "cls.predictions.transform.LayerNorm")
        words(d, "cls.predictions.decoder", bias_module="cls.predictions.bias")
    if top == "pretraining":
        two = config.item(2, "architectures", symbol="n_l", label="next sentence or not")
        matrix(d, "next sentence head", "cls.seq_relationship", two)
    elif top not in ("bare", "masked"):
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d


def _jina(config: Config) -> Decoder:
    """Jina embeddings v2: no table of positions, gate and up projection in one matrix without bias, the norm inside the MLP.

    The repositories hold the bare encoder with its pooler under whichever class they name (137,368,320 parameters in base-en). The
    later class with norms on queries and keys (base-code, base-de) has other layers and is refused.
    """
    if config.text("feed_forward_type") != "geglu" or "qk-post-norm" in str(config.raw("auto_map")):
        raise ConfigError(
            f"{config.where('position_embedding_type')} is 'alibi' in a class other than Jina embeddings v2",
            hint="geglu without norms on queries and keys is understood",
        )
    config.ignore("emb_pooler")
    d, _ = encoder(config, "JinaBertConfig", **FIELDS)
    embeddings(d, positions="")
    at = "encoder.layer.{i}"
    d.attention(d.all, bias=True, out_bias=True, module=at, names=NAMES)
    inner = config.count("intermediate_size", symbol="I", label="MLP width")
    mlp = f"{at}.mlp"
    d.linear("MLP gated_layers", Role.MLP, f"{mlp}.gated_layers", 2 * inner, d.hidden, layers=d.all, shard=Shard.COLUMN)
    d.linear("MLP wo", Role.MLP, f"{mlp}.wo", d.hidden, inner, layers=d.all, shard=Shard.ROW, bias=True)
    d.norm("attention norm", f"{at}.attention.output.LayerNorm", layers=d.all, bias=True)
    d.norm("MLP norm", f"{mlp}.layernorm", layers=d.all, bias=True)
    pooler(d)
    return d


def plain(config: Config) -> None:
    """Refuses kinds of position and feed-forward layers that the library's class does not have."""
    kind, feed = config.text("position_embedding_type") or "absolute", config.text("feed_forward_type") or "original"
    if kind != "absolute" or feed != "original":
        name = "position_embedding_type" if kind != "absolute" else "feed_forward_type"
        raise ConfigError(
            f"{config.where(name)} is {config.raw(name)!r}", hint="learned absolute positions and a plain MLP are understood"
        )
