"""ERNIE 4.5 VL mixtures: each sparse layer has experts for text and experts for what is seen, and shared ones beside both."""

from __future__ import annotations

from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.nested import said_again
from gpufit.sources.patterns import class_defaults, pre_norms, spread, without
from gpufit.sources.states import say_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, patch_of, projector, width_of

MODEL_TYPES = ("ernie4_5_moe_vl", "ernie4_5_vl_moe")
ARCHITECTURES = ("Ernie4_5_VLMoeForConditionalGeneration",)
INERT = frozenset(
    {
        "moe_capacity", "moe_gate", "moe_norm_min", "moe_use_aux_free", "moe_multimodal_dispatch_use_allgather", "multimodel_experts",
        "use_recompute_moe", "moe_use_hard_gate", "moe_group", "moe_gate_act", "moe_aux_loss_lambda", "moe_orthogonal_loss_lambda",
        "compression_ratio",
        "moe_z_loss_lambda", "sinkhorn_2gate", "sinkhorn_temp", "moe_dense_experts_token_type_id", "vit_num_recompute_layers",
    }
)  # fmt: skip
TEXT = "Ernie4_5_VLMoeTextConfig (transformers 5.24.0)"
VISION = class_defaults("Ernie4_5_VLMoeVisionConfig (transformers 5.24.0)", depth=32, patch_size=14, in_channels=3)


def read(config: Config) -> Decoder:
    """The published file holds the text model's fields at the top level; the library's own form nests them."""
    text = config.sub("text_config")
    if text is None:
        text = config
    else:
        said_again(config, text)
    d = open_decoder(text, tie_default=Default(value=True, source=TEXT), tie_from=config)
    bias = text.flag("use_bias")
    d.full(d.all)
    d.embedding(head_bias=bias)
    d.attention(d.all, bias=bias, out_bias=bias)
    sparse = sparse_layers(text, int(d.num_layers))
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, text.count("intermediate_size", symbol="I", label="MLP width"), bias=bias)
    text.ignore("intermediate_size")
    if sparse:
        _experts(d, text, sparse, bias)
    pre_norms(d)
    _vision(d, config)
    say_defaults(d)
    return d


def sparse_layers(text: Config, layers: int) -> tuple[int, ...]:
    """The mixture layers, which must be the same for text and for images (they are in every published file)."""
    words = text.items("mlp_layer_types")
    if words is not None and len(words) == layers:
        return spread(text, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    first, last = both(text, "moe_layer_start_index"), both(text, "moe_layer_end_index")
    ends = [layers - 1 if end == -1 or end >= layers else end for end in last]
    if first[0] != first[1] or ends[0] != ends[1]:
        raise ConfigError(
            f"{text.where('moe_layer_start_index')} is {first} and the ends are {last}: layers with experts of one kind only are not "
            "known",
            hint="a newer gpufit may know them",
        )
    step = text.integer("moe_layer_interval", default=1)
    return tuple(i for i in range(first[0], ends[0] + 1) if step and (i + 1) % step == 0)


def both(text: Config, name: str) -> tuple[int, int]:
    """The numbers for text and for images; one number means both."""
    value: Any = text.raw(name)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) and v >= -1 for v in pair):
        raise ConfigError(
            f"{text.where(name)} is {value!r}, expected a number for text and one for images", hint="check the config.json"
        )
    return pair[0], pair[1]


