"""Phi-3-small: biases everywhere; every other layer attends block-sparsely, which keeps all keys and values none the less."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_gate_up, fused_qkv, norms, out_proj, output, width, windows
from gpufit.sources.patterns import FULL

INERT = frozenset({"mup_attn_multiplier", "attention_bias"})
SPARSE = (
    "blocksparse_block_size", "blocksparse_homo_head_pattern", "blocksparse_num_local_blocks", "blocksparse_triton_kernel_block_size",
    "blocksparse_vert_stride", "dense_attention_every_n_layers",
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Shapes of the published class Phi3SmallForCausalLM; its embedding is tied unless the file says otherwise."""
    d = basics(config, "Phi3SmallConfig", tie=True, num_key_value_heads=8)
    if config.has("ff_dim_multiplier"):
        raise ConfigError(f"{config.where('ff_dim_multiplier')} is set", hint="ff_intermediate_size is understood")
    if config.has("dense_attention_every_n_layers"):
        d.notes.append("block-sparse attention layers keep the keys and values of all tokens: they are sized as full attention")
    config.ignore(*SPARSE)
    windows(d, None, every(d, FULL))
    output(d)
    intermediate = width(d, "ff_intermediate_size")
    fused_qkv(d, "layers.{i}.self_attn.query_key_value", bias=True)
    out_proj(d, "layers.{i}.self_attn.dense", bias=True)
    fused_gate_up(d, "layers.{i}.mlp.up_proj", intermediate, bias=True)
    down(d, "layers.{i}.mlp.down_proj", intermediate, bias=True)
    norms(d, final="final_layernorm", bias=True)
    return d
