"""RoBERTa, XLM-RoBERTa and CamemBERT: encoders, also under many embedders and rerankers (E5, BGE, Granite embedding, Jina)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.adapters.bert import plain
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import fused_qkv, out_proj
from gpufit.sources.encoders import block, count, embeddings, encoder, head_norm, late_head, matrix, pooler, words

MODEL_TYPES = ("roberta", "xlm-roberta", "camembert")
CLASS = "XLMRobertaConfig (transformers 5.24.0)"
FIELDS: dict[str, Any] = {"vocab_size": 30522, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}


def read(config: Config) -> Decoder:
    """The position table has `max_position_embeddings` rows, of which the first two serve no position; Jina's has none."""
    rotary = config.text("position_embedding_type") == "rotary"
    if not rotary:
        plain(config)
    whole = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, **FIELDS}
    d, top = encoder(config, CLASS, inside="roberta.", late=True, **whole)
    if rotary:
        _rotary(d)
    else:
        embeddings(d)
        block(d)
    if top in ("bare", "late"):
        pooler(d)
    if top == "late":
        late_head(d)
    elif top == "bare":
        if rotary:
            _adapters(d)
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


def _rotary(d: Decoder) -> None:
    """Jina's XLM-RoBERTa (embeddings v3, reranker v2, ColBERT v2): fused projections, rotary positions, no table of them."""
    d.config.ignore("use_flash_attn", "rotary_emb_base", "emb_pooler", "lora_main_params_trainable", "load_trained_adapters")
    if not d.config.items("lora_adaptations"):
        d.config.ignore("lora_rank")
    embeddings(d, positions="", norm="")
    d.norm("embedding norm", "emb_ln", bias=True)
    at = "encoder.layers.{i}"
    fused_qkv(d, f"{at}.mixer.Wqkv", bias=True)
    out_proj(d, f"{at}.mixer.out_proj", bias=True)
    inner = d.config.count("intermediate_size", symbol="I", label="MLP width")
    d.mlp(d.all, inner, gated=False, bias=True, module=f"{at}.mlp", names=("", "fc1", "fc2"))
    d.norm("attention norm", f"{at}.norm1", layers=d.all, bias=True)
    d.norm("MLP norm", f"{at}.norm2", layers=d.all, bias=True)


def _adapters(d: Decoder) -> None:
    """Low-rank task adapters beside every matrix and table: 12,946,300 of the 572,310,396 parameters of Jina embeddings v3."""
    tasks = d.config.items("lora_adaptations") or []
    rank = d.config.maybe("lora_rank", symbol="r_l", label="adapter rank")
    if not tasks or rank is None or not int(rank):
        return
    copies = d.config.item(len(tasks), "lora_adaptations", symbol="n_a", label="task adapters")
    inner, three = d.config.count("intermediate_size", symbol="I", label="MLP width"), 3 * d.hidden
    kinds = d.config.count("type_vocab_size", symbol="n_t", label="kinds of token")

    def beside(module: str, rows: Q, columns: Q, layers: Iterable[int] = ()) -> None:
        for name, width in (("lora_A", columns), ("lora_B", rows)):
            path = f"{module}.parametrizations.weight.0.{name}"
            d.part(f"adapter {name}", Role.OTHER, path, rank, width, layers=layers, copies=copies)

    beside("embeddings.word_embeddings", d.hidden, d.need(d.vocab))
    beside("embeddings.token_type_embeddings", d.hidden, kinds)
    at = "encoder.layers.{i}"
    beside(f"{at}.mixer.Wqkv", three, d.hidden, d.all)
    beside(f"{at}.mixer.out_proj", d.hidden, d.hidden, d.all)
    beside(f"{at}.mlp.fc1", inner, d.hidden, d.all)
    beside(f"{at}.mlp.fc2", d.hidden, inner, d.all)
    beside("pooler.dense", d.hidden, d.hidden)
