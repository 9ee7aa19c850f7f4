"""ChatGLM 1 to 3 and GLM-4-9B under their published class: fused projections, few KV groups."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_gate_up, fused_qkv, norms, out_proj, output, up, width, windows
from gpufit.sources.more_towers import eva_clip
from gpufit.sources.patterns import FULL

ARCHITECTURES = ("ChatGLMModel", "ChatGLMForConditionalGeneration")
INERT = frozenset(
    {"apply_query_key_layer_scaling", "layernorm_epsilon", "apply_residual_connection_post_layernorm", "classifier_dropout"}
)
NORMS = (("input norm", "input_layernorm"), ("post-attention norm", "post_attention_layernorm"))


def read(config: Config) -> Decoder:
    """ChatGLM2, 3 and GLM-4-9B. `multi_query_group_num` counts KV heads where `multi_query_attention` is on."""
    if config.has("inner_hidden_size"):
        return _first(config)
    d = basics(config, "ChatGLMConfig", tie=False, prefix="transformer.")
    d.head_dim = config.maybe("kv_channels", symbol="d", label="head dimension") or d.head_dim
    if config.flag("multi_query_attention"):
        d.kv_heads = config.count("multi_query_group_num", symbol="n_kv", label="KV heads")
    config.ignore("multi_query_group_num")
    windows(d, None, every(d, FULL))
    at = "encoder.layers.{i}."
    output(d, module="embedding.word_embeddings", head="/transformer.output_layer")
    bias = config.flag("add_bias_linear")
    intermediate = width(d, "ffn_hidden_size")
    fused_qkv(d, at + "self_attention.query_key_value", bias=bias or config.flag("add_qkv_bias"))
    out_proj(d, at + "self_attention.dense", bias=bias)
    fused_gate_up(d, at + "mlp.dense_h_to_4h", intermediate, bias=bias)
    down(d, at + "mlp.dense_4h_to_h", intermediate, bias=bias)
    final = "encoder.final_layernorm" if config.flag("post_layer_norm", default=True) else ""
    norms(d, NORMS, final=final, bias=not config.flag("rmsnorm", default=True), module=at)
    if (v := config.sub("vision_config")) is not None:
        eva_clip(d, v, "transformer.vision.", intermediate)
    return d


def _first(config: Config) -> Decoder:
    """ChatGLM-6B: layer norms and biases everywhere, an MLP without a gate, one matrix for embedding and head."""
    d = basics(config, "ChatGLMConfig of ChatGLM-6B", tie=True, prefix="transformer.")
    windows(d, None, every(d, FULL))
    output(d, module="word_embeddings")
    intermediate = width(d, "inner_hidden_size")
    fused_qkv(d, "layers.{i}.attention.query_key_value", bias=True)
    out_proj(d, "layers.{i}.attention.dense", bias=True)
    up(d, "layers.{i}.mlp.dense_h_to_4h", intermediate, bias=True)
    down(d, "layers.{i}.mlp.dense_4h_to_h", intermediate, bias=True)
    norms(d, NORMS, final="final_layernorm", bias=True)
    return d
