"""Ring-linear 2.0: Lightning attention with a grouped-query layer at the end of each group, and experts."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.adapters.bailing_hybrid import INERT as _INERT
from gpufit.sources.adapters.bailing_hybrid import experts, lightning_mixer
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mla import mixture_layers
from gpufit.sources.patterns import pre_norms, without
from gpufit.sources.states import say_defaults, where_is

MODEL_TYPES = ("bailing_moe_linear",)
ARCHITECTURES = ("BailingMoeLinearV2ForCausalLM",)
INERT = _INERT


def read(config: Config) -> Decoder:
    """The published class is the repository's own, and its configs are complete: nothing has a default but switches.

    A layer attends in full when it is the last of its `layer_group_size`, or stands after the last whole group.
    """
    d = open_decoder(config, tie_default=False)
    group = config.integer("layer_group_size")
    whole = int(d.num_layers) // group * group if group else 0
    types = ["full" if not group or (i + 1) % group == 0 or i >= whole else "linear" for i in d.all]
    full = where_is(types, "full")
    heads, kv, dim = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    bias, module = config.flag("use_bias"), "layers.{i}.attention"
    d.full(full)
    fused = f"{module}.query_key_value"
    qkv_bias = bias or config.flag("use_qkv_bias")
    d.linear("query", Role.ATTENTION, fused, heads * dim, d.hidden, layers=full, shard=Shard.COLUMN, bias=qkv_bias)
    d.linear("key_value", Role.ATTENTION, fused, 2 * kv * dim, d.hidden, layers=full, shard=Shard.KV_HEADS, heads=kv, bias=qkv_bias)
    if config.flag("use_qk_norm"):
        d.norm("query norm", f"{module}.query_layernorm", layers=full, size=dim)
        d.norm("key norm", f"{module}.key_layernorm", layers=full, size=dim)
    d.linear("dense", Role.ATTENTION, f"{module}.dense", d.hidden, heads * dim, layers=full, shard=Shard.ROW, bias=bias)
    lightning_mixer(d, where_is(types, "linear"), module)
    output(d, module="word_embeddings")
    pre_norms(d)
    sparse = mixture_layers(d)
    d.mlp(without(d.all, sparse), config.count("intermediate_size", symbol="I", label="MLP width"), bias=bias)
    experts(d, sparse)
    say_defaults(d)
    return d
