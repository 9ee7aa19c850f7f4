"""GPT-NeoX, Pythia, RedPajama-INCITE, Dolly: fused projections, layer norms and biases everywhere."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, norms, out_proj, output, up, width, windows
from gpufit.sources.patterns import FULL

CLASS = "GPTNeoXConfig (transformers 5.24.0)"
INERT = frozenset({"use_parallel_residual"})


def read(config: Config) -> Decoder:
    """Two norms a layer, whether their branches run side by side or not."""
    d = basics(config, CLASS, tie=False, prefix="gpt_neox.", vocab_size=50432, hidden_size=6144, intermediate_size=24576,
               num_hidden_layers=44, num_attention_heads=64, max_position_embeddings=2048)  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d, module="embed_in", head="/embed_out")
    bias = config.flag("attention_bias", default=True)
    intermediate = width(d)
    fused_qkv(d, "layers.{i}.attention.query_key_value", bias=bias)
    out_proj(d, "layers.{i}.attention.dense", bias=bias)
    up(d, "layers.{i}.mlp.dense_h_to_4h", intermediate, bias=True)
    down(d, "layers.{i}.mlp.dense_4h_to_h", intermediate, bias=True)
    norms(d, final="final_layer_norm", bias=True)
    return d
