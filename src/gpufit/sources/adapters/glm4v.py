"""GLM-4.1V: a GLM-4-0414 text model with multimodal rotary positions, and a tower with a gated merger."""

from __future__ import annotations

from gpufit.sources.adapters.glm import OUTER
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_gate_up, norms, output, width, windows
from gpufit.sources.nested import flat_or_nested
from gpufit.sources.patterns import FULL
from gpufit.sources.qwen_towers import glm4v as tower

MODEL_TYPES = ("glm4v", "glm4v_text")
ARCHITECTURES = ("Glm4vForConditionalGeneration",)


def text(config: Config) -> Decoder:
    """Queries, keys and values always have biases in this class, whatever attention_bias says."""
    config.ignore("attention_bias")
    d = basics(
        config, "Glm4vTextConfig (transformers 5.24.0)", tie=False, vocab_size=151552, hidden_size=4096, intermediate_size=13696,
        num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=2, max_position_embeddings=32768,
    )  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d)
    intermediate = width(d)
    d.attention(d.all, bias=True)
    fused_gate_up(d, "layers.{i}.mlp.gate_up_proj", intermediate)
    down(d, "layers.{i}.mlp.down_proj", intermediate)
    norms(d, OUTER)
    return d


def read(config: Config) -> Decoder:
    """Older files hold the text fields at the top level."""
    d = flat_or_nested(
        config, text, tied=False, defaults={}, source="Glm4vConfig (transformers 5.24.0)", prefix="model.language_model."
    )
    if (v := config.sub("vision_config")) is not None:
        tower(d, v, "model.visual.")
    return d
