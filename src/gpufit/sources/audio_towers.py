"""The Whisper encoder, alone or as the audio tower of a language model."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.quantity import Q, ceil_div
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, depth_of, inner_of, width_of

WHISPER = class_defaults(
    "WhisperConfig (transformers 5.24.0)", d_model=384, encoder_layers=4, encoder_ffn_dim=1536, encoder_attention_heads=6,
    decoder_layers=4, decoder_ffn_dim=1536, decoder_attention_heads=6, num_mel_bins=80, max_source_positions=1500,
    max_target_positions=448, vocab_size=51865,
)  # fmt: skip
QWEN2_AUDIO = class_defaults(
    "Qwen2AudioEncoderConfig (transformers 5.24.0)", d_model=1280, encoder_layers=32, encoder_ffn_dim=5120, num_mel_bins=128,
    max_source_positions=1500,
)  # fmt: skip
VOXTRAL = class_defaults(
    "VoxtralEncoderConfig (transformers 5.24.0)", hidden_size=1280, num_hidden_layers=32, intermediate_size=5120, num_mel_bins=128,
    max_source_positions=1500,
)  # fmt: skip
QWEN3_OMNI = class_defaults(
    "Qwen3OmniMoeAudioEncoderConfig (transformers 5.24.0)", d_model=1280, encoder_layers=32, encoder_ffn_dim=5120, num_mel_bins=128,
    downsample_hidden_size=480, output_dim=3584,
)  # fmt: skip
UNUSED = (
    "encoder_attention_heads", "num_attention_heads", "num_key_value_heads", "head_dim", "decoder_layers", "decoder_attention_heads",
    "decoder_ffn_dim", "max_target_positions", "vocab_size", "num_hidden_layers", "mask_time_min_masks", "mask_feature_min_masks",
    "n_window", "n_window_infer", "conv_chunksize", "max_source_positions",
)  # fmt: skip


def whisper_encoder(
    d: Decoder,
    a: Config,
    prefix: str,
    *,
    role: Role = Role.AUDIO,
    split: bool = True,
    positions: bool = True,
    label: str = "audio ",
    last_norm: str = "layer_norm",
) -> Tower:
    """Two convolutions of kernel 3, learned positions, and pre-norm blocks whose keys have no bias; a last norm.

    Fields by Whisper's names or by the general ones. `positions` False where they are computed instead of learned.
    """
    width = width_of(a, "d_model", "hidden_size", letter="a")
    depth = depth_of(a, "encoder_layers", "num_hidden_layers", letter="a")
    inner = inner_of(a, "encoder_ffn_dim", "intermediate_size", letter="a")
    mels = a.count("num_mel_bins", symbol="n_mel", label="mel bins")
    t = Tower(decoder=d, role=role, prefix=prefix, width=width, depth=depth, block="layers.{e}.", split=split, label=label)
    for name, inputs in (("conv1", 3 * mels), ("conv2", 3 * width)):
        t.part(f"{name}", name, width, inputs)
        t.part(f"{name} bias", f"{name}.bias", width)
    if positions:
        t.part("positions", "embed_positions", source_positions(a), width)
    t.norms("self_attn_layer_norm", "final_layer_norm", bias=True)
    t.attention(bias=True, key_bias=False)
    t.mlp(inner, "", ("fc1", "fc2"))
    t.norm("last norm", last_norm, bias=True)
    return t


def omni_encoder(d: Decoder, a: Config, prefix: str) -> None:
    """The audio tower of Qwen3-Omni: three strided convolutions over mel bins and frames, Whisper-like blocks, a two-layer output."""
    a.fall_back(QWEN3_OMNI)
    width = width_of(a, "d_model", letter="a")
    inner = inner_of(a, "encoder_ffn_dim", letter="a")
    mels = a.count("num_mel_bins", symbol="n_mel", label="mel bins")
    channels = a.count("downsample_hidden_size", symbol="c_a", label="audio channels")
    out = a.count("output_dim", symbol="H_ao", label="audio output width")
    t = Tower(
        decoder=d, role=Role.AUDIO, prefix=prefix, width=width, depth=depth_of(a, "encoder_layers", letter="a"), block="layers.{e}.",
        label="audio ",
    )  # fmt: skip
    bands = mels
    for i, points in enumerate((9 * channels, 9 * channels * channels, 9 * channels * channels), 1):
        t.part(f"conv2d{i}", f"conv2d{i}", points)
        t.part(f"conv2d{i} bias", f"conv2d{i}.bias", channels)
        bands = ceil_div(bands, 2)
    t.matrix("conv out", "conv_out", width, channels * bands)
    t.norms("self_attn_layer_norm", "final_layer_norm", bias=True)
    t.attention()
    t.mlp(inner, "", ("fc1", "fc2"))
    t.norm("last norm", "ln_post", bias=True)
    t.matrix("output 1", "proj1", width, width, bias=True, role=Role.PROJECTOR)
    t.matrix("output 2", "proj2", out, width, bias=True, role=Role.PROJECTOR)


def source_positions(a: Config) -> Q:
    """Positions of the encoder's output."""
    return a.count("max_source_positions", symbol="n_src", label="encoder positions")


def cross_projections(
    d: Decoder, module: str, heads: Q, head_dim: Q, *, bias: bool, key_bias: bool, names: tuple[str, ...]
) -> None:
    """Queries, keys, values and output of one attention of the decoder, self or cross, in every layer."""
    rows = heads * head_dim
    for name, word, biased in (("q", names[0], bias), ("k", names[1], key_bias), ("v", names[2], bias)):
        shard = Shard.COLUMN if name == "q" else Shard.KV_HEADS
        d.linear(f"{module} {name}", Role.ATTENTION, f"layers.{{i}}.{module}.{word}", rows, d.hidden, layers=d.all, shard=shard,
                 heads=None if name == "q" else heads, bias=biased)  # fmt: skip
    d.linear(
        f"{module} out",
        Role.ATTENTION,
        f"layers.{{i}}.{module}.{names[3]}",
        d.hidden,
        rows,
        layers=d.all,
        shard=Shard.ROW,
        bias=bias,
    )