def _experts(d: Decoder, text: Config, sparse: tuple[int, ...], bias: bool) -> None:
    """Both mixtures stand in one list of experts in the file, behind a router each; their corrections count as parameters."""
    counts, widths = both(text, "moe_num_experts"), both(text, "moe_intermediate_size")
    used = text.count("moe_k", symbol="E_k", label="experts per token")
    none = text.item(0, "moe_k", symbol="E_kv", label="vision experts that a text token visits")
    module = "layers.{i}.mlp"
    for kind, number, wide, router in (
        ("text ", counts[0], widths[0], f"{module}.gate.weight"),
        ("vision ", counts[1], widths[1], f"{module}.gate.weight_1"),
    ):
        experts = text.item(number, "moe_num_experts", symbol="E" if kind == "text " else "E_v", label=f"{kind}experts")
        width = text.item(wide, "moe_intermediate_size", symbol="I_e" if kind == "text " else "I_ev", label=f"{kind}expert width")
        d.part(f"{kind}router", Role.ROUTER, router, experts, d.hidden, layers=sparse, dtype="fp32")
        d.part(f"{kind}router score correction", Role.ROUTER, f"{module}.moe_statics.{kind}e_score_correction_bias".replace(" ", "_"),
               experts, layers=sparse, dtype="fp32")  # fmt: skip
        d.mlp(sparse, width, module=f"{module}.experts.{{e}}", role=Role.ROUTED_EXPERTS, label=f"{kind}expert ", copies=experts,
              active=(used if kind == "text " else none, experts))  # fmt: skip
    d.notes.append("active parameters are those of a text token, which visits no expert for images")
    shared = text.maybe("moe_num_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        width = text.item(widths[0], "moe_intermediate_size", symbol="I_e", label="text expert width")
        d.mlp(
            sparse, shared * width, bias=bias, module=f"{module}.shared_experts", role=Role.SHARED_EXPERTS, label="shared expert "
        )


def _vision(d: Decoder, config: Config) -> None:
    """A tower like Qwen2-VL's, and a resampler that joins patches in space and then frames in time."""
    v = config.sub("vision_config")
    if v is None:
        raise config.missing("vision_config")
    v.fall_back(VISION)
    v.ignore("num_heads", "embed_dim", "spatial_patch_size", "attn_sep", "vit_first_fwd_bsz", "in_chans", "hidden_size")
    width = width_of(v, "hidden_size", "embed_dim")
    t = Tower(decoder=d, role=Role.VISION, prefix="vision_model.", width=width, depth=depth_of(v, "depth"))
    patch = patch_of(v, "patch_size")
    t.patches("patch_embed.proj", channels_of(v) * patch * patch, bias=False)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    inner = v.maybe("intermediate_size", symbol="I_v", label="tower MLP width")
    ratio = v.count("mlp_ratio", symbol="r_v", label="MLP ratio of the tower", default=Default(value=4, source=TEXT))
    t.mlp(inner if inner is not None else ratio * width)
    t.norm("last norm", "ln", bias=True)
    joined = _joined(config, v)
    space = (joined * joined * width).as_step("H_r", "joined patches")
    frames = config.maybe("temporal_conv_size", symbol="t_r", label="frames joined") or v.count(
        "temporal_merge_size", symbol="t_r", label="frames joined", default=Default(value=2, source=TEXT)
    )
    if not config.flag("use_temporal_conv", default=True):
        raise ConfigError(f"{config.where('use_temporal_conv')} is false: no such model is published", hint="check the config.json")
    config.ignore("pixel_hidden_size")
    p = projector(d, "model.resampler_model.", space, "resampler ")
    for name, inputs in (("spatial_linear", space), ("temporal_linear", space * frames)):
        p.matrix(f"{name} 1", f"{name}.0", space, inputs, bias=True)
        p.matrix(f"{name} 2", f"{name}.2", space, space, bias=True)
        p.norm(f"{name} norm", f"{name}.3", bias=True)
    p.matrix("output", "mlp", d.hidden, space, bias=True)
    p.norm("last norm", "after_norm", d.hidden)


def _joined(config: Config, v: Config) -> Q:
    """Patches joined along each axis."""
    outer = config.maybe("spatial_conv_size", symbol="m_v", label="patches joined per axis")
    inner = v.maybe("spatial_merge_size", symbol="m_v", label="patches joined per axis")
    found = outer if outer is not None else inner
    if found is None:
        raise config.missing("spatial_conv_size")
    if outer is not None and inner is not None and int(outer) != int(inner):
        raise ConfigError(
            f"{config.where('spatial_conv_size')} is {outer.value}, but spatial_merge_size is {inner.value}",
            hint="check the config.json",
        )
    return found
