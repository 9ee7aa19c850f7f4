"""MPT: linear biases in place of positions, no biases in the projections."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, down, every, fused_qkv, norms, out_proj, output, up, windows
from gpufit.sources.patterns import FULL

CLASS = "MptConfig (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """`attn_config.attn_type` says how many KV heads there are: as many as heads, `kv_n_heads`, or one."""
    d = basics(config, CLASS, tie=True, prefix="transformer.", vocab_size=50368, max_seq_len=2048)
    if not config.flag("no_bias", default=True):
        raise ConfigError(f"{config.where('no_bias')} is false", hint="MPT without biases is understood")
    config.ignore("init_config")
    feed = config.sub("ffn_config")
    if feed is not None and feed.text("ffn_type") not in (None, "mptmlp"):
        raise ConfigError(f"{feed.where('ffn_type')} is {feed.text('ffn_type')!r}", hint="mptmlp is understood")
    positions = _attention(d)
    windows(d, None, every(d, FULL))
    output(d, module="wte")
    if positions:
        table = config.count("max_seq_len", symbol="n_pos", label="learned positions")
        d.part("position embedding", Role.EMBEDDING, "wpe", table, d.hidden)
    ratio = config.integer("expansion_ratio", default=4)
    intermediate = (ratio * d.hidden).as_step("I", "MLP width")
    fused_qkv(d, "blocks.{i}.attn.Wqkv")
    out_proj(d, "blocks.{i}.attn.out_proj")
    up(d, "blocks.{i}.ffn.up_proj", intermediate)
    down(d, "blocks.{i}.ffn.down_proj", intermediate)
    norms(d, (("attention norm", "norm_1"), ("MLP norm", "norm_2")), final="norm_f", module="blocks.{i}.")
    return d


def _attention(d: Decoder) -> bool:
    """Reads `attn_config`; whether the model has learned positions, which it has only without linear biases."""
    learned = d.config.flag("learned_pos_emb", default=True)
    attn = d.config.sub("attn_config")
    if attn is None:
        return False
    kind = attn.text("attn_type") or "multihead_attention"
    if kind == "multiquery_attention":
        d.kv_heads = attn.item(1, "attn_type", symbol="n_kv", label="KV heads")
    elif kind == "grouped_query_attention":
        d.kv_heads = attn.count("kv_n_heads", symbol="n_kv", label="KV heads")
    elif kind != "multihead_attention":
        raise ConfigError(
            f"{attn.where('attn_type')} is {kind}", hint="multihead, grouped_query and multiquery attention are understood"
        )
    window = attn.raw("sliding_window_size")
    if attn.flag("qk_ln") or window not in (None, -1):
        raise ConfigError(f"{attn.where('qk_ln')} or sliding_window_size is set", hint="plain MPT attention is understood")
    attn.ignore("kv_n_heads", "attn_uses_sequence_id", "prefix_lm", "clip_qkv", "alibi_bias_max", "attn_impl", "attn_pdrop")
    return learned and not attn.flag("alibi") and not attn.flag("rope")
