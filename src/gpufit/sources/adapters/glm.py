"""GLM-4 (9B, as converted for transformers) and GLM-4-0414 / Z1: fused gate and up projections, biases on query, key and value."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, down, every, fused_gate_up, norms, output, width, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("glm", "glm4")
OUTER = (*PRE_NORMS, ("attention output norm", "post_self_attn_layernorm"), ("MLP output norm", "post_mlp_layernorm"))


def read(config: Config) -> Decoder:
    """glm4 has two more norms a layer than glm. The output projection has no bias."""
    fourth = config.text("model_type") == "glm4"
    d = basics(
        config, f"{'Glm4Config' if fourth else 'GlmConfig'} (transformers 5.24.0)", tie=False, vocab_size=151552, hidden_size=4096,
        intermediate_size=13696, num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=2, head_dim=128,
        max_position_embeddings=131072,
    )  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d)
    intermediate = width(d)
    d.attention(d.all, bias=config.flag("attention_bias", default=True))
    fused_gate_up(d, "layers.{i}.mlp.gate_up_proj", intermediate)
    down(d, "layers.{i}.mlp.down_proj", intermediate)
    norms(d, OUTER if fourth else PRE_NORMS)
    return d
