"""The text model of Mistral Large 4: indexed latent attention with layers without position, and latents that layers may share."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.sparse import IndexOnly, SparseLatent, fp8_index
from gpufit.model import Role, Shard
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import output
from gpufit.sources.mla import index_owners, indexer, mixture, mixture_layers, open_latent
from gpufit.sources.patterns import class_defaults, per_layer, pre_norms, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("mistral_large4_text",)
DEFAULTS = class_defaults(
    "MistralLarge4TextConfig (transformers 5.24.0)",
    vocab_size=204800,
    hidden_size=6144,
    intermediate_size=24576,
    moe_intermediate_size=6144,
    num_hidden_layers=72,
    num_attention_heads=64,
    n_shared_experts=1,
    n_routed_experts=128,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    v_head_dim=128,
    qk_nope_head_dim=64,
    num_experts_per_tok=4,
    max_position_embeddings=1048576,
    index_head_dim=128,
    index_n_heads=32,
    first_k_dense_replace=1,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers are told apart by what they keep: whether they rotate, own an indexer, and own their latent.

    A layer without position keeps no rotary key; a layer whose `kv_source_layers` entry is an earlier one keeps that layer's latent
    in use and stores none (modeling_mistral_large4.py, transformers 5.24.0).
    """
    d = open_latent(config)
    config.ignore("index_topk")
    bias = config.flag("attention_bias")
    sources, rotary = kv_sources(d), rotary_layers(d)
    owners = frozenset(index_owners(config, int(d.num_layers)))
    for rotates in (True, False):
        for indexed in (True, False):
            for source in sorted(set(sources)):
                at = [i for i in d.all if sources[i] == source and i != source and (i in rotary, i in owners) == (rotates, indexed)]
                attention(d, tuple(at), rotates=rotates, indexed=indexed, target=source, bias=bias)
            own = [i for i in d.all if sources[i] == i and (i in rotary, i in owners) == (rotates, indexed)]
            attention(d, tuple(own), rotates=rotates, indexed=indexed, target=None, bias=bias)
    indexed_at = tuple(sorted(owners))
    indexer(d, indexed_at, inputs=d.hidden)
    index_heads = config.count("index_n_heads", symbol="n_i", label="index heads")
    where = "layers.{i}.self_attn.indexer"
    d.norm("index query norm", f"{where}.q_input_norm", layers=indexed_at, bias=True)
    for name in ("scale", "bias"):
        d.part(f"index softmax {name}", Role.INDEXER, f"{where}.softmax_scaling.{name}", index_heads, layers=indexed_at)
        heads = d.need(d.attention_heads)
        module = f"layers.{{i}}.self_attn.softmax_scaling.{name}"
        d.part(f"softmax {name}", Role.ATTENTION, module, heads, layers=d.all, shard=Shard.COLUMN)
    rope = config.count("qk_rope_head_dim", symbol="d_r", label="rotary width")
    d.part("rotary frequency scales", Role.OTHER, "rotary_emb.alpha", rope // 2, dtype="fp32")
    output(d)
    sparse = mixture_layers(d)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    config.ignore("intermediate_size")
    mixture(d, sparse, score_correction=False)
    pre_norms(d)
    return d


def attention(d: Decoder, layers: tuple[int, ...], *, rotates: bool, indexed: bool, target: int | None, bias: bool) -> None:
    """Attention layers of one sort; `target` is the layer whose latent they attend over, None where it is their own."""
    if not layers:
        return
    c = d.config
    heads = d.need(d.attention_heads)
    rank = c.count("kv_lora_rank", symbol="r_kv", label="latent rank")
    rope = c.count("qk_rope_head_dim", symbol="d_r", label="rotary width")
    nope = c.count("qk_nope_head_dim", symbol="d_n", label="width without position")
    if not rotates:
        nope, rope = nope + rope, c.item(0, "no_rope_layers", symbol="d_r0", label="rotary width of a layer without position")
    index = fp8_index(c.count("index_head_dim", symbol="d_i", label="index width")) if indexed else None
    kind: SparseLatent | IndexOnly
    if target is None:
        kind = SparseLatent(latent_rank=rank, rope_dim=rope, attention_heads=heads, index=index)
    else:
        kind = IndexOnly(latent_rank=rank, rope_dim=rope, attention_heads=heads, index=index, target=target)
    value = c.count("v_head_dim", symbol="d_v", label="value width")
    d.latent(
        layers, heads=heads, latent_rank=rank, rope_dim=rope, nope_dim=nope, value_dim=value, query_rank=None, bias=bias,
        kind=kind, own=target is None,
    )  # fmt: skip


def kv_sources(d: Decoder) -> list[int]:
    """The layer whose latent each layer attends over; its own where the config does not say."""
    sources = per_layer(d.config, "kv_source_layers", int(d.num_layers))
    if sources is None:
        return list(d.all)
    for i, source in enumerate(sources):
        if not isinstance(source, int) or not 0 <= source <= i or sources[source] != source:
            raise ConfigError(
                f"{d.config.where('kv_source_layers')}[{i}] is {source!r}, expected an earlier layer with a latent of its own",
                hint="check the config.json",
            )
    return sources


def rotary_layers(d: Decoder) -> frozenset[int]:
    """The layers with rotary positions: `no_rope_layers` has 1 for these; absent, all but every fourth."""
    marks = d.config.items("no_rope_layers")
    interval = d.config.integer("no_rope_layer_interval", default=4)
    if marks is None:
        return frozenset(i for i in d.all if (i + 1) % interval)
    if len(marks) < int(d.num_layers):
        raise ConfigError(
            f"{d.config.where('no_rope_layers')} has {len(marks)} entries for {int(d.num_layers)} layers",
            hint="check the config.json",
        )
    return frozenset(i for i in d.all if marks[i])
