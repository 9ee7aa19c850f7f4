"""Phi-1, 1.5 and 2, also as first published (mixformer-sequential, phi-msft): biases everywhere, attention and MLP side by side."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, inner_width, norms, out_proj, output, up, width, windows
from gpufit.sources.patterns import FULL

MODEL_TYPES = ("phi", "mixformer-sequential", "phi-msft")
CLASS = "PhiConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """One norm a layer; the output head has a bias."""
    if config.text("model_type") != "phi":
        return _first(config)
    d = basics(config, CLASS, tie=False, vocab_size=51200, hidden_size=2048, intermediate_size=8192, num_hidden_layers=24,
               num_attention_heads=32, max_position_embeddings=2048)  # fmt: skip
    windows(d, None, every(d, FULL))
    output(d, head_bias=True)
    d.attention(d.all, bias=True, out_bias=True, names=("q_proj", "k_proj", "v_proj", "dense"))
    if config.flag("qk_layernorm"):
        for name in ("q_layernorm", "k_layernorm"):
            d.norm(name, f"layers.{{i}}.self_attn.{name}", layers=d.all, size=d.need(d.head_dim), bias=True)
    d.mlp(d.all, width(d), gated=False, bias=True, names=("", "fc1", "fc2"))
    norms(d, (("input norm", "input_layernorm"),), final="final_layernorm", bias=True)
    return d


def _first(config: Config) -> Decoder:
    """The files of 2023: GPT-2's field names, fused projections, a null `n_head_kv` for as many KV heads as heads."""
    d = basics(config, "MixFormerSequentialConfig", tie=False, prefix="", vocab_size=51200)
    kinds = config.sub("architecture")
    if kinds is not None and (kinds.text("block_cls") or "parallel") != "parallel":
        raise ConfigError(f"{kinds.where('block_cls')} is {kinds.text('block_cls')}", hint="parallel is known")
    if kinds is not None:
        feed = kinds.sub("mlp")
        if feed is not None and feed.text("mlp_cls") not in (None, "mlp", "fused_mlp"):
            raise ConfigError(f"{feed.where('mlp_cls')} is {feed.text('mlp_cls')}", hint="a plain MLP is known")
    d.kv_heads = config.maybe("n_head_kv", symbol="n_kv", label="KV heads") or d.kv_heads
    windows(d, None, every(d, FULL))
    output(d, module="layers.0.wte", head=f"/layers.{int(d.num_layers) + 1}.linear", head_bias=True)
    fused_qkv(d, "layers.{i}.mixer.Wqkv", bias=True)
    out_proj(d, "layers.{i}.mixer.out_proj", bias=True)
    intermediate = inner_width(d)
    up(d, "layers.{i}.mlp.fc1", intermediate, bias=True)
    down(d, "layers.{i}.mlp.fc2", intermediate, bias=True)
    norms(d, (("input norm", "ln"),), final=f"layers.{int(d.num_layers) + 1}.ln", bias=True)
    return d
