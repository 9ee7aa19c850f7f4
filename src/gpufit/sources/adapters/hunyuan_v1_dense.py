"""Hunyuan dense models (0.5B to 7B): Llama's shape with norms on queries and keys."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, llama_shape, windows
from gpufit.sources.patterns import FULL

CLASS = "HunYuanDenseV1Config (transformers 5.24.0)"
INERT = frozenset({"cla_share_factor", "moe_topk", "num_shared_expert", "use_mixed_mlp_moe"})


def read(config: Config) -> Decoder:
    """The class always has the two norms (as `use_qk_norm` says), and refuses sharing of keys and values between layers."""
    d = basics(config, CLASS, tie=False, vocab_size=290943, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
               num_attention_heads=32, max_position_embeddings=2048)  # fmt: skip
    if config.flag("use_cla"):
        raise ConfigError(
            f"{config.where('use_cla')} is true: this class shares no cache between layers", hint="check the config.json"
        )
    if config.has("num_experts") and config.integer("num_experts") > 1:
        raise ConfigError(
            f"{config.where('num_experts')} is {config.raw('num_experts')} in a dense model", hint="check the model_type"
        )
    d.head_dim = config.maybe("head_dim", "attention_head_dim", symbol="d", label="head dimension") or d.head_dim
    windows(d, None, every(d, FULL))
    bias = config.flag("attention_bias")
    llama_shape(d, bias=bias, out_bias=bias)
    dim = d.need(d.head_dim)
    d.norm("query norm", "layers.{i}.self_attn.query_layernorm", layers=d.all, size=dim)
    d.norm("key norm", "layers.{i}.self_attn.key_layernorm", layers=d.all, size=dim)
    return d
