"""Mamba and Falcon-Mamba: state mixers and nothing else."""

from __future__ import annotations

from gpufit.layers.mamba1 import Mamba1
from gpufit.quantity import Q, ceil_div
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba1_mixer
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults

MODEL_TYPES = ("mamba", "falcon_mamba")
INERT = MAMBA_INERT | {"ssm_cfg"}

DEFAULTS = {
    "vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "expand": 2, "conv_kernel": 4,
    "use_conv_bias": True, "tie_word_embeddings": True, "time_step_rank": "auto",
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: MambaConfig and FalconMambaConfig (transformers 5.24.0), which are alike. Falcon's norms of dt, B and C have no weight."""
    class_defaults(config, "MambaConfig (transformers 5.24.0)", DEFAULTS)
    d = open_decoder(config, tie_default=True, prefix="backbone.", standard_heads=False)
    kind = Mamba1(
        channels=_inner(config, d.hidden),
        state_size=config.count("state_size", symbol="N_s", label="state size"),
        kernel=config.count("conv_kernel", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config),
    )
    rank = time_step_rank(config, d.hidden, "time_step_rank")
    mamba1_mixer(d, d.all, kind, rank, bias=config.flag("use_bias"), conv_bias=config.flag("use_conv_bias"))
    output(d, module="embeddings")
    d.norm("norm", "layers.{i}.norm", layers=d.all)
    d.norm("final norm", "norm_f")
    say_defaults(d)
    return d


def _inner(config: Config, hidden: Q) -> Q:
    """The inner channels: `intermediate_size` where the file has it (Falcon-Mamba's `expand` says otherwise), else expand * hidden."""
    stated = config.maybe("intermediate_size", symbol="I_m", label="Mamba channels")
    expand = config.count("expand", symbol="x", label="expansion")
    return stated if stated is not None else (expand * hidden).as_step("I_m", "Mamba channels")


def time_step_rank(config: Config, hidden: Q, name: str) -> Q:
    """The rank of the time-step projection; "auto" is a sixteenth of the hidden size, rounded up."""
    if config.raw(name) == "auto":
        return ceil_div(hidden, 16).as_step("R", "time-step rank")
    return config.count(name, symbol="R", label="time-step rank")
