"""GPT-J and CodeGen: attention and MLP side by side after one norm, an output head with a bias."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, up, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("gptj", "codegen")
INERT = frozenset({"n_ctx"})


def read(config: Config) -> Decoder:
    """CodeGen fuses its projections; only the MLP has biases in both."""
    code = config.text("model_type") == "codegen"
    name = "CodeGenConfig" if code else "GPTJConfig"
    d = basics(config, f"{name} (transformers 5.24.0)", tie=False, prefix="transformer.", vocab_size=50400, n_positions=2048)
    windows(d, None, every(d, FULL))
    output(d, module="wte", head_bias=True)
    if code:
        fused_qkv(d, "h.{i}.attn.qkv_proj")
        out_proj(d, "h.{i}.attn.out_proj")
    else:
        d.attention(d.all, module="h.{i}.attn", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    intermediate = inner_width(d)
    up(d, "h.{i}.mlp.fc_in", intermediate, bias=True)
    down(d, "h.{i}.mlp.fc_out", intermediate, bias=True)
    norms(d, (("input norm", "ln_1"),), final="ln_f", bias=True, module="h.{i}.")
    return d
