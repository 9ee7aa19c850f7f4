"""Whisper: an audio encoder, and a decoder that attends to itself and to the encoder's output."""

from __future__ import annotations

from gpufit.layers.cross import Cross
from gpufit.layers.full import Full
from gpufit.model import Role
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.audio_towers import WHISPER, cross_projections, whisper_encoder
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder

ARCHITECTURES = ("WhisperForConditionalGeneration",)
INERT = frozenset({"is_encoder_decoder", "mask_time_min_masks", "mask_feature_min_masks"})
NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def read(config: Config) -> Decoder:
    """Every decoder layer keeps its own tokens and the encoder's `max_source_positions`. Ties by class default (WhisperConfig)."""
    config.fall_back(WHISPER)
    config.ignore("num_hidden_layers", "encoder_attention_heads")
    heads = config.count("decoder_attention_heads", symbol="n_q", label="attention heads")
    hidden = config.count("d_model", symbol="H", label="hidden size")
    limit = config.count("max_target_positions", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE)
    d = Decoder(
        config=config, hidden=hidden, prefix="model.decoder.", max_context=limit,
        num_layers=config.count("decoder_layers", symbol="L", label="decoder layers"),
        vocab=config.count("vocab_size", symbol="V", label="vocabulary"),
        tied=config.flag("tie_word_embeddings", default=Default(value=True, source="WhisperConfig (transformers 5.24.0)")),
        attention_heads=heads, kv_heads=heads, head_dim=(hidden // heads).as_step("d", "head dimension"),
    )  # fmt: skip
    dim = d.need(d.head_dim)
    source = config.count("max_source_positions", symbol="n_src", label="encoder positions", unit=TOKEN_PER_SEQUENCE)
    d.layer(Full(attention_heads=heads, kv_heads=heads, head_dim=dim), d.all)
    d.layer(Cross(attention_heads=heads, kv_heads=heads, head_dim=dim, encoder_tokens=source), d.all)
    # vLLM 0.33 keeps this table whole on every rank (whisper.py).
    d.part("token embedding", Role.EMBEDDING, "embed_tokens", d.need(d.vocab), hidden)
    if not d.tied:
        d.part("output head", Role.HEAD, "/proj_out", d.need(d.vocab), hidden, linear=True)
    d.part(
        "decoder positions",
        Role.OTHER,
        "embed_positions",
        config.count("max_target_positions", symbol="n_max", label="context limit of the model"),
        hidden,
    )
    for module in ("self_attn", "encoder_attn"):
        cross_projections(d, module, heads, dim, bias=True, key_bias=False, names=NAMES)
        d.norm(f"{module} norm", f"layers.{{i}}.{module}_layer_norm", layers=d.all, bias=True)
    inner = config.count("decoder_ffn_dim", symbol="I", label="MLP width")
    d.mlp(d.all, inner, gated=False, bias=True, module="layers.{i}", names=("", "fc1", "fc2"))
    d.norm("final layer norm", "layers.{i}.final_layer_norm", layers=d.all, bias=True)
    d.norm("decoder norm", "layer_norm", bias=True)
    whisper_encoder(d, config, "model.encoder.", role=Role.OTHER, label="encoder ")
    return d
