"""Phi-4-multimodal: Phi-4-mini with low-rank adapters for image and speech, a SigLIP tower and a conformer for audio."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.quantity import Q, ceil_div
from gpufit.sources.adapters import phi3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import fixed, read_flat
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, depth_of, inner_of, projector, siglip, width_of

ARCHITECTURES = ("Phi4MMForCausalLM",)
INERT: frozenset[str] = phi3.INERT | {
    "interpolate_factor",
    "vision_lora",
    "speech_lora",
    "embd_layer",
    "audio_processor",
    "img_processor",
}
EXTEND = "model.embed_tokens_extend."
AUDIO = class_defaults(
    "Phi-4-multimodal's published config", attention_dim=1024, num_blocks=24, linear_units=1536, kernel_size=3, attention_heads=16
)


def read(config: Config) -> Decoder:
    """Ties by its file. The image tower is SigLIP so400m at 448 pixels, which the published code fixes.

    The adapters stand in the checkpoint and are counted, though an engine loads them only when asked to.
    """
    config.ignore("lm_head_bias", "mlp_bias")
    d = read_flat(config, phi3.read)
    for name in ("vision_lora", "speech_lora"):
        _adapters(d, config, name)
    if config.has("vision_lora", "speech_lora"):
        d.notes.append("the low-rank adapters for images and speech stand in the checkpoint and are counted")
    layer = config.raw("embd_layer")
    kinds = str(layer.get("embedding_cls", "")) if isinstance(layer, dict) else ""
    if kinds != "image_audio":
        raise ConfigError(f"{config.where('embd_layer')} has embedding_cls {kinds!r}", hint="image_audio is understood")
    v = fixed(
        "Phi-4-multimodal's published code",
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        image_size=448,
        patch_size=14,
    )
    tower = siglip(d, v, EXTEND + "image_embed.img_processor.", head=True)
    p = projector(d, EXTEND + "image_embed.", tower.width, "image projector ")
    p.norm("separator glb_GN", "glb_GN")
    p.norm("separator sub_GN", "sub_GN")
    _two(d, "image_embed.img_projection.", tower.width)
    _audio(d, config)
    return d


def _two(d: Decoder, module: str, width: Q) -> None:
    p = projector(d, EXTEND + module, width, module.split(".")[-2].replace("_", " ") + " ")
    p.matrix("in", "0", d.hidden, width, bias=True)
    p.matrix("out", "2", d.hidden, d.hidden, bias=True)


def _adapters(d: Decoder, config: Config, name: str) -> None:
    """Two thin matrices beside each of the four fused projections of a layer."""
    lora = config.sub(name)
    if lora is None:
        return
    lora.ignore("layer", "lora_alpha", "dp")
    kind = name.removesuffix("_lora")
    rank = lora.count("r", symbol=f"r_{kind[0]}", label=f"rank of the {kind} adapters")
    nq, nk, dim = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    inner = config.count("intermediate_size", symbol="I", label="MLP width")
    for module, rows, columns in (
        ("self_attn.qkv_proj", (nq + 2 * nk) * dim, d.hidden),
        ("self_attn.o_proj", d.hidden, nq * dim),
        ("mlp.gate_up_proj", 2 * inner, d.hidden),
        ("mlp.down_proj", d.hidden, inner),
    ):
        at = f"layers.{{i}}.{module}"
        d.part(f"{kind} adapter A of {module}", Role.OTHER, f"{at}.lora_A.{kind}", rank, columns, layers=d.all)
        d.part(f"{kind} adapter B of {module}", Role.OTHER, f"{at}.lora_B.{kind}", rows, rank, layers=d.all)


def _audio(d: Decoder, config: Config) -> None:
    """A conformer behind three strided convolutions, each halving frames and mel bins; two projections, for speech and beside images."""
    outer = config.sub("audio_processor")
    a = outer.sub("config") if outer is not None else None
    if a is None:
        raise config.missing("audio_processor.config")
    a.fall_back(AUDIO)
    width, inner = width_of(a, "attention_dim", letter="a"), inner_of(a, "linear_units", letter="a")
    kernel = a.count("kernel_size", symbol="c_ak", label="audio kernel")
    embedding = a.sub("encoder_embedding_config")
    if embedding is None:
        raise a.missing("encoder_embedding_config")
    mels = embedding.count("input_size", symbol="n_mel", label="mel bins")
    relative = a.sub("relative_attention_bias_args")
    heads = a.count("attention_heads", symbol="n_a", label="audio heads")
    t = Tower(
        decoder=d, role=Role.AUDIO, prefix=EXTEND + "audio_embed.encoder.", width=width, depth=depth_of(a, "num_blocks", letter="a"),
        block="encoders.{e}.", split=False, label="audio ",
    )  # fmt: skip
    t.part("mean and scale of mel bins", "encoder_embedding", 2 * mels)
    bands = mels
    for i in range(3):
        t.part(f"subsampling {i}", f"embed.conv.{i}", 9 * width)
        t.part(f"subsampling bias {i}", f"embed.conv.{i}.bias", width)
        if i:
            t.part(f"subsampling mix {i}", f"embed.conv.{i}.pointwise", width, width)
            t.part(f"subsampling mix bias {i}", f"embed.conv.{i}.pointwise.bias", width)
        bands = ceil_div(bands, 2)
    t.matrix("subsampling output", "embed.out", width, bands * width, bias=True)
    if relative is not None:
        reach = relative.count("t5_bias_max_distance", symbol="n_rel", label="distances with a bias")
        t.part("relative attention bias", "relative_attention_bias_layer.bias_values", 2 * reach, heads)
        relative.ignore("type", "t5_bias_symmetric")
    for half in ("feed_forward_in", "feed_forward_out"):
        t.norms(f"{half}.layer_norm", bias=True)
        t.matrix(f"{half} up", f"{half}.net.0", 2 * inner, width, bias=True, each=True)
        t.matrix(f"{half} down", f"{half}.net.2", width, inner, bias=True, each=True)
    t.attention("self_attn", ("linear_q", "linear_k", "linear_v", "linear_out"))
    t.norms("conv.layer_norm", "layer_norm_att", "layer_norm", bias=True)
    t.norms("conv.glu.b1", "conv.glu.b2", bias=False)
    t.matrix("convolution gate", "conv.glu.ext_pw_conv_1d", 2 * width, width, bias=True, each=True)
    t.part("convolution", "conv.dw_sep_conv_1d.dw_conv", width, kernel, each=True)
    t.part("convolution bias", "conv.dw_sep_conv_1d.dw_conv.bias", width, each=True)
    t.matrix("convolution mix", "conv.dw_sep_conv_1d.pw_conv", width, width, bias=True, each=True)
    t.matrix("convolution out", "conv.ext_pw_conv_1d", width, width, bias=True, each=True)
    for kind in ("speech", "vision"):
        _two(d, f"audio_embed.audio_projection.{kind}.", width)
    a.ignore(*a.data)
    if outer is not None:
        outer.ignore("name")
    embedding.ignore(*embedding.data)
