"""BERT and ELECTRA: encoders, also under many sentence embedders."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, matrix, pooler, words

CLASS = "BertConfig (transformers 5.24.0)"
INERT = frozenset({"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"})
FIELDS = {"vocab_size": 30522, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}


def read(config: Config) -> Decoder:
    """Positions are learned; a published file may name other classes (JinaBERT) whose layers differ, and those are refused."""
    plain(config)
    d, top = encoder(config, CLASS, inside="bert.", num_hidden_layers=12, hidden_size=768, num_attention_heads=12, **FIELDS)
    embeddings(d)
    block(d)
    if top in ("bare", "sequence", "pretraining"):
        pooler(d)
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


def plain(config: Config) -> None:
    """Refuses kinds of position and feed-forward layers that the library's class does not have."""
    kind, feed = config.text("position_embedding_type") or "absolute", config.text("feed_forward_type") or "original"
    if kind != "absolute" or feed != "original":
        name = "position_embedding_type" if kind != "absolute" else "feed_forward_type"
        raise ConfigError(
            f"{config.where(name)} is {config.raw(name)!r}", hint="learned absolute positions and a plain MLP are understood"
        )
