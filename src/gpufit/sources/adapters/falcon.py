"""Falcon, also under its first names (RefinedWebModel, RefinedWeb): one KV head, or a few in the new decoder architecture."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, up, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("falcon", "RefinedWebModel", "RefinedWeb")
CLASS = "FalconConfig (transformers 5.24.0)"
INERT = frozenset({"apply_residual_connection_post_layernorm"})
TWO = (("input norm", "input_layernorm"), ("post-attention norm", "post_attention_layernorm"))
SPLIT = (("attention norm", "ln_attn"), ("MLP norm", "ln_mlp"))


def read(config: Config) -> Decoder:
    """RefinedWeb (the first falcon-40b) is the new architecture without saying so, and calls its KV heads `n_head_kv`."""
    d = basics(config, CLASS, tie=True, prefix="transformer.", vocab_size=65024, max_position_embeddings=2048)
    new = config.flag("new_decoder_architecture") or config.text("model_type") == "RefinedWeb"
    one = config.flag("multi_query", default=True)
    heads = config.maybe("num_kv_heads", "n_head_kv", symbol="n_kv", label="KV heads")
    if new:
        d.kv_heads = heads or d.attention_heads
    elif one:
        d.kv_heads = config.item(1, "multi_query", symbol="n_kv", label="KV heads")
    windows(d, None, every(d, FULL))
    output(d, module="word_embeddings")
    bias = config.flag("bias")
    intermediate = inner_width(d, "ffn_hidden_size")
    fused_qkv(d, "h.{i}.self_attention.query_key_value", bias=bias)
    out_proj(d, "h.{i}.self_attention.dense", bias=bias)
    up(d, "h.{i}.mlp.dense_h_to_4h", intermediate, bias=bias)
    down(d, "h.{i}.mlp.dense_4h_to_h", intermediate, bias=bias)
    norms(d, _norms(config, new), final="ln_f", bias=True, module="h.{i}.")
    return d


def _norms(config: Config, new: bool) -> tuple[tuple[str, str], ...]:
    """Two norms in sequence; side by side one norm, or two in the new architecture unless `num_ln_in_parallel_attn` says one."""
    count = config.integer("num_ln_in_parallel_attn", default=2 if new else 1)
    if not config.flag("parallel_attn", default=True):
        return TWO
    if count not in (1, 2):
        raise ConfigError(f"{config.where('num_ln_in_parallel_attn')} is {count}", hint="1 and 2 are understood")
    return SPLIT if count == 2 else TWO[:1]
