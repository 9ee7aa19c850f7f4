"""MiniMax-Text-01 and M1: Lightning attention with softmax attention at listed layers, and experts in each."""

from __future__ import annotations

from gpufit.layers.linear import Linear
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import per_layer, pre_norms, spread
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("minimax_m1", "minimax_text_01", "minimax")
ARCHITECTURES = ("MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxForCausalLM")
INERT = frozenset(
    {"layernorm_full_attention_alpha", "layernorm_full_attention_beta", "layernorm_linear_attention_alpha",
     "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta", "shared_moe_mode", "full_attn_alpha_factor",
     "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "block_size", "postnorm"}
)  # fmt: skip
"""Weights of residuals and the chunk in which linear attention is computed."""

DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "num_experts_per_tok": 2, "num_local_experts": 8,
    "tie_word_embeddings": False,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """`attn_type_list` has 0 for linear and 1 for softmax attention; transformers' MiniMaxConfig has words, else alternates.

    The linear state has the model's dtype (vLLM up to 0.23); vLLM 0.33.0 no longer serves this family. Routers are published at fp32
    (MiniMax-M1's index: 912,210,767,872 bytes).
    """
    class_defaults(config, "MiniMaxConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False)
    digits = per_layer(config, "attn_type_list", int(d.num_layers))
    types = layer_types(config, d.num_layers, ("layer_types",), ("full_attention", "linear_attention"))
    if digits is not None:
        marks = spread(config, "attn_type_list", digits, (0, 1))
        full, linear = marks[1], marks[0]
    else:
        words = types or ["linear_attention" if i % 2 else "full_attention" for i in d.all]
        full, linear = where_is(words, "full_attention"), where_is(words, "linear_attention")
    d.full(full)
    d.attention(full)
    heads, dim = d.need(d.attention_heads), d.need(d.head_dim)
    inner, module, role = heads * dim, "layers.{i}.self_attn", Role.STATE
    d.layer(Linear(heads=heads, head_dim=dim, conv_bytes=conv_bytes(config), recurrent_bytes=recurrent_bytes(config)), linear)
    d.linear("linear qkv_proj", role, f"{module}.qkv_proj", 3 * inner, d.hidden, layers=linear, shard=Shard.COLUMN)
    d.linear("linear output_gate", role, f"{module}.output_gate", inner, d.hidden, layers=linear, shard=Shard.COLUMN)
    d.linear("linear out_proj", role, f"{module}.out_proj", d.hidden, inner, layers=linear, shard=Shard.ROW)
    d.part("linear norm", Role.NORM, f"{module}.norm", inner, layers=linear, shard=Shard.COLUMN)
    moe = "layers.{i}.block_sparse_moe"
    d.experts(
        d.all,
        experts=config.count("num_local_experts", "num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I_e", label="expert width"),
        module=moe, names=("w1", "w3", "w2"), router_dtype="fp32",
    )  # fmt: skip
    shared = config.maybe("shared_intermediate_size", symbol="I_s", label="shared expert width")
    if shared is not None and int(shared):
        d.shared_experts(d.all, shared, module="layers.{i}.shared_mlp", gate=True, gate_module="layers.{i}.coefficient")
    output(d)
    pre_norms(d)
    say_defaults(d)
    return d
