"""MiniMax-M3: grouped-query attention with block-selecting indexers after the first layers, dense layers, then mixtures."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.sparse import SparseFull, bf16_index
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import FULL, class_defaults, per_layer, pre_norms, spread, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("minimax_m3", "minimax_m3_vl_text")
ARCHITECTURES = ("MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM")
INERT = frozenset({"qk_norm_type", "moe_intermediate_size", "num_mtp_modules", "num_nextn_predict_layers"})
SPARSE = "minimax_m3_sparse"
DEFAULTS = class_defaults(
    "MiniMaxM3VLTextConfig (transformers 5.24.0)",
    vocab_size=200064,
    hidden_size=6144,
    intermediate_size=3072,
    num_hidden_layers=60,
    num_attention_heads=64,
    num_key_value_heads=4,
    head_dim=128,
    max_position_embeddings=524288,
    num_experts_per_tok=4,
    num_local_experts=128,
    dense_intermediate_size=12288,
    shared_intermediate_size=3072,
    index_n_heads=4,
    index_head_dim=128,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Sparse layers by `layer_types` or by `sparse_attention_config`; mixtures by `mlp_layer_types` or `moe_layer_freq`."""
    d = open_decoder(config, tie_default=False)
    if config.flag("attention_output_gate"):
        where = config.where("attention_output_gate")
        raise ConfigError(f"{where} is true, which no published MiniMax-M3 has", hint="a newer gpufit may know it")
    sparse, heads, width = sparse_layers(d)
    d.full(without(d.all, sparse))
    kind = SparseFull(
        attention_heads=d.need(d.attention_heads), kv_heads=d.need(d.kv_heads), head_dim=d.need(d.head_dim), index=bf16_index(width)
    )
    d.layer(kind, sparse)
    output(d)
    d.attention(d.all, qk_norm="head" if config.flag("use_qk_norm", default=True) else "")
    indexer(d, sparse, heads, width)
    mixture(d)
    pre_norms(d)
    drafts = max(config.integer("num_mtp_modules", default=0), config.integer("num_nextn_predict_layers", default=0))
    if drafts:
        d.notes.append(
            "the checkpoint may hold multi-token-prediction modules; their shape is not in the config and they are not counted"
        )
    return d


def sparse_layers(d: Decoder) -> tuple[tuple[int, ...], Q, Q]:
    """The layers with an indexer, the indexer's heads, and the width of its key."""
    config, layers = d.config, int(d.num_layers)
    nested = config.sub("sparse_attention_config")
    level, head_name, width_name = config, "index_n_heads", "index_head_dim"
    if nested is not None:
        nested.ignore("sparse_block_size", "sparse_topk_blocks", "sparse_init_block", "sparse_local_block", "sparse_score_type")
        if nested.has("sparse_index_dim"):
            level, head_name, width_name = nested, "sparse_num_index_heads", "sparse_index_dim"
    config.ignore("index_block_size", "index_topk_blocks", "index_local_blocks", "index_n_heads", "index_head_dim")
    heads = level.count(head_name, symbol="n_i", label="index heads")
    width = level.count(width_name, symbol="d_i", label="index width")
    words = per_layer(config, "layer_types", layers)
    at: tuple[int, ...] = ()
    if words is not None:
        at = spread(config, "layer_types", words, (FULL, SPARSE))[SPARSE]
    elif nested is not None and nested.flag("use_sparse_attention", default=True):
        marks = per_layer(nested, "sparse_attention_freq", layers)
        at = spread(nested, "sparse_attention_freq", marks, (0, 1))[1] if marks is not None else ()
    if nested is not None:
        nested.ignore("use_sparse_attention", "sparse_attention_freq")
        values = per_layer(nested, "sparse_disable_index_value", layers)
        if values is not None and any(not values[i] for i in at):
            where = nested.where("sparse_disable_index_value")
            raise ConfigError(
                f"{where} is 0 for a sparse layer: its index values are not known", hint="a newer gpufit may know them"
            )
    return at, heads, width


def indexer(d: Decoder, at: tuple[int, ...], heads: Q, width: Q) -> None:
    """The index branch: queries split as KV heads do, one key that is whole on every rank, and their norms."""
    where, role = "layers.{i}.self_attn", Role.INDEXER
    if not at:
        return
    d.linear("index_q_proj", role, f"{where}.index_q_proj", heads * width, d.hidden, layers=at, shard=Shard.KV_HEADS, heads=heads)
    d.linear("index_k_proj", role, f"{where}.index_k_proj", width, d.hidden, layers=at, shard=Shard.REPLICATED)
    for name in ("index_q_norm", "index_k_norm"):
        d.part(name, role, f"{where}.{name}", width, layers=at)


def mixture(d: Decoder) -> None:
    """Dense layers of `dense_intermediate_size`, and mixtures with shared experts of `shared_intermediate_size`."""
    config, layers = d.config, int(d.num_layers)
    words = per_layer(config, "mlp_layer_types", layers)
    marks = per_layer(config, "moe_layer_freq", layers)
    config.ignore("first_k_dense_replace")
    if words is not None:
        sparse = spread(config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    elif marks is not None:
        sparse = spread(config, "moe_layer_freq", marks, (0, 1))[1]
    else:
        sparse = tuple(d.all)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("dense_intermediate_size", symbol="I", label="MLP width"))
    config.ignore("dense_intermediate_size")
    where = "layers.{i}.block_sparse_moe"
    experts = config.count("num_local_experts", "num_experts", symbol="E", label="routed experts")
    d.experts(
        sparse,
        experts=experts,
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("intermediate_size", symbol="I_e", label="expert width"),
        router_dtype="fp32",
        module=where,
        names=("w1", "w3", "w2"),
    )
    if config.flag("use_routing_bias", default=True):
        d.part(
            "router score correction",
            Role.ROUTER,
            f"{where}.e_score_correction_bias",
            experts,
            layers=sparse,
            dtype="fp32",
            buffer=True,
        )
    each = config.count("shared_intermediate_size", symbol="I_s", label="shared expert width")
    number = config.integer("n_shared_experts", default=1)
    if int(each) and number:
        d.shared_experts(sparse, each if number == 1 else number * each, module=f"{where}.shared_experts")
