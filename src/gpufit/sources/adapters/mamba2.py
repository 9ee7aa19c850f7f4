"""Mamba 2: state mixers and nothing else."""

from __future__ import annotations

from gpufit.layers.mamba2 import Mamba2
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, conv_bytes, inner_width, recurrent_bytes, say_defaults

MODEL_TYPES = ("mamba2",)
INERT = MAMBA_INERT | {"ssm_cfg"}

DEFAULTS = {
    "num_heads": 128, "head_dim": 64, "vocab_size": 32768, "hidden_size": 4096, "state_size": 128, "num_hidden_layers": 64,
    "expand": 2, "conv_kernel": 4, "n_groups": 8, "use_conv_bias": True, "tie_word_embeddings": False,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: Mamba2Config (transformers 5.24.0)."""
    class_defaults(config, "Mamba2Config (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=False, prefix="backbone.", standard_heads=False)
    heads = config.count("num_heads", symbol="h_m", label="Mamba heads")
    head_dim = config.count("head_dim", symbol="d_m", label="Mamba head dimension")
    inner_width(config, config.count("expand", symbol="x", label="expansion") * d.hidden, heads, head_dim)
    kind = Mamba2(
        heads=heads,
        head_dim=head_dim,
        state_size=config.count("state_size", symbol="N_s", label="state size"),
        groups=config.count("n_groups", symbol="G", label="B/C groups"),
        kernel=config.count("conv_kernel", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config),
    )
    bias = config.flag("use_bias")
    mamba2_mixer(d, d.all, kind, bias=bias, out_bias=bias, conv_bias=config.flag("use_conv_bias"))
    output(d, module="embeddings")
    d.norm("norm", "layers.{i}.norm", layers=d.all)
    d.norm("final norm", "norm_f")
    say_defaults(d)
    return d
