"""Idefics2: a SigLIP-like tower, a perceiver resampler, and a Mistral text model."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, projector, siglip

ARCHITECTURES = ("Idefics2ForConditionalGeneration",)
VISION = class_defaults(
    "Idefics2VisionConfig (transformers 5.24.0)",
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    image_size=224,
    patch_size=32,
)
PERCEIVER = class_defaults(
    "Idefics2PerceiverConfig (transformers 5.24.0)", resampler_n_latents=64, resampler_depth=3, resampler_n_heads=16,
    resampler_head_dim=96, num_key_value_heads=4,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """The resampler works in the text model's width with an MLP of four widths. Unties by default (Idefics2Config)."""
    config.ignore("vocab_size")
    tied = outer_tied(config, Default(value=False, source="Idefics2Config (transformers 5.24.0)"))
    d = text_model(config, prefix="model.text_model.", model_type="mistral", tied=tied)
    v, r = config.sub("vision_config"), config.sub("perceiver_config")
    if v is None:
        return d
    tower = siglip(d, v, "model.vision_model.", known=VISION, head=False)
    text = d.config
    inner = text.count("intermediate_size", symbol="I", label="MLP width")
    p = projector(d, "model.connector.modality_projection.", tower.width)
    for word in ("gate_proj", "up_proj"):
        p.matrix(word, word, inner, tower.width)
    p.matrix("down_proj", "down_proj", d.hidden, inner)
    if r is None:
        raise config.missing("perceiver_config")
    r.fall_back(PERCEIVER)
    r.ignore("hidden_size")
    heads, kv = (
        r.count("resampler_n_heads", symbol="n_r", label="resampler heads"),
        r.count("num_key_value_heads", symbol="n_rk", label="resampler KV heads"),
    )
    dim = r.count("resampler_head_dim", symbol="d_r", label="resampler head dimension")
    depth = r.count("resampler_depth", symbol="L_r", label="resampler layers")
    t = Tower(
        decoder=d, role=Role.PROJECTOR, prefix="model.connector.perceiver_resampler.", width=d.hidden, depth=depth, block="layers.{e}.",
        label="resampler ",
    )  # fmt: skip
    t.part("latents", "latents", r.count("resampler_n_latents", symbol="n_lat", label="latents"), d.hidden)
    t.norms("input_latents_norm", "input_context_norm", "post_attention_layernorm", bias=False)
    for word, rows in (("q_proj", heads * dim), ("k_proj", kv * dim), ("v_proj", kv * dim)):
        t.matrix(word, f"self_attn.{word}", rows, d.hidden, each=True)
    t.matrix("o_proj", "self_attn.o_proj", d.hidden, heads * dim, each=True)
    for word in ("gate_proj", "up_proj"):
        t.matrix(word, f"mlp.{word}", 4 * d.hidden, d.hidden, each=True)
    t.matrix("down_proj", "mlp.down_proj", d.hidden, 4 * d.hidden, each=True)
    t.norm("norm", "norm")
    return d
