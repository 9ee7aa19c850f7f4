"""Solar Pro: Llama's shape; some layers take over what earlier ones computed, which is kept nowhere between tokens."""

from __future__ import annotations

from gpufit.sources.adapters import llama
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder

ARCHITECTURES = ("SolarForCausalLM",)
INERT = frozenset({"bskcn_1", "bskcn_2", "bskcn_3", "bskcn_4", "bskcn_tv"})


def read(config: Config) -> Decoder:
    """The connections between layers hold no weights (vLLM 0.33.0, solar.py)."""
    return llama.read(config)
