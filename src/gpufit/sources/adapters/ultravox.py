"""Ultravox: a Whisper encoder and a projection trained for a text model that stands in another repository."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Shard
from gpufit.sources.audio_towers import UNUSED, WHISPER, whisper_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import text_model
from gpufit.sources.towers import projector

ARCHITECTURES = ("UltravoxModel",)


def read(config: Config) -> Decoder:
    """Read where `text_config` has shapes, or differences from its class; a file that only names a repository is refused with it."""
    named = config.text("text_model_id")
    text = config.sub("text_config")
    inline = text is not None and (text.has("num_hidden_layers") or (named is None and text.has("model_type")))
    if not inline:
        where = f"{named!r}" if named else "another repository, which it does not name"
        raise ConfigError(
            f"{config.origin} gives no shapes of its text model: they are those of {where}",
            hint=f"size {named} (its cache is the same), and add the audio tower's weights"
            if named
            else "size the text model itself",
        )
    config.ignore("vocab_size", "hidden_size", "text_model_id", "audio_model_id", "audio_latency_block_size")
    d = text_model(config, inside="language_model.", model_type="llama")
    a = config.sub("audio_config")
    if a is None:
        raise config.missing("audio_config")
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
