"""Qwen3-Next: gated full attention every fourth layer, Gated DeltaNet between, a mixture of experts in each."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.gated_delta import GatedDelta
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, Layers, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import gated_delta_mixer
from gpufit.sources.states import class_defaults, conv_bytes, layer_types, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("qwen3_next",)

MIXER = {
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "tie_word_embeddings": False, "max_position_embeddings": 32768,
    "head_dim": 256,
}  # fmt: skip
"""Class defaults that the whole line of models shares (Qwen3NextConfig, Qwen3_5TextConfig, Qwen3_5MoeTextConfig)."""

DEFAULTS = MIXER | {
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "decoder_sparse_step": 1, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10, "num_experts": 512,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Hybrid of gated attention and Gated DeltaNet. The published checkpoint holds one multi-token-prediction layer beside it.

    The recurrent state has the model's own dtype (vLLM 0.33.0 has no rule for this family). The config does not say how many draft
    layers there are; vLLM's draft class takes one (model_executor/models/qwen3_next_mtp.py).
    """
    class_defaults(config, "Qwen3NextConfig (transformers 5.24.0)", DEFAULTS)
    d, types = open_hybrid(config)
    mixers(d, types, fused=True, state=recurrent_bytes(config))
    dense, sparse = sparse_layers(d)
    dense_mlp(d, dense)
    experts(d, sparse)
    draft = open_draft(d, "num_nextn_predict_layers", Default(value=1, source="Qwen3NextMultiTokenPredictor (vLLM 0.33.0)"))
    experts(draft, draft.all)
    close_draft(d, draft)
    say_defaults(d)
    return d


def open_hybrid(config: Config, *, tie_from: Config | None = None, prefix: str = "model.") -> tuple[Decoder, list[str]]:
    """The decoder with its embedding and norms, and the word for each layer (`layer_types`, else one full layer per interval)."""
    d = open_decoder(config, tie_default=False, tie_from=tie_from, prefix=prefix)
    words = layer_types(config, d.num_layers, ("layer_types",), ("linear_attention", "full_attention"))
    interval = config.integer("full_attention_interval")
    if words is None:
        if interval < 1:
            raise ConfigError(
                f"{config.where('full_attention_interval')} is {interval}, expected at least 1", hint="check the config.json"
            )
        words = ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in d.all]
    output(d)
    layer_norms(d, d.all)
    d.norm("final norm", "norm")
    return d, words


def layer_norms(d: Decoder, layers: Layers) -> None:
    """The two norms of each layer."""
    at = tuple(layers)
    d.norm("input norm", "layers.{i}.input_layernorm", layers=at)
    d.norm("post-attention norm", "layers.{i}.post_attention_layernorm", layers=at)


def mixers(d: Decoder, types: list[str], *, fused: bool, state: Q) -> None:
    """Gated attention in the full layers, Gated DeltaNet in the others."""
    config = d.config
    gated_attention(d, where_is(types, "full_attention"))
    kind = GatedDelta(
        key_heads=config.count("linear_num_key_heads", symbol="h_k", label="linear key heads"),
        value_heads=config.count("linear_num_value_heads", symbol="h_v", label="linear value heads"),
        key_dim=config.count("linear_key_head_dim", symbol="d_k", label="linear key head dimension"),
        value_dim=config.count("linear_value_head_dim", symbol="d_v", label="linear value head dimension"),
        kernel=config.count("linear_conv_kernel_dim", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=state,
    )
    gated_delta_mixer(d, where_is(types, "linear_attention"), kind, fused=fused)


def gated_attention(d: Decoder, layers: Layers) -> None:
    """Full attention whose query projection is doubled by an output gate, with norms over each query and key head."""
    at = tuple(layers)
    bias = d.config.flag("attention_bias")
    d.full(at)
    d.attention(at, bias=bias, out_bias=bias, qk_norm="head", gate=d.config.flag("attn_output_gate", default=True))


def sparse_layers(d: Decoder) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dense and sparse layers: `mlp_only_layers` and every layer that `decoder_sparse_step` leaves out are dense."""
    only = {int(i) for i in d.config.items("mlp_only_layers") or []}
    step = d.config.integer("decoder_sparse_step")
    if step < 1:
        raise ConfigError(f"{d.config.where('decoder_sparse_step')} is {step}, expected at least 1", hint="check the config.json")
    some = d.config.integer("num_experts") > 0
    sparse = tuple(i for i in d.all if some and i not in only and (i + 1) % step == 0)
    return tuple(i for i in d.all if i not in sparse), sparse


def dense_mlp(d: Decoder, layers: Layers) -> None:
    """The gated MLP of layers without experts. Its width also stands in configs of models without such layers."""
    d.mlp(layers, d.config.count("intermediate_size", symbol="I", label="MLP width"))


def experts(d: Decoder, layers: Layers) -> None:
    """Routed experts and one gated shared expert."""
    at = tuple(layers)
    if not at:
        return
    config = d.config
    d.experts(
        at,
        experts=config.count("num_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", symbol="I_e", label="expert width"),
    )
    shared = config.count("shared_expert_intermediate_size", symbol="I_s", label="shared expert width")
    d.shared_experts(at, shared, gate=True, module="layers.{i}.mlp.shared_expert")


def open_draft(d: Decoder, field: str, default: Default | None = None) -> Decoder:
    """A decoder for the multi-token-prediction layers; their embedding and output head are the model's own."""
    return Decoder(
        config=d.config, hidden=d.hidden, prefix="mtp.",
        num_layers=d.config.count(field, symbol="L_d", label="draft layers", default=default),
        attention_heads=d.attention_heads, kv_heads=d.kv_heads, head_dim=d.head_dim,
    )  # fmt: skip


def close_draft(d: Decoder, draft: Decoder) -> None:
    """Adds the gated attention and the joining projection that every draft has, and files it as the decoder's draft."""
    if not draft.all:
        return
    gated_attention(draft, draft.all)
    layer_norms(draft, draft.all)
    draft.part("draft fc", Role.DRAFT, "fc", draft.hidden, 2 * draft.hidden, shard=Shard.COLUMN, linear=True)
    draft.norm("draft embedding norm", "pre_fc_norm_embedding")
    draft.norm("draft hidden norm", "pre_fc_norm_hidden")
    draft.norm("draft final norm", "norm")
    d.draft_parts += draft.parts
    d.draft_groups += draft.groups
