"""NV-Embed: a Mistral model that attends in both directions, and a latent attention layer over its output."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.adapters import mistral
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import ENCODER_NOTE
from gpufit.sources.nested import open_text, relocate, set_tied
from gpufit.sources.patterns import class_defaults

ARCHITECTURES = ("NVEmbedModel",)
LATENT = class_defaults(
    "LatentAttentionConfig of the published repository",
    num_latents_value=512,
    num_cross_heads=8,
    hidden_dim=4096,
    latent_dim=4096,
    cross_dim_head=4096,
)


def read(config: Config) -> Decoder:
    """Both kinds of attention are over the whole text at once: no cache is kept, and there is no output head."""
    config.ignore("hidden_size", "mask_type")
    d = mistral.read(open_text(config, "text_config"))
    set_tied(d, True)
    relocate(d, prefix="embedding_model.")
    d.groups.clear()
    d.notes.append(ENCODER_NOTE)
    a = config.sub("latent_attention_config")
    if a is None:
        return d
    a.fall_back(LATENT)
    a.ignore("output_normalize", "mult")
    latent = a.count("latent_dim", symbol="H_l", label="latent width")
    hidden = a.count("hidden_dim", symbol="H_c", label="width of what is attended to")
    inner = a.count("num_cross_heads", symbol="n_l", label="latent heads") * a.count(
        "cross_dim_head", symbol="d_l", label="latent head dimension"
    )
    role, at = Role.OTHER, "/latent_attention_model."
    d.part("latents", role, at + "latents", a.count("num_latents_value", symbol="n_lat", label="latents"), latent)
    d.part("latent queries", role, at + "cross_attend_blocks.0.fn.to_q", inner, latent, shard=Shard.COLUMN, linear=True)
    d.part(
        "latent keys and values", role, at + "cross_attend_blocks.0.fn.to_kv", 2 * inner, hidden, shard=Shard.COLUMN, linear=True
    )
    d.part("latent output", role, at + "cross_attend_blocks.0.fn.to_out", latent, inner, shard=Shard.ROW, linear=True)
    for name, width in (("0.norm", latent), ("0.norm_context", hidden), ("1.norm", latent)):
        d.part(f"latent {name}", Role.NORM, f"{at}cross_attend_blocks.{name}", width)
        d.part(f"latent {name} bias", Role.NORM, f"{at}cross_attend_blocks.{name}.bias", width)
    for number, rows, columns in ((0, 8 * latent, latent), (2, latent, 4 * latent)):
        module = f"{at}cross_attend_blocks.1.fn.net.{number}"
        d.part(f"latent MLP {number}", role, module, rows, columns, linear=True)
        d.part(f"latent MLP {number} bias", role, module + ".bias", rows)
    return d
