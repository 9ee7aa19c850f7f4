"""RoBERTa, XLM-RoBERTa and CamemBERT: encoders, also under many embedders and rerankers (E5, BGE, Granite embedding)."""

from __future__ import annotations

from gpufit.sources.adapters.bert import plain
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, matrix, pooler, words

MODEL_TYPES = ("roberta", "xlm-roberta", "camembert")
CLASS = "XLMRobertaConfig (transformers 5.24.0)"
FIELDS = {"vocab_size": 30522, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}


def read(config: Config) -> Decoder:
    """The position table has `max_position_embeddings` rows, of which the first two serve no position."""
    plain(config)
    d, top = encoder(config, CLASS, inside="roberta.", num_hidden_layers=12, hidden_size=768, num_attention_heads=12, **FIELDS)
    embeddings(d)
    block(d)
    if top == "bare":
        pooler(d)
    elif top == "masked":
        matrix(d, "head transform", "lm_head.dense", d.hidden)
        head_norm(d, "lm_head.layer_norm")
        words(d, "lm_head.decoder", bias_module="lm_head.bias")
    elif top == "sequence":
        matrix(d, "classification layer", "classifier.dense", d.hidden)
        matrix(d, "classification head", "classifier.out_proj", count(d, top))
    else:
        matrix(d, "classification head", "qa_outputs" if top == "span" else "classifier", count(d, top))
    return d
