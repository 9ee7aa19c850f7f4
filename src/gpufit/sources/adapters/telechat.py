"""TeleChat 2 and Tele-FLM: Llama's shape, in TeleChat under BLOOM's names and with biases on the two output projections."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.adapters import llama
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, every, norms, output, width, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("telechat", "telechat2", "TeleFLM")
NAMES = ("query", "key", "value", "dense")


def read(config: Config) -> Decoder:
    """Shapes of the published classes, as vLLM 0.33.0 reads them (models/telechat2.py, models/teleflm.py)."""
    if config.text("model_type") == "TeleFLM":
        return llama.read(config)
    d = basics(config, "TelechatConfig", tie=False, prefix="transformer.")
    windows(d, None, every(d, FULL))
    output(d, module="word_embeddings")
    at = "h.{i}."
    d.attention(d.all, out_bias=True, module=at + "self_attention", names=NAMES)
    intermediate = width(d, "ffn_hidden_size", "intermediate_size")
    d.mlp(d.all, intermediate, module=at + "mlp")
    d.part("down_proj bias", Role.MLP, at + "mlp.down_proj.bias", d.hidden, layers=d.all)
    norms(d, final="ln_f", module=at)
    return d
