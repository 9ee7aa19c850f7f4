"""Ultravox: a Whisper encoder and a projection trained for a text model that stands in another repository."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Shard
from gpufit.sources.audio_towers import UNUSED, WHISPER, whisper_encoder
from gpufit.sources.catalogue import find_entry
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import relocate, text_model
from gpufit.sources.read import decoder_of
from gpufit.sources.towers import projector

ARCHITECTURES = ("UltravoxModel",)
ENCODERS = {
    "tiny": (384, 4, 80), "base": (512, 6, 80), "small": (768, 12, 80), "medium": (1024, 24, 80), "large": (1280, 32, 80),
    "large-v2": (1280, 32, 80), "large-v3": (1280, 32, 128), "large-v3-turbo": (1280, 32, 128),
}  # fmt: skip
"""Width, blocks and mel bins of the encoders published as openai/whisper-..., whose MLPs are four times as wide."""


def read(config: Config) -> Decoder:
    """Read where `text_config` has shapes, or differences from its class, and where the catalogue has the text model that is named.

    A file that names another repository is refused with that name.
    """
    named = config.text("text_model_id")
    text = config.sub("text_config")
    inline = text is not None and (text.has("num_hidden_layers") or (named is None and text.has("model_type")))
    entry = None if inline or named is None else find_entry(named)
    if not inline and entry is None:
        where = f"{named!r}" if named else "another repository, which it does not name"
        raise ConfigError(
            f"{config.origin} gives no shapes of its text model: they are those of {where}",
            hint=f"size {named} (its cache is the same), and add the audio tower's weights"
            if named
            else "size the text model itself",
        )
    config.ignore("vocab_size", "hidden_size", "text_model_id", "audio_model_id", "audio_latency_block_size")
    if entry is None:
        d = text_model(config, inside="language_model.", model_type="llama")
    else:
        d = decoder_of(Config(entry.published_config(), origin=f"{entry.id} config.json"))
        relocate(d, inside="language_model.")
        d.assumptions.append(f"the text model is {entry.id}, which the file names, with the shapes that the catalogue has of it")
    a = config.sub("audio_config") or _named_encoder(d, config)
    a.fall_back(WHISPER)
    tower = whisper_encoder(d, a, "audio_tower.", split=False)
    a.ignore(*UNUSED)
    stack = config.count("stack_factor", symbol="s_a", label="frames stacked", default=Default(value=8, source="UltravoxConfig"))
    joined = stack * tower.width
    inner = config.count("hidden_size", symbol="I_p", label="projector width", default=Default(value=4096, source="UltravoxConfig"))
    middle = inner // 2 if (config.text("projector_act") or "swiglu") == "swiglu" else inner
    p = projector(d, "multi_modal_projector.", joined)
    p.norm("norm before", "ln_pre")
    p.matrix("in", "linear_1", inner, joined, shard=Shard.REPLICATED)
    p.matrix("out", "linear_2", d.hidden, middle, shard=Shard.REPLICATED)
    mid = config.flag("projector_ln_mid")
    p.norm("norm between" if mid else "norm after", "ln_mid" if mid else "ln_post", middle if mid else d.hidden)
    return d


def _named_encoder(d: Decoder, config: Config) -> Config:
    """The shapes of a Whisper encoder that the file only names."""
    named = config.text("audio_model_id") or ""
    found = ENCODERS.get(named.removeprefix("openai/whisper-").removesuffix(".en"))
    if found is None:
        raise ConfigError(
            f"{config.origin} gives no shapes of its audio tower: they are those of {named or 'another repository'!r}",
            hint="size the text model itself: its cache is the same",
        )
    width, blocks, mels = found
    d.assumptions.append(f"the audio tower is that of {named}, which the file names, with its published shapes")
    shapes = {"d_model": width, "encoder_layers": blocks, "encoder_ffn_dim": 4 * width, "num_mel_bins": mels}
    return Config(shapes, origin=f"{named} config.json")
