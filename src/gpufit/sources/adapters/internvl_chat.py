"""InternVL as published with its own code: InternViT, pixel shuffle, a two-layer projection, and a text model of several families."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.more_towers import intern_vit
from gpufit.sources.nested import text_model
from gpufit.sources.towers import Tower

MODEL_TYPES = ("internvl_chat", "h2ovl_chat", "skywork_chat", "NVLM_D")
ARCHITECTURES = ("InternVLChatModel", "H2OVLChatModel", "SkyworkR1VChatModel", "NVLM_D", "NVLM_D_Model")
SETTINGS = (
    "force_image_size", "dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "pad2square", "select_layer", "use_thumbnail",
    "use_backbone_lora", "use_llm_lora", "tie_word_embeddings", "vision_select_layer", "hidden_size", "output_attentions",
)  # fmt: skip


def read(config: Config) -> Decoder:
    """The text model decides about its head by its own config. `downsample_ratio` (0.5) joins four patches into one token."""
    for name in ("use_backbone_lora", "use_llm_lora"):
        if config.raw(name):
            raise ConfigError(
                f"{config.where(name)} is {config.raw(name)}: low-rank weights beside the model's own", hint="merge them first"
            )
    d = text_model(config, "llm_config", inside="language_model.")
    v = config.sub("vision_config")
    if v is not None:
        size = config.maybe("force_image_size", symbol="M_v", label="image edge")
        tower = intern_vit(d, v, "vision_model.", image=size)
        joined = joined_patches(config, tower.width)
        p = Tower(decoder=d, role=Role.PROJECTOR, prefix="mlp1.", width=joined, depth=joined, label="projector ")
        p.norm("norm", "0", bias=True)
        # NVLM's projection has the width of the text model's MLP and no biases.
        nvlm = config.text("model_type") == "NVLM_D"
        inner = d.config.count("intermediate_size", symbol="I", label="MLP width") if nvlm else d.hidden
        p.matrix("in", "1", inner, joined, bias=not nvlm)
        p.matrix("out", "3", d.hidden, inner, bias=not nvlm)
    config.ignore(*SETTINGS)
    return d


def joined_patches(config: Config, width: Q) -> Q:
    """The width of the patches that pixel shuffle joins into one token: one over `downsample_ratio` squared of them."""
    ratio = config.raw("downsample_ratio")
    edge = 2 if ratio is None else round(1 / float(ratio))
    if ratio is not None and edge * float(ratio) != 1:
        raise ConfigError(
            f"{config.where('downsample_ratio')} is {ratio!r}, expected one over a whole number", hint="check the config.json"
        )
    side = config.item(edge, "downsample_ratio", symbol="s_v", label="patches joined per axis")
    return side * side * width
