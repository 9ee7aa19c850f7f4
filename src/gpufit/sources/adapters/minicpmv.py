"""MiniCPM-V 1 to 4.5: a SigLIP tower, a resampler of learned queries, and a text model that changed with every version."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.adapters import llama, minicpm, qwen2, qwen3
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.more_towers import resampler
from gpufit.sources.nested import fixed, read_flat
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, inner_of, patch_of, siglip, width_of

ARCHITECTURES = ("MiniCPMV",)
INERT = minicpm.INERT | qwen2.__dict__.get("INERT", frozenset())
READERS = {"2.0": minicpm.read, "2.5": llama.read, "2.6": qwen2.read, "4.0": llama.read, "4.5": qwen3.read}
VISION = class_defaults(
    "MiniCPMVConfig", hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, image_size=980, patch_size=14
)
SETTINGS = (
    "batch_vision_input",
    "slice_mode",
    "slice_config",
    "mm_use_im_start_end",
    "image_size",
    "patch_size",
    "batch_3d_resampler",
    "dim_model_base",
    "scale_emb",
    "use_image_id",
    "vision_batch_size",
)


def read(config: Config) -> Decoder:
    """Which text model it is follows from `version`, or without one from its width: 1 and 2.0 have MiniCPM's 2304, 2.5 Llama 3's."""
    version = config.text("version")
    if version is None:
        version = "2.0" if config.raw("hidden_size") == 2304 else "2.5"
    version = {"2": "2.0", "4": "4.0"}.get(version, version)
    reader = READERS.get(version)
    if reader is None:
        raise ConfigError(f"{config.where('version')} is {version!r}", hint=f"MiniCPM-V {', '.join(READERS)} are understood")
    d = read_flat(config, reader, inside="llm.")
    config.ignore(*SETTINGS)
    dropped = config.flag("drop_vision_last_layer", default=version == "2.0")
    queries = config.count(
        "query_num", symbol="n_query", label="resampler queries", default=Default(value=64, source="MiniCPMVConfig")
    )
    width = _timm_siglip(d, config, dropped) if version == "2.0" else _siglip(d, config, dropped)
    resampler(d, "resampler.", queries, d.hidden, width.width, positions=version == "2.0")
    return d


def _siglip(d: Decoder, config: Config, dropped: bool) -> Tower:
    v = config.sub("vision_config") or fixed("MiniCPMVConfig")
    v.fall_back(VISION)
    depth = depth_of(v, "num_hidden_layers")
    return siglip(d, v, "vpm.", layers=depth - 1 if dropped else depth, known=VISION, head=False)


def _timm_siglip(d: Decoder, config: Config, dropped: bool) -> Tower:
    """The tower of the first versions: timm's vit_so400m_patch14_siglip_384 without its pooling, 27 x 27 positions."""
    name = config.text("vision_encoder")
    if name is not None and not name.startswith("vit_so400m_patch14_siglip_384"):
        raise ConfigError(f"{config.where('vision_encoder')} is {name!r}", hint="vit_so400m_patch14_siglip_384 is understood")
    v = fixed(
        "timm's vit_so400m_patch14_siglip_384",
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        image_size=384,
        patch_size=14,
    )
    width, patch, depth = width_of(v, "hidden_size"), patch_of(v), depth_of(v, "num_hidden_layers")
    edge = v.count("image_size", symbol="M_v", label="image edge") // patch
    t = Tower(decoder=d, role=Role.VISION, prefix="vpm.", width=width, depth=depth - 1 if dropped else depth)
    t.patches("patch_embed.proj", channels_of(v) * patch * patch, bias=True)
    t.part("positions", "pos_embed", edge * edge, width)
    t.norms("norm1", "norm2", bias=True)
    t.qkv()
    t.mlp(inner_of(v, "intermediate_size"))
    t.norm("last norm", "norm", bias=True)
    return t
