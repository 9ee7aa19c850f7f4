"""Step 3.7: the text model of Step 3.5 with a vision tower of its own; some files give the text fields flat and no tower."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.adapters import step3p5
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import text_model
from gpufit.sources.patterns import class_defaults, known
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, patch_of, projector, width_of

MODEL_TYPES = ("step3p7",)
ARCHITECTURES = ("Step3p7ForConditionalGeneration", "Step3p7FlashForCausalLM")
INERT = step3p5.INERT | {"understand_projector_stride", "ls_init_value", "layer_scale_init_value"}
CLASS = "Step3p7VisionConfig (transformers 5.24.0)"
DEFAULTS = class_defaults(CLASS, hidden_size=1536, num_hidden_layers=47, image_size=728, patch_size=14, num_channels=3)
RATIO = "mlp_ratio"


def read(config: Config) -> Decoder:
    """A file without `vision_config` has the tower of the published class, as transformers builds it."""
    nested = config.sub("text_config") is not None
    d = text_model(config, reader=step3p5.read) if nested else step3p5.read(config)
    vision = config.sub("vision_config")
    if vision is None:
        vision = Config({}, origin=config.origin, path="vision_config.")
        d.notes.append(f"no vision_config: the vision tower is that of {CLASS}")
    vision.fall_back(DEFAULTS)
    tower(d, vision, bias=config.flag("projector_bias"))
    return d


def tower(d: Decoder, v: Config, *, bias: bool) -> None:
    """Blocks with layer scales, two convolutions that halve the grid and double the width, and one projection."""
    v.ignore(
        "heads", "num_attention_heads", "use_cls_token", "use_ln_post", "use_ln_pre", "use_abs_posemb", "use_rope2d", "pool_type"
    )
    patch = patch_of(v)
    t = Tower(
        decoder=d,
        role=Role.VISION,
        prefix="vision_model.",
        width=width_of(v, "width", "hidden_size"),
        depth=depth_of(v, "layers", "num_hidden_layers"),
        block="transformer.resblocks.{e}.",
    )
    ratio = v.raw(RATIO)
    inner = round(int(t.width) * float(8960 / 1536 if ratio is None else ratio))
    v.ignore("intermediate_size")
    t.patches("conv1", channels_of(v) * patch * patch, bias=False)
    side = image_of(v) // patch
    t.part("positions", "positional_embedding", side * side, t.width)
    t.norm("norm before blocks", "ln_pre", bias=True)
    t.norms("ln_1", "ln_2", bias=True)
    for name in ("ls_1", "ls_2"):
        t.part(f"layer scale {name}", f"{name}.gamma", t.width, each=True)
    t.qkv("attn.in_proj", "attn.out_proj")
    t.mlp(v.item(inner, RATIO, symbol="I_v", label="tower MLP width"), names=("c_fc", "c_proj"))
    nine = known(9, symbol="k_v", label="points of a 3 x 3 kernel", source="modeling_step3p7.py (transformers 5.24.0)")
    for i, (wide, narrow) in enumerate(((2 * t.width, t.width), (4 * t.width, 2 * t.width)), 1):
        t.part(f"downsampler {i}", f"vit_downsampler{i}", wide, narrow * nine)
        t.part(f"downsampler {i} bias", f"vit_downsampler{i}.bias", wide)
    p = projector(d, "", t.width)
    p.matrix("projection", "vit_large_projector", d.hidden, 4 * t.width, bias=bias, shard=Shard.COLUMN)
