"""Kimi-Linear, and the text model of Kimi-K3: Kimi Delta Attention with latent attention every fourth layer, and experts."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.kda import Kda
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import kda_mixer
from gpufit.sources.mla import latent_attention, mixture_layers, open_latent
from gpufit.sources.patterns import pre_norms, without
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("kimi_linear",)
INERT = frozenset(
    {"mla_use_nope", "moe_renormalize", "moe_router_activation_func", "use_grouped_topk", "num_expert_group", "topk_group",
     "activation_situ_beta", "activation_situ_linear_beta", "gate_lower_bound"}
)  # fmt: skip
"""Routing and numerics: `mla_use_nope` leaves positions out of latent attention, the cached width stays."""

DEFAULTS = {
    "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 27,
    "num_attention_heads": 32, "num_shared_experts": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "num_experts_per_token": 8, "tie_word_embeddings": False, "num_experts": 256, "linear_head_dim": 128,
    "linear_num_heads": 32, "linear_conv_kernel_dim": 4, "first_k_dense_replace": 1, "model_max_length": 1048576,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: KimiLinearConfig (transformers 5.24.0). Recurrent states are fp32 unless a flag says otherwise (vLLM 0.33.0)."""
    class_defaults(config, "KimiLinearConfig (transformers 5.24.0)", DEFAULTS)
    d = open_latent(config)
    if d.max_context is None:
        d.max_context = config.maybe(
            "model_max_length", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE
        )
    config.ignore("model_max_length")
    _mixers(d)
    output(d)
    pre_norms(d)
    sparse = mixture_layers(d)
    config.ignore("num_experts")
    d.mlp(without(d.all, sparse), config.count("intermediate_size", symbol="I", label="MLP width"))
    _experts(d, sparse)
    _residual_attention(d)
    say_defaults(d)
    return d


def _mixers(d: Decoder) -> None:
    """Latent attention and Kimi Delta Attention, by `layer_types` or by the numbers, from 1 on, in `linear_attn_config`."""
    config = d.config
    nested = config.sub("linear_attn_config")
    types = layer_types(config, d.num_layers, ("layer_types",), ("linear_attention", "full_attention"))
    if types is None:
        types = _numbered(d, nested) if nested is not None else None
    if types is None:
        types = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in d.all]
    full = where_is(types, "full_attention")
    latent_attention(d, full)
    if config.flag("mla_use_output_gate"):
        width = d.need(d.attention_heads) * config.count("v_head_dim", symbol="d_v", label="value width")
        d.linear("output gate", Role.ATTENTION, "layers.{i}.self_attn.g_proj", width, d.hidden, layers=full, shard=Shard.COLUMN)
    c = nested if nested is not None else config
    if nested is not None:
        for name, other in (
            ("head_dim", "linear_head_dim"),
            ("num_heads", "linear_num_heads"),
            ("short_conv_kernel_size", "linear_conv_kernel_dim"),
        ):
            if not nested.present(name):
                nested.fall_back({name: Default(value=config.raw(other), source=config.where(other))})
    kind = Kda(
        heads=c.count("num_heads", "linear_num_heads", symbol="h_l", label="linear-attention heads"),
        head_dim=c.count(
            "head_dim" if nested is not None else "linear_head_dim", symbol="d_l", label="linear-attention head dimension"
        ),
        kernel=c.count("short_conv_kernel_size", "linear_conv_kernel_dim", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config, default=Default(value="float32", source="Kimi Delta Attention (vLLM 0.33.0)")),
    )
    full_rank = nested is not None and nested.flag("use_full_rank_gate")
    kda_mixer(d, where_is(types, "linear_attention"), kind, low_rank_gate=not full_rank)


def _numbered(d: Decoder, nested: Config) -> list[str] | None:
    """The word for each layer from two lists of layer numbers, which must name each layer once."""
    full, linear = nested.items("full_attn_layers"), nested.items("kda_layers")
    if full is None or linear is None:
        return None
    if sorted([*full, *linear]) != [i + 1 for i in d.all]:
        raise ConfigError(
            f"{nested.where('kda_layers')} and full_attn_layers do not name each of the {int(d.num_layers)} layers once",
            hint="check the config.json",
        )
    return ["full_attention" if i + 1 in full else "linear_attention" for i in d.all]


def _experts(d: Decoder, layers: tuple[int, ...]) -> None:
    """Routed experts, in a latent space of `routed_expert_hidden_size` where there is one, and shared ones beside them.

    Kimi-K3's recipe quantises experts only, so the projections to and from the latent space stay at 16 bit (vLLM 0.33.0 creates them so).
    """
    if not layers:
        return
    config, moe = d.config, "layers.{i}.block_sparse_moe"
    width = config.count("moe_intermediate_size", symbol="I_e", label="expert width")
    latent = config.maybe("routed_expert_hidden_size", symbol="H_e", label="latent expert width")
    d.experts(
        layers,
        experts=config.count("num_experts", "num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_token", "num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=width, score_correction=True, module=moe, names=("w1", "w3", "w2"), hidden=latent,
    )  # fmt: skip
    if latent is not None:
        d.part("routed_expert_down_proj", Role.SHARED_EXPERTS, f"{moe}.routed_expert_down_proj", latent, d.hidden, layers=layers)
        d.part("routed_expert_up_proj", Role.SHARED_EXPERTS, f"{moe}.routed_expert_up_proj", d.hidden, latent, layers=layers)
        if config.flag("latent_moe_use_norm"):
            d.norm("routed expert norm", f"{moe}.routed_expert_norm", layers=layers, size=latent)
    shared = config.count("num_shared_experts", "n_shared_experts", symbol="E_s", label="shared experts")
    if int(shared):
        d.shared_experts(layers, shared * width, module=f"{moe}.shared_experts")


def _residual_attention(d: Decoder) -> None:
    """Kimi-K3's attention over earlier blocks of layers: a norm and a score vector before each half layer and before the output."""
    if d.config.maybe("attn_res_block_size", symbol="n_r", label="layers of a residual block") is None:
        return
    one = d.config.item(1, "attn_res_block_size", symbol="one", label="one score")
    for name in ("self_attention_res", "mlp_res"):
        d.norm(f"{name}_norm", f"layers.{{i}}.{name}_norm", layers=d.all)
        d.part(f"{name}_proj", Role.OTHER, f"layers.{{i}}.{name}_proj", one, d.hidden, layers=d.all)
    d.norm("output_attn_res_norm", "output_attn_res_norm")
    d.part("output_attn_res_proj", Role.OTHER, "output_attn_res_proj", one, d.hidden)
