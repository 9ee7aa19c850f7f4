"""LLaVA as first published (flat files of a text model with `mm_` fields), on Llama, Mistral and Qwen2."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.adapters import llama, mistral, qwen2
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import fixed, read_flat
from gpufit.sources.towers import Tower, clip, projector, siglip

MODEL_TYPES = ("llava_llama", "llava_mistral", "llava_qwen")
ARCHITECTURES = ("LlavaLlamaForCausalLM", "LlavaMistralForCausalLM", "LlavaQwenForCausalLM")
READERS = {"LlavaLlamaForCausalLM": llama.read, "LlavaMistralForCausalLM": mistral.read, "LlavaQwenForCausalLM": qwen2.read}
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14}
CLIP = {
    "openai/clip-vit-large-patch14-336": LARGE | {"image_size": 336},
    "openai/clip-vit-large-patch14": LARGE | {"image_size": 224},
}
SIGLIP = {
    "google/siglip-so400m-patch14-384": {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14, "image_size": 384,
    }
}  # fmt: skip
INERT = frozenset(
    {"image_grid_pinpoints", "mm_spatial_pool_stride", "mm_spatial_pool_mode", "mm_vision_tower_lr", "faster_token_stride"}
)


def read(config: Config) -> Decoder:
    """The file names its tower and gives no shape of it: those of the named repository are taken. SigLIP towers lose their last layer."""
    listed = [a for a in config.items("architectures") or [] if a in READERS]
    if not listed:
        raise ConfigError(f"{config.where('architectures')} names no LLaVA class", hint=f"{', '.join(READERS)} are understood")
    config.ignore("mm_hidden_size", "mm_vision_select_layer", "mm_tunable_parts")
    d = read_flat(config, READERS[str(listed[0])])
    name = config.text("mm_vision_tower") or ""
    kind = config.text("mm_projector_type") or "linear"
    tower = _tower(d, config, name)
    p = projector(d, "model.mm_projector.", tower.width)
    if kind == "linear":
        p.matrix("linear", "", d.hidden, tower.width, bias=True)
    elif kind.startswith("mlp") and kind.endswith("x_gelu") and kind[3:-6].isdigit():
        for i in range(int(kind[3:-6])):
            p.matrix(f"layer {i}", str(2 * i), d.hidden, d.hidden if i else tower.width, bias=True)
    else:
        raise ConfigError(f"{config.where('mm_projector_type')} is {kind!r}", hint="linear and mlp2x_gelu are understood")
    if "unpad" in (config.text("mm_patch_merge_type") or ""):
        d.part("image newline", Role.PROJECTOR, "/model.image_newline", d.hidden)
    d.assumptions.append(f"the vision tower has the shape of {name}, which the file names")
    return d


def _tower(d: Decoder, config: Config, name: str) -> Tower:
    prefix = "model.vision_tower.vision_tower.vision_model."
    if name in CLIP:
        return clip(d, fixed(name, **CLIP[name]), prefix)
    if name in SIGLIP:
        shape = SIGLIP[name]
        return siglip(d, fixed(name, **shape | {"num_hidden_layers": shape["num_hidden_layers"] - 1}), prefix, head=False)
    raise ConfigError(f"{config.where('mm_vision_tower')} is {name!r}", hint=f"{', '.join([*CLIP, *SIGLIP])} are understood")
