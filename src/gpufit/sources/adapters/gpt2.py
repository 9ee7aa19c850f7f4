"""GPT-2 and StarCoder 1 (gpt_bigcode): learned positions, fused projections, biases everywhere."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, up, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("gpt2", "gpt_bigcode")
NORMS = (("attention norm", "ln_1"), ("MLP norm", "ln_2"))
RUNNER = (
    "max_sequence_length",
    "runner_max_sequence_length",
    "max_batch_size",
    "pad_key_length",
    "pre_allocate_kv_cache",
    "inference_runner",
)
INERT = frozenset({*RUNNER, "scale_attention_softmax_in_fp32", "n_ctx"})


def read(config: Config) -> Decoder:
    """gpt_bigcode has one KV head unless `multi_query` is false. Fields of its old inference runner do not change the shapes.

    Its MLP is whole on every rank: vLLM 0.33.0 serves it through the published class, and splits only the attention.
    """
    code = config.text("model_type") == "gpt_bigcode"
    name = "GPTBigCodeConfig" if code else "GPT2Config"
    d = basics(config, f"{name} (transformers 5.24.0)", tie=True, prefix="transformer.", vocab_size=50257, n_positions=1024)
    if config.flag("add_cross_attention"):
        raise ConfigError(f"{config.where('add_cross_attention')} is true", hint="a decoder without an encoder is understood")
    if code:
        shared = config.flag("multi_query", default=True)
        d.kv_heads = config.item(1, "multi_query", symbol="n_kv", label="KV heads") if shared else d.attention_heads
    positions = d.max_context
    windows(d, None, every(d, FULL))
    output(d, module="wte")
    if positions is not None:
        table = config.item(int(positions), "n_positions", symbol="n_pos", label="learned positions")
        d.part("position embedding", Role.EMBEDDING, "wpe", table, d.hidden)
    intermediate = inner_width(d)
    fused_qkv(d, "h.{i}.attn.c_attn", bias=True)
    out_proj(d, "h.{i}.attn.c_proj", bias=True)
    whole = Shard.REPLICATED
    up(d, "h.{i}.mlp.c_fc", intermediate, bias=True, shard=whole if code else Shard.COLUMN)
    down(d, "h.{i}.mlp.c_proj", intermediate, bias=True, shard=whole if code else Shard.ROW)
    norms(d, NORMS, final="ln_f", bias=True, module="h.{i}.")
    return d
