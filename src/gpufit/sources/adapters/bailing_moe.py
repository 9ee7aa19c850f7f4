"""Ling and Ring mixtures without linear attention (Ling-lite, Ling-plus, Ling 2.0): fused grouped-query attention and shared experts."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.adapters.bailing_hybrid import experts
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_layers, drafting
from gpufit.sources.mla import mixture_layers
from gpufit.sources.patterns import pre_norms, without

MODEL_TYPES = ("bailing_moe", "bailing_moe_v2")
ARCHITECTURES = ("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM")
INERT = frozenset(
    {
        "norm_head",
        "norm_softmax",
        "score_function",
        "moe_router_enable_routed_scaling",
        "moe_router_topk_scaling_factor",
        "topk_group",
        "mtp_loss_scaling_factor",
        "max_window_layers",
        "embedding_dropout",
        "output_dropout",
        "use_rmsnorm",
        "multi_gate",
        "ep_size",
    }
)


def read(config: Config) -> Decoder:
    """The published class is the repository's own and its configs are complete: only switches have defaults (vLLM 0.33.0)."""
    d = open_decoder(config, tie_default=False)
    d.full(d.all)
    output(d, module="word_embeddings")
    attention(d, tuple(d.all))
    sparse = mixture_layers(d)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"), bias=config.flag("use_bias"))
    config.ignore("intermediate_size")
    plain_experts(d, sparse)
    pre_norms(d)
    draft = draft_layers(d, "num_nextn_predict_layers")
    if draft:
        with drafting(d):
            d.full(draft)
            attention(d, draft)
            plain_experts(d, draft)
            pre_norms(d, draft)
            for name in ("enorm", "hnorm", "final_layernorm"):
                d.norm(f"draft {name}", f"layers.{{i}}.{name}", layers=draft)
            d.part("joining projection", Role.DRAFT, "layers.{i}.eh_proj", d.hidden, 2 * d.hidden, layers=draft)
    return d


def plain_experts(d: Decoder, layers: tuple[int, ...]) -> None:
    """The mixture; first-generation models have no router correction and a 16-bit router."""
    d.config.data = {"moe_router_enable_expert_bias": False, "router_dtype": "bf16", **d.config.data}
    experts(d, layers)


def attention(d: Decoder, layers: tuple[int, ...]) -> None:
    """One published matrix for queries, keys and values."""
    config, module = d.config, "layers.{i}.attention"
    heads, kv, dim = d.need(d.attention_heads), d.need(d.kv_heads), d.need(d.head_dim)
    bias = config.flag("use_bias")
    both = bias or config.flag("use_qkv_bias")
    fused = f"{module}.query_key_value"
    d.linear("query", Role.ATTENTION, fused, heads * dim, d.hidden, layers=layers, shard=Shard.COLUMN, bias=both)
    d.linear("key_value", Role.ATTENTION, fused, 2 * kv * dim, d.hidden, layers=layers, shard=Shard.KV_HEADS, heads=kv, bias=both)
    if config.flag("use_qk_norm"):
        d.norm("query norm", f"{module}.query_layernorm", layers=layers, size=dim)
        d.norm("key norm", f"{module}.key_layernorm", layers=layers, size=dim)
    d.linear("dense", Role.ATTENTION, f"{module}.dense", d.hidden, heads * dim, layers=layers, shard=Shard.ROW, bias=bias)
