"""StableLM 2, and StableLM 3B under its first name (stablelm_epoch): layer norms with biases."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("stablelm", "stablelm_epoch")
CLASS = "StableLmConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """A parallel residual (StableLM 2 12B) leaves one norm a layer; `qk_layernorm` adds one norm to each query and key head."""
    d = basics(config, CLASS, tie=False, vocab_size=50304, hidden_size=2560, intermediate_size=6912, num_hidden_layers=32,
               num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=4096)  # fmt: skip
    windows(d, None, every(d, FULL))
    listed = PRE_NORMS[:1] if config.flag("use_parallel_residual") else PRE_NORMS
    llama_shape(d, bias=config.flag("use_qkv_bias"), norm_bias=True, listed=listed)
    if config.flag("qk_layernorm"):
        heads, kv, dim = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
        d.norm("query norms", "layers.{i}.self_attn.q_layernorm.norms", layers=d.all, size=heads * dim)
        d.norm("key norms", "layers.{i}.self_attn.k_layernorm.norms", layers=d.all, size=kv * dim)
    return d
