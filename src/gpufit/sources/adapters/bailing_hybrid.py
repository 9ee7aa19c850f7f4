"""Ling and Ring with linear attention: Kimi Delta Attention (3.0) or Lightning attention (2.5, 2.6) before each latent-attention layer."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.kda import Kda
from gpufit.layers.linear import Linear
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_layers, drafting
from gpufit.sources.mixers import kda_mixer
from gpufit.sources.mla import latent_attention, mixture_layers, open_latent
from gpufit.sources.patterns import pre_norms, without
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("bailing_hybrid",)
ARCHITECTURES = ("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM", "BailingMoeV2_5ForCausalLM")
INERT = frozenset(
    {"kda_safe_gate", "kda_lower_bound", "linear_silu", "use_linear_silu", "linear_rope", "group_norm_size", "mtp_loss_scaling_factor",
     "moe_renormalize", "num_expert_group", "topk_group", "score_function", "moe_router_enable_routed_scaling", "max_window_layers",
     "moe_router_topk_scaling_factor",
     "scale_router_input", "use_mla_nope", "num_key_value_heads", "embedding_dropout", "output_dropout"}
)  # fmt: skip
"""Numerics and routing. `max_window_layers` belongs to a window that no class of this line has."""

DEFAULTS = {
    "vocab_size": 157184, "hidden_size": 2560, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 42,
    "num_attention_heads": 32, "num_shared_experts": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "num_experts_per_token": 8, "first_k_dense_replace": 2, "tie_word_embeddings": False, "num_experts": 512,
    "head_dim": 128, "short_conv_kernel_size": 4, "layer_group_size": 6, "model_max_length": 262144,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: BailingHybridConfig (transformers 5.24.0).

    The architecture says which mixer there is: BailingMoeV2_5 has Lightning attention (vLLM 0.33.0: bailing_moe_linear.py), the others
    Kimi Delta Attention without bottlenecks (bailing_moe_v3.py; transformers' own class has the same shapes).
    """
    architecture = str((config.items("architectures") or [""])[0])
    lightning = "V2_5" in architecture
    class_defaults(config, "BailingHybridConfig (transformers 5.24.0)", DEFAULTS)
    if architecture != "BailingMoeV2_5ForCausalLM" and not config.flag("no_kda_lora", default=not config.flag("use_kda_lora")):
        raise ConfigError(
            f"{config.where('no_kda_lora')}: bottlenecks in the delta attention of this family are not known",
            hint="a newer gpufit may",
        )
    for name in ("use_nGPT", "up_proj_norm", "value_norm"):
        if config.flag(name):
            raise ConfigError(f"{config.where(name)} is true, which is not known", hint="a newer gpufit may know it")
    d = open_latent(config)
    if d.max_context is None:
        d.max_context = config.maybe(
            "model_max_length", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE
        )
    config.ignore("model_max_length")
    types = _types(d, tail_is_full=architecture == "BailingMoeV3ForCausalLM")
    full, linear = where_is(types, "full_attention"), where_is(types, "linear_attention")
    gate = "" if lightning else _gate(config, architecture)
    _latent(d, full, gate)
    module = "layers.{i}.attention"
    if lightning:
        lightning_mixer(d, linear, module)
    else:
        kind = Kda(
            heads=config.count("linear_num_heads", "num_attention_heads", symbol="h_l", label="linear-attention heads"),
            head_dim=config.count("linear_head_dim", "head_dim", symbol="d_l", label="linear-attention head dimension"),
            kernel=config.count("linear_conv_kernel_dim", "short_conv_kernel_size", symbol="c", label="convolution kernel"),
            conv_bytes=conv_bytes(config),
            recurrent_bytes=recurrent_bytes(config, default=Default(value="float32", source="Kimi Delta Attention (vLLM 0.33.0)")),
        )
        config.ignore("short_conv_kernel_size")
        kda_mixer(d, linear, kind, low_rank_gate=False, low_rank_decay=False, module=module)
    output(d, module="word_embeddings")
    pre_norms(d)
    sparse = mixture_layers(d)
    d.mlp(without(d.all, sparse), config.count("intermediate_size", symbol="I", label="MLP width"), bias=config.flag("use_bias"))
    experts(d, sparse)
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    if draft:
        with drafting(d):
            _latent(d, draft, gate)
            experts(d, draft)
            pre_norms(d, draft)
            d.norm("embedding norm", "layers.{i}.enorm", layers=draft)
            d.norm("state norm", "layers.{i}.hnorm", layers=draft)
            d.norm("draft norm", "layers.{i}.final_layernorm", layers=draft)
            d.part("joining projection", Role.DRAFT, "layers.{i}.eh_proj", d.hidden, 2 * d.hidden, layers=draft, linear=True)
    say_defaults(d)
    return d


