"""Jais 1: GPT-2's shape with a gated MLP and linear biases in place of positions."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, windows
from gpufit.sources.patterns import FULL

INERT = frozenset({"mup_scale_qk_dot_by_d", "scale_qk_dot_by_d"})


def read(config: Config) -> Decoder:
    """Shapes of the published class JAISLMHeadModel: biases everywhere, one matrix for embedding and head."""
    d = basics(config, "JAISConfig", tie=True, prefix="transformer.", vocab_size=50257)
    windows(d, None, every(d, FULL))
    output(d, module="wte")
    if (config.text("position_embedding_type") or "learned") == "learned":
        table = config.count("n_positions", symbol="n_pos", label="learned positions")
        d.part("position embedding", Role.EMBEDDING, "wpe", table, d.hidden)
    intermediate = inner_width(d)
    fused_qkv(d, "h.{i}.attn.c_attn", bias=True)
    out_proj(d, "h.{i}.attn.c_proj", bias=True)
    gated = (config.text("activation_function") or "").lower() == "swiglu"
    for name in ("c_fc", "c_fc2") if gated else ("c_fc",):
        d.linear(
            f"MLP {name}", Role.MLP, f"h.{{i}}.mlp.{name}", intermediate, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=True
        )
    down(d, "h.{i}.mlp.c_proj", intermediate, bias=True)
    norms(d, (("attention norm", "ln_1"), ("MLP norm", "ln_2")), final="ln_f", bias=True, module="h.{i}.")
    return d
