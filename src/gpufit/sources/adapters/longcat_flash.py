"""LongCat-Flash: two latent attentions and two MLPs in each layer, and a mixture across them with experts that compute nothing."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import output
from gpufit.sources.mla import open_latent, query_rank
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("LongcatFlashForCausalLM",)
INERT = frozenset({"zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora", "num_nextn_predict_layers"})
DEFAULTS = class_defaults(
    "LongcatFlashConfig (transformers 5.24.0)",
    vocab_size=131072,
    hidden_size=6144,
    num_layers=28,
    num_attention_heads=64,
    max_position_embeddings=131072,
    ffn_hidden_size=12288,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    moe_topk=12,
    n_routed_experts=512,
    zero_expert_num=256,
    expert_ffn_hidden_size=2048,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """`num_layers` counts the double layers; each keeps two latents and so stands in two groups.

    A file that gives `num_hidden_layers` alone counts attention sublayers (LongcatFlashConfig, transformers 5.24.0).
    """
    if not config.has("num_layers") and config.has("num_hidden_layers"):
        sublayers = config.integer("num_hidden_layers")
        config.data = {**config.data, "num_layers": sublayers // 2}
    config.data = {name: value for name, value in config.data.items() if name != "num_hidden_layers"}
    if (method := config.text("attention_method")) not in (None, "MLA"):
        raise ConfigError(f"{config.where('attention_method')} is {method!r}, expected MLA", hint="a newer gpufit may know it")
    d = open_latent(config)
    bias = config.flag("attention_bias")
    inner = config.count("ffn_hidden_size", "intermediate_size", symbol="I", label="MLP width")
    heads = d.need(d.attention_heads)
    for k in (0, 1):
        d.latent(
            d.all,
            heads=heads,
            latent_rank=config.count("kv_lora_rank", symbol="r_kv", label="latent rank"),
            rope_dim=config.count("qk_rope_head_dim", symbol="d_r", label="rotary width"),
            nope_dim=config.count("qk_nope_head_dim", symbol="d_n", label="width without position"),
            value_dim=config.count("v_head_dim", symbol="d_v", label="value width"),
            query_rank=query_rank(config),
            bias=bias,
            module=f"layers.{{i}}.self_attn.{k}",
        )
        d.mlp(d.all, inner, module=f"layers.{{i}}.mlps.{k}")
        d.norm("input norm", f"layers.{{i}}.input_layernorm.{k}", layers=d.all)
        d.norm("post-attention norm", f"layers.{{i}}.post_attention_layernorm.{k}", layers=d.all)
    output(d)
    experts = config.count("n_routed_experts", symbol="E", label="routed experts")
    empty = config.maybe("zero_expert_num", symbol="E_0", label="experts that compute nothing")
    choices = experts if empty is None else experts + empty
    d.part("router", Role.ROUTER, "layers.{i}.mlp.router.classifier", choices, d.hidden, layers=d.all, dtype="fp32")
    if config.flag("router_bias"):
        d.part("router bias", Role.ROUTER, "layers.{i}.mlp.router.classifier.bias", choices, layers=d.all, dtype="fp32")
    module = "layers.{i}.mlp.router.e_score_correction_bias"
    d.part("router score correction", Role.ROUTER, module, choices, layers=d.all, dtype="fp32", buffer=True)
    used = config.count("moe_topk", "num_experts_per_tok", symbol="E_k", label="experts per token, at most")
    width = config.count("expert_ffn_hidden_size", "moe_intermediate_size", symbol="I_e", label="expert width")
    d.mlp(
        d.all,
        width,
        module="layers.{i}.mlp.experts.{e}",
        role=Role.ROUTED_EXPERTS,
        label="expert ",
        copies=experts,
        active=(used, experts),
    )
    d.norm("final norm", "norm")
    d.notes.append("active parameters are counted at most: experts that compute nothing take some of a token's places")
    return d
