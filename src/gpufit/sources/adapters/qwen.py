"""The first Qwen (1.8B to 72B): fused projections, as many KV heads as heads."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, norms, out_proj, output, windows
from gpufit.sources.more_towers import qwen_vl
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("qwen",)
ARCHITECTURES = ("QWenLMHeadModel",)
INERT = frozenset({"attn_dropout_prob", "use_logn_attn", "use_cache_quantization", "use_cache_kernel"})


def read(config: Config) -> Decoder:
    """Shapes of the published class QWenLMHeadModel.

    `intermediate_size` counts both halves of the gated MLP, `kv_channels` is the head dimension, `no_bias` leaves only the bias of
    the fused projection. An 8-bit cache (`use_cache_quantization`) is a choice of the published code at run time, not of the shapes.
    """
    d = basics(config, "QWenConfig", tie=False, prefix="transformer.")
    d.head_dim = config.maybe("kv_channels", symbol="d", label="head dimension") or d.head_dim
    windows(d, None, every(d, FULL))
    output(d, module="wte")
    bias = not config.flag("no_bias", default=True)
    fused_qkv(d, "h.{i}.attn.c_attn", bias=True)
    out_proj(d, "h.{i}.attn.c_proj", bias=bias)
    both = config.count("intermediate_size", symbol="I2", label="width of gate and up together")
    half = (both // 2).as_step("I", "MLP width")
    for name in ("w1", "w2"):
        d.linear(f"MLP {name}", Role.MLP, f"h.{{i}}.mlp.{name}", half, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=bias)
    down(d, "h.{i}.mlp.c_proj", half, bias=bias)
    norms(d, (("attention norm", "ln_1"), ("MLP norm", "ln_2")), final="ln_f", module="h.{i}.")
    if (v := config.sub("visual")) is not None:
        qwen_vl(d, v, "transformer.visual.")
    return d
