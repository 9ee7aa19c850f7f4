"""MiniCPM-V 4.6: a SigLIP tower that merges patches half way, a merger, and a Qwen3.5 text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, projector, siglip

MODEL_TYPES = ("minicpmv4_6",)
ARCHITECTURES = ("MiniCPMV4_6ForConditionalGeneration",)
SOURCE = "MiniCPMV4_6Config (transformers 5.24.0)"
VISION = class_defaults(
    "MiniCPMV4_6VisionConfig (transformers 5.24.0)",
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    image_size=224,
    patch_size=16,
)


def read(config: Config) -> Decoder:
    """Unties by default. The published class keeps the tower's last layer whatever `drop_vision_last_layer` says."""
    config.ignore("insert_layer_id", "image_size", "patch_size", "drop_vision_last_layer")
    d = text_model(
        config,
        prefix="model.language_model.",
        model_type="qwen3_5_text",
        tied=outer_tied(config, Default(value=False, source=SOURCE)),
    )
    v = config.sub("vision_config")
    if v is None:
        return d
    v.ignore("insert_layer_id")
    tower = siglip(d, v, "model.vision_tower.", known=VISION, head=False)
    inner = v.count("intermediate_size", symbol="I_v", label="tower MLP width", default=VISION["intermediate_size"])
    _window_merger(d, v, tower, inner)
    joined = _area(config, "merge_kernel_size") * tower.width
    times = config.integer("merger_times", default=1)
    for i in range(times):
        out = d.hidden if i == times - 1 else tower.width
        p = projector(d, f"model.merger.mlp.{i}.", joined, f"merger {i} ")
        p.norm("norm", "pre_norm", bias=True)
        p.matrix("in", "linear_1", joined, joined, bias=True)
        p.matrix("out", "linear_2", out, joined, bias=True)
    return d


def _area(config: Config, name: str) -> Q:
    """The patches of one window, from its two edges."""
    edges = config.items(name) or [2, 2]
    if len(edges) != 2:
        raise ConfigError(f"{config.where(name)} is {edges!r}, expected two numbers", hint="check the config.json")
    return config.item(edges[0], name, symbol="m_h", label="window height") * config.item(
        edges[1], name, symbol="m_w", label="window width"
    )


def _window_merger(d: Decoder, v: Config, tower: Tower, inner: Q) -> None:
    """Attention within a window and an MLP that makes one token of it, inside the tower."""
    width, area = tower.width, _area(v, "window_kernel_size")
    t = Tower(
        decoder=d, role=Role.VISION, prefix="model.vision_tower.vit_merger.", width=width, depth=width, label="vision merger "
    )
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        t.matrix(name, f"self_attn.{name}", width, width, bias=True)
    t.norm("norm", "layer_norm1", bias=True)
    t.norm("norm of the window", "pre_norm", area * width, bias=True)
    t.matrix("in", "linear_1", area * inner, area * width, bias=True)
    t.matrix("out", "linear_2", width, area * inner, bias=True)
