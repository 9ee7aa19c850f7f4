"""Logics-Thinking: Qwen3 with two vision towers side by side, a ConvNeXt and a SigLIP."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q
from gpufit.sources.adapters import qwen3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.towers import projector, siglip

TOWERS = "convnext-1024,siglip2-384"
STAGES = ((3, 384), (4, 768), (30, 1536), (3, 3072))
"""Blocks and width of each stage of CLIP's ConvNeXt-XXLarge (timm convnext_xxlarge, 846.5 M parameters)."""
EMBEDDING = 1024
"""Width of CLIP's image embedding, which the tower's own projection ends in."""
NEIGHBOURHOOD = 7 * 7
INERT = frozenset(
    {"mm_tunable_parts", "mm_vision_select_layer", "mm_vision_tower_lr", "mm_spatial_pool_stride", "faster_token_stride"}
)


def read(config: Config) -> Decoder:
    """The towers are named in one field, and only this pair is known. SigLIP stands without its last layer, whose input is used."""
    if (towers := config.text("mm_vision_tower")) != TOWERS or config.text("mm_projector_type") != "mlp2x_gelu":
        raise ConfigError(
            f"{config.where('mm_vision_tower')} is {towers!r} before {config.text('mm_projector_type')!r}",
            hint=f"{TOWERS} before mlp2x_gelu",
        )
    d = qwen3.read(config)
    sub = config.sub("siglip_config")
    if sub is None:
        raise config.missing("siglip_config")
    layers = sub.count("num_hidden_layers", symbol="L_v", label="vision layers")
    siglip(d, sub, "model.vision_tower.siglip.", head=False, layers=layers - 1)
    _convnext(d)
    p = projector(d, "model.mm_projector.", d.hidden)
    p.matrix("in", "0", d.hidden, config.count("mm_hidden_size", symbol="H_v", label="width of both towers"), bias=True)
    p.matrix("out", "2", d.hidden, d.hidden, bias=True)
    d.part("image newline", Role.PROJECTOR, "/model.image_newline", d.hidden)
    return d


def _convnext(d: Decoder) -> None:
    """Depthwise convolutions and two pointwise layers in each block, a norm and a 2x2 convolution between stages."""
    at = "/model.vision_tower.convnext."

    def one(name: str, module: str, rows: Q, columns: Q | None = None, copies: Q | None = None) -> None:
        d.part(f"vision {name}", Role.VISION, at + module, rows, columns, copies=copies)

    before: Q | None = None
    for index, (depth, width) in enumerate(STAGES):
        c = _fact(d, width, "c", "channels of a stage")
        n = _fact(d, depth, "n_c", "blocks of a stage")
        inputs = _fact(d, 3 * 4 * 4, "p", "values of a patch") if before is None else 4 * before
        normed = c if before is None else before
        stem = f"stages.{index}.downsample" if before is not None else "stem"
        one("patches", stem, c, inputs)
        one("patches bias", stem + ".bias", c)
        one("patch norm", stem + ".norm", normed)
        one("patch norm bias", stem + ".norm.bias", normed)
        block = f"stages.{index}.blocks.{{e}}."
        one("depthwise", block + "conv_dw", c, _fact(d, NEIGHBOURHOOD, "k", "points of a kernel"), n)
        one("in", block + "mlp.fc1", 4 * c, c, n)
        one("in bias", block + "mlp.fc1.bias", 4 * c, None, n)
        one("out", block + "mlp.fc2", c, 4 * c, n)
        for vector in ("conv_dw.bias", "mlp.fc2.bias", "norm", "norm.bias", "gamma"):
            one(vector, block + vector, c, None, n)
        before = c
    last = _fact(d, STAGES[-1][1], "c", "channels of a stage")
    one("last norm", "norm", last)
    one("last norm bias", "norm.bias", last)
    embedding = _fact(d, EMBEDDING, "H_c", "width of the image embedding")
    one("projection", "proj", embedding, last)
    one("projection bias", "proj.bias", embedding)


def _fact(d: Decoder, value: int, symbol: str, label: str) -> Q:
    return d.config.item(value, "mm_vision_tower (convnext_xxlarge)", symbol=symbol, label=label)
