"""Phi-3 Vision: the CLIP ViT-L/14 tower at 336 pixels and a two-layer projection before a Phi-3 text model."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.adapters import phi3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import fixed, read_flat
from gpufit.sources.towers import blocks_used, clip, projector

ARCHITECTURES = ("Phi3VForCausalLM",)
INERT: frozenset[str] = getattr(phi3, "INERT", frozenset()) | {"embd_layer"}
PREFIX = "model.vision_embed_tokens."


def read(config: Config) -> Decoder:
    """The file names the tower (openai/clip-vit-large-patch14-336) and not its shape. Four patches are joined before the projection."""
    d = read_flat(config, phi3.read)
    d.prefix = ""
    tower_name = (config.raw("img_processor") or {}).get("model_name", "openai/clip-vit-large-patch14-336")
    if tower_name != "openai/clip-vit-large-patch14-336":
        raise ConfigError(
            f"{config.where('img_processor')} names the tower {tower_name!r}",
            hint="openai/clip-vit-large-patch14-336 is understood",
        )
    layer = config.raw("embd_layer") or {}
    v = fixed(tower_name, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, image_size=336, patch_size=14)
    tower = clip(d, v, PREFIX + "img_processor.vision_model.")
    if (used := blocks_used(config, tower.depth, -2)) is not None:
        d.extras["tower_blocks"] = used
    joined = 4 * tower.width
    p = projector(d, PREFIX, tower.width)
    if layer.get("projection_cls", "mlp") != "mlp":
        raise ConfigError(f"{config.where('embd_layer')} has projection_cls {layer['projection_cls']!r}", hint="mlp is understood")
    p.matrix("in", "img_projection.0", d.hidden, joined, bias=True)
    p.matrix("out", "img_projection.2", d.hidden, d.hidden, bias=True)
    if layer.get("with_learnable_separator", True):
        for name in ("glb_GN", "sub_GN"):
            d.part(f"separator {name}", Role.PROJECTOR, f"/{PREFIX}{name}", joined)
    return d
