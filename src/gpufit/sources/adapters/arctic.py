"""Snowflake Arctic: a dense MLP in the residual beside a mixture of many experts."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import pre_norms, without

ARCHITECTURES = ("ArcticForCausalLM",)
INERT = frozenset(
    {
        "moe_train_capacity_factor",
        "moe_eval_capacity_factor",
        "moe_min_capacity",
        "moe_token_dropping",
        "enable_expert_tensor_parallelism",
        "max_window_layers",
    }
)


def read(config: Config) -> Decoder:
    """Every `moe_layer_frequency`-th layer is a mixture; with `parallel_attn_mlp_res` an MLP as wide as the model stands beside it."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    output(d)
    d.attention(d.all)
    step = config.integer("moe_layer_frequency", default=2)
    sparse = tuple(i for i in d.all if (i + 1) % step == 0)
    width = config.count("intermediate_size", symbol="I", label="expert width")
    where = "layers.{i}.block_sparse_moe"
    d.experts(
        sparse,
        experts=config.count("num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=width,
        module=where,
        names=("w1", "w3", "w2"),
    )
    d.mlp(without(d.all, sparse), width, module=f"{where}.mlp", names=("w1", "w3", "w2"))
    if config.flag("parallel_attn_mlp_res") and config.flag("use_residual", default=True):
        d.mlp(sparse, d.hidden, module="layers.{i}.residual_mlp", names=("w1", "w3", "w2"), label="residual ")
        d.norm("residual norm", "layers.{i}.residual_layernorm", layers=sparse)
    pre_norms(d)
    return d
