"""DistilBERT: BERT's layers under names of its own, without kinds of token."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, matrix, words

CLASS = "DistilBertConfig (transformers 5.24.0)"
NAMES = ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")
INERT = frozenset({"seq_classif_dropout", "sinusoidal_pos_embds"})


def read(config: Config) -> Decoder:
    """A dense layer before the classifier; sinusoidal positions are a table too."""
    d, top = encoder(config, CLASS, inside="distilbert.", vocab_size=30522, hidden_dim=3072, max_position_embeddings=512)
    embeddings(d, kinds=False)
    at = "transformer.layer.{i}."
    block(d, at=at, names=NAMES, mlp=("ffn.lin1", "ffn.lin2"), norms=("sa_layer_norm", "output_layer_norm"))
    if top == "masked":
        matrix(d, "head transform", "vocab_transform", d.hidden)
        head_norm(d, "vocab_layer_norm")
        words(d, "vocab_projector")
    elif top == "sequence":
        matrix(d, "classification layer", "pre_classifier", d.hidden)
    if top in ("sequence", "token", "span"):
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d
