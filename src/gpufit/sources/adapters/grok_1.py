"""Grok-1 and Grok-2: four norms a layer, a mixture in every layer, and in Grok-2 a dense MLP beside it."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output

MODEL_TYPES = ("grok-1", "grok_1")
ARCHITECTURES = ("Grok1ModelForCausalLM", "Grok1ForCausalLM")
INERT = frozenset(
    {
        "attn_output_multiplier",
        "max_attn_value",
        "attn_temperature_len",
        "attn_logit_softcap",
        "router_logit_softcapping",
        "moe_router_topk",
    }
)


def read(config: Config) -> Decoder:
    """`residual_moe` puts a dense MLP of `intermediate_size` beside experts of `moe_intermediate_size` (grok1.py, vLLM 0.23.0)."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    output(d)
    d.attention(d.all, bias=config.flag("attention_bias"))
    width = config.count("intermediate_size", symbol="I", label="MLP width")
    own = config.maybe("moe_intermediate_size", symbol="I_e", label="expert width")
    d.experts(
        d.all,
        experts=config.count("num_local_experts", "num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", "num_selected_experts", symbol="E_k", label="experts per token"),
        intermediate=width if own is None else own,
        module="layers.{i}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    if config.flag("residual_moe"):
        d.mlp(d.all, width)
    for name in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
        d.norm(name, f"layers.{{i}}.{name}", layers=d.all)
    d.norm("final norm", "norm")
    return d
