"""ModernBERT: rotary positions, gated MLPs, local layers between global ones; an encoder, so none of them keeps a cache."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import down, fused_gate_up, fused_qkv, out_proj, width
from gpufit.sources.encoders import count, embeddings, encoder, head_norm, matrix, words

CLASS = "ModernBertConfig (transformers 5.24.0)"
INERT = frozenset(
    {"local_attention", "layer_types", "global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "sparse_prediction",
     "sparse_pred_ignore_index", "classifier_pooling", "repad_logits_with_grad", "deterministic_flash_attn"}
)  # fmt: skip


def read(config: Config) -> Decoder:
    """The first layer has no norm before its attention, since the embedding has one. Norms have no bias unless `norm_bias` says so."""
    d, top = encoder(config, CLASS, inside="model.", vocab_size=50368, intermediate_size=1152)
    norm, attention, mlp = config.flag("norm_bias"), config.flag("attention_bias"), config.flag("mlp_bias")
    embeddings(d, words="tok_embeddings", positions="", kinds=False, norm="")
    d.norm("embedding norm", "embeddings.norm", bias=norm)
    intermediate = width(d)
    fused_qkv(d, "layers.{i}.attn.Wqkv", bias=attention)
    out_proj(d, "layers.{i}.attn.Wo", bias=attention)
    fused_gate_up(d, "layers.{i}.mlp.Wi", intermediate, bias=mlp)
    down(d, "layers.{i}.mlp.Wo", intermediate, bias=mlp)
    if later := list(d.all)[1:]:
        d.norm("attention norm", "layers.{i}.attn_norm", layers=later, bias=norm)
    d.norm("MLP norm", "layers.{i}.mlp_norm", layers=d.all, bias=norm)
    d.norm("final norm", "final_norm", bias=norm)
    if top == "bare":
        return d
    matrix(d, "classification layer", "head.dense", d.hidden, bias=config.flag("classifier_bias"))
    head_norm(d, "head.norm", bias=norm)
    if top == "masked":
        if config.flag("decoder_bias", default=True):
            words(d, "decoder")
    else:
        matrix(d, "classification head", "classifier", count(d, top))
    return d
