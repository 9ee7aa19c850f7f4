"""ERNIE 4.5 text mixtures: dense layers at the ends, routed and shared experts between."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_layers, drafting
from gpufit.sources.patterns import class_defaults, pre_norms, without
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("Ernie4_5_MoeForCausalLM",)
INERT = frozenset({"compression_ratio", "moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free"})
DEFAULTS = class_defaults(
    "Ernie4_5_MoeConfig (transformers 5.24.0)",
    vocab_size=103424,
    hidden_size=2560,
    intermediate_size=12288,
    num_hidden_layers=28,
    num_attention_heads=20,
    num_key_value_heads=4,
    max_position_embeddings=131072,
    moe_intermediate_size=1536,
    moe_k=6,
    moe_num_experts=64,
    moe_num_shared_experts=2,
    moe_layer_start_index=1,
    moe_layer_end_index=-1,
    moe_layer_interval=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Mixtures are the layers from `moe_layer_start_index` to `moe_layer_end_index` (-1: the last), by `moe_layer_interval`."""
    d = open_decoder(config, tie_default=True)
    bias = config.flag("use_bias")
    d.full(d.all)
    output(d, head_bias=bias)
    d.attention(d.all, bias=bias, out_bias=bias)
    last = config.raw("moe_layer_end_index")
    last = int(d.num_layers) - 1 if last == -1 else config.integer("moe_layer_end_index")
    first, step = config.integer("moe_layer_start_index"), config.integer("moe_layer_interval")
    sparse = tuple(i for i in d.all if first <= i <= last and step and (i + 1) % step == 0)
    dense = without(d.all, sparse)
    inner = config.count("intermediate_size", symbol="I", label="MLP width")
    if dense:
        d.mlp(dense, inner, bias=bias)
    experts = config.count("moe_num_experts", "num_experts", symbol="E", label="routed experts")
    width = config.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.experts(
        sparse,
        experts=experts,
        per_token=config.count("moe_k", "num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=width,
        router_dtype="fp32",
    )
    module = "layers.{i}.mlp.moe_statics.e_score_correction_bias"
    if sparse:
        d.part("router score correction", Role.ROUTER, module, experts, layers=sparse, dtype="fp32")
    shared = config.maybe("moe_num_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        at = "layers.{i}.mlp.shared_experts"
        d.mlp(sparse, shared * width, bias=bias, module=at, role=Role.SHARED_EXPERTS, label="shared expert ")
    pre_norms(d)
    draft = draft_layers(d, "num_nextn_predict_layers")
    if draft:
        with drafting(d):
            d.full(draft)
            d.attention(draft, bias=bias, out_bias=bias)
            d.mlp(draft, inner, bias=bias)
            pre_norms(d, draft)
            d.norm("embedding norm", "layers.{i}.mtp_emb_norm", layers=draft)
            d.norm("state norm", "layers.{i}.mtp_hidden_norm", layers=draft)
            d.part("joining projection", Role.DRAFT, "layers.{i}.mtp_linear_proj", d.hidden, 2 * d.hidden, layers=draft)
    return d