def _types(d: Decoder, *, tail_is_full: bool) -> list[str]:
    """The word for each layer: a list, else the last of each `layer_group_size` layers attends.

    With `tail_is_full` so do the layers after the last whole group (vLLM 0.33.0: bailing_moe_v3.py).
    """
    config = d.config
    known = ("linear_attention", "full_attention", "attention")
    group = config.integer("layer_group_size")
    listed = layer_types(config, d.num_layers, ("layer_types", "layers_block_type"), known)
    if listed is not None:
        return ["full_attention" if word == "attention" else word for word in listed]
    if group < 1:
        return ["full_attention"] * int(d.num_layers)
    whole = int(d.num_layers) // group * group
    return ["full_attention" if (i + 1) % group == 0 or (tail_is_full and i >= whole) else "linear_attention" for i in d.all]


def _gate(config: Config, architecture: str) -> str:
    """How fine the output gate of latent attention is; transformers' own class always has one value a head."""
    word = config.text("gated_attention_proj_granularity_type")
    if word is None:
        return "" if architecture == "BailingMoeV3ForCausalLM" else "head_wise"
    if word not in ("head_wise", "element_wise"):
        raise ConfigError(
            f"{config.where('gated_attention_proj_granularity_type')} is {word!r}, expected head_wise or element_wise",
            hint="check the config.json",
        )
    return word


def _latent(d: Decoder, layers: tuple[int, ...], gate: str) -> None:
    """Latent attention and its output gate, one value for each head or for each of its value elements."""
    latent_attention(d, layers, bias=d.config.flag("attention_bias"))
    if gate:
        rows: Q = d.need(d.attention_heads)
        if gate == "element_wise":
            rows = rows * d.config.count("v_head_dim", symbol="d_v", label="value width")
        d.linear("output gate", Role.ATTENTION, "layers.{i}.attention.g_proj", rows, d.hidden, layers=layers, shard=Shard.COLUMN)


def lightning_mixer(d: Decoder, layers: tuple[int, ...], module: str) -> None:
    """Lightning attention as in Ring-linear: fused projections for as many KV heads as heads, an output gate and a group norm."""
    if not layers:
        return
    config, role = d.config, Role.STATE
    heads = d.need(d.attention_heads)
    dim = config.count("head_dim", symbol="d_l", label="linear-attention head dimension")
    kind = Linear(heads=heads, head_dim=dim, conv_bytes=conv_bytes(config), recurrent_bytes=recurrent_bytes(config))
    d.layer(kind, layers)
    inner = (heads * dim).as_step("I_m", "width of a linear-attention layer")
    bias = config.flag("use_bias")
    d.linear(
        "linear query_key_value", role, f"{module}.query_key_value", 3 * inner, d.hidden, layers=layers, shard=Shard.COLUMN,
        bias=bias or config.flag("use_qkv_bias"),
    )  # fmt: skip
    if config.flag("use_qk_norm"):
        d.norm("linear query norm", f"{module}.query_layernorm", layers=layers, size=dim)
        d.norm("linear key norm", f"{module}.key_layernorm", layers=layers, size=dim)
    d.linear("linear g_proj", role, f"{module}.g_proj", inner, d.hidden, layers=layers, shard=Shard.COLUMN)
    d.part("linear g_norm", Role.NORM, f"{module}.g_norm", inner, layers=layers, shard=Shard.COLUMN)
    d.linear("linear dense", role, f"{module}.dense", d.hidden, inner, layers=layers, shard=Shard.ROW, bias=bias)


def experts(d: Decoder, layers: tuple[int, ...]) -> None:
    """Routed experts behind an fp32 router, and shared ones."""
    if not layers:
        return
    config = d.config
    width = config.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.experts(
        layers,
        experts=config.count("num_experts", "num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", "num_experts_per_token", symbol="E_k", label="experts per token"),
        intermediate=width,
        score_correction=config.flag("moe_router_enable_expert_bias", default=True),
        router_dtype="fp32" if config.text("router_dtype") in (None, "fp32") else None,
    )
    shared = config.count("num_shared_experts", "n_shared_experts", symbol="E_s", label="shared experts")
    if not config.flag("moe_router_enable_shared_expert", default=True) and int(shared):
        where = config.where("moe_router_enable_shared_expert")
        raise ConfigError(f"{where} is false, but there are {shared.value} shared experts", hint="check the config.json")
    if int(shared):
        one = config.maybe("moe_shared_expert_intermediate_size", symbol="I_s", label="shared expert width")
        d.shared_experts(layers, shared * (one if one is not None else width))
