"""What the classes after DeepSeek-V2 share: latent attention, dense layers first, mixtures with shared experts, draft layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpufit.errors import ConfigError
from gpufit.layers.base import LayerKind
from gpufit.layers.sparse import Index, SparseLatent, fp8_index
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_joint, draft_layers, drafting
from gpufit.sources.patterns import after_dense, per_layer, pre_norms, spread, without

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")
UNUSED = ("intermediate_size", "moe_intermediate_size", "n_shared_experts", "num_experts_per_tok")
"""Fields of this line that stand in configs of models without the layers that need them."""

Attention = Callable[[Decoder, tuple[int, ...]], None]


def query_rank(config: Config) -> Q | None:
    """The rank of the compressed queries; None when the config says null (an absent one is the class default)."""
    if config.present("q_lora_rank") and config.raw("q_lora_rank") is None:
        return None
    rank = config.maybe("q_lora_rank", symbol="r_q", label="query rank")
    return rank if rank is not None and int(rank) else None


def latent_attention(
    d: Decoder, layers: Iterable[int], *, bias: bool = False, index: Index | None = None, sparse: bool = False
) -> None:
    """Latent attention by the DeepSeek names; `sparse` over what an indexer selects, with its key `index` in owners."""
    c = d.config
    kind: LayerKind | None = None
    if sparse:
        kind = SparseLatent(
            latent_rank=c.count("kv_lora_rank", symbol="r_kv", label="latent rank"),
            rope_dim=c.count("qk_rope_head_dim", symbol="d_r", label="rotary width"),
            attention_heads=d.need(d.attention_heads),
            index=index,
        )
    d.latent(
        layers,
        heads=d.need(d.attention_heads),
        latent_rank=c.count("kv_lora_rank", symbol="r_kv", label="latent rank"),
        rope_dim=c.count("qk_rope_head_dim", symbol="d_r", label="rotary width"),
        nope_dim=c.count("qk_nope_head_dim", symbol="d_n", label="width without position"),
        value_dim=c.count("v_head_dim", symbol="d_v", label="value width"),
        query_rank=query_rank(c),
        bias=bias,
        kind=kind,
    )


def indexer(d: Decoder, layers: Iterable[int], *, inputs: Q | None = None, module: str = "layers.{i}.self_attn.indexer") -> None:
    """The weights of a lightning indexer, whole on every rank. Its queries come from the compressed queries, or from `inputs`.

    The head weights stay at 16 bit where the rest is fp8, so quantisers pass them by (DeepSeek-V3.2; vLLM 0.33.0 Indexer).
    """
    at = tuple(layers)
    if not at:
        return
    c, role = d.config, Role.INDEXER
    dim = c.count("index_head_dim", symbol="d_i", label="index width")
    heads = c.count("index_n_heads", symbol="n_i", label="index heads")
    source = inputs if inputs is not None else query_rank(c)
    if source is None:
        raise ConfigError(
            f"{c.where('q_lora_rank')} is null, but the indexer reads the compressed queries", hint="check the config.json"
        )
    d.linear("index wq_b", role, f"{module}.wq_b", heads * dim, source, layers=at, shard=Shard.REPLICATED)
    d.linear("index wk", role, f"{module}.wk", dim, d.hidden, layers=at, shard=Shard.REPLICATED)
    d.part("index k_norm", role, f"{module}.k_norm", dim, layers=at, dtype="fp32")
    d.part("index k_norm bias", role, f"{module}.k_norm.bias", dim, layers=at, dtype="fp32")
    d.part("index weights_proj", role, f"{module}.weights_proj", heads, d.hidden, layers=at)


def index_owners(config: Config, layers: int) -> tuple[int, ...]:
    """The layers that own an indexer; the others reuse the selection of the last owner before them.

    `indexer_types` says it, else `index_topk_pattern` (F and S), else every `index_topk_freq`-th layer from
    `index_skip_topk_offset` - 1 on and all before it (GlmMoeDsaConfig, transformers 5.24.0; deepseek_v2.py, vLLM 0.33.0). Without
    these every layer owns one.
    """
    words = per_layer(config, "indexer_types", layers)
    name = "indexer_types"
    pattern = config.raw("index_topk_pattern")
    freq, offset = config.integer("index_topk_freq", default=1), config.integer("index_skip_topk_offset", default=2)
    if words is None and pattern is not None:
        name = "index_topk_pattern"
        if len(pattern) < layers:
            raise ConfigError(
                f"{config.where(name)} has {len(pattern)} entries for {layers} layers", hint="check that the file is complete"
            )
        words = [{"F": "full", "S": "shared"}.get(word, word) for word in pattern[:layers]]
    if words is not None:
        owners = spread(config, name, words, ("full", "shared"))["full"]
    else:
        owners = tuple(i for i in range(layers) if max(i - offset + 1, 0) % max(freq, 1) == 0)
    if 0 not in owners and layers:
        raise ConfigError(f"{config.where(name)}: layer 0 reuses a selection, but none is before it", hint="check the config.json")
    return owners


def indexed_attention(d: Decoder, layers: Iterable[int], *, bias: bool = False) -> None:
    """Latent attention with lightning indexers in the layers that own one; draft layers always do."""
    c = d.config
    c.ignore("index_topk", "index_share_for_mtp_iteration", "indexer_rope_interleave")
    own = int(d.num_layers)
    owners = set(index_owners(c, own))
    index = fp8_index(c.count("index_head_dim", symbol="d_i", label="index width"))
    at = tuple(layers)
    with_index = tuple(i for i in at if i in owners or i >= own)
    latent_attention(d, with_index, bias=bias, index=index, sparse=True)
    reusing = without(at, with_index)
    if reusing:
        latent_attention(d, reusing, bias=bias, sparse=True)
    indexer(d, with_index)


def open_latent(
    config: Config, *, tie_default: bool | Default = False, tie_from: Config | None = None, prefix: str = "model."
) -> Decoder:
    """A Decoder whose heads are those of latent attention: every head has its own width, none is stored."""
    d = open_decoder(config, tie_default=tie_default, tie_from=tie_from, prefix=prefix, standard_heads=False)
    d.attention_heads = config.count("num_attention_heads", symbol="n_q", label="attention heads")
    config.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    return d


def mixture_layers(d: Decoder) -> tuple[int, ...]:
    """The layers with experts: by `mlp_layer_types` where the config has it, else after the first dense ones.

    A config whose expert count is null or zero has none, as in the published classes.
    """
    layers = int(d.num_layers)
    words = per_layer(d.config, "mlp_layer_types", layers)
    if words is not None:
        d.config.ignore("first_k_dense_replace", "moe_layer_freq")
        return spread(d.config, "mlp_layer_types", words, ("dense", "sparse"))["sparse"]
    return after_dense(d.config, layers) if d.config.raw(*EXPERT_COUNTS) else ()


def mixture(
    d: Decoder, sparse: Iterable[int], *, score_correction: bool, bias: bool = False, router_dtype: str | None = None
) -> None:
    """Routed experts and shared ones, which stand in the file as one MLP of their joint width."""
    at = tuple(sparse)
    if not at:
        return
    c = d.config
    width = c.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.experts(
        at,
        experts=c.count(*EXPERT_COUNTS, symbol="E", label="routed experts"),
        per_token=c.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=width,
        score_correction=score_correction,
        bias=bias,
        router_dtype=router_dtype,
    )
    shared = c.maybe("n_shared_experts", "num_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        d.shared_experts(at, shared * width)


def deepseek(
    config: Config,
    *,
    score_correction: bool,
    router_dtype: str | None = None,
    attention: Attention | None = None,
    tie_from: Config | None = None,
    prefix: str = "model.",
) -> Decoder:
    """A decoder of the DeepSeek-V2 line, with indexers where the config has `index_topk`. Draft layers are mixtures.

    `attention` adds other attention layers.
    """
    d = open_latent(config, tie_from=tie_from, prefix=prefix)
    bias = config.flag("attention_bias")

    def plain(decoder: Decoder, layers: tuple[int, ...]) -> None:
        (indexed_attention if config.has("index_topk") else latent_attention)(decoder, layers, bias=bias)

    add = attention or plain
    add(d, tuple(d.all))
    output(d)
    sparse = mixture_layers(d)
    dense = without(d.all, sparse)
    mlp_bias = config.flag("mlp_bias")
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"), bias=mlp_bias)
    mixture(d, sparse, score_correction=score_correction, bias=mlp_bias, router_dtype=router_dtype)
    config.ignore(*UNUSED, *EXPERT_COUNTS)
    pre_norms(d)
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    if draft:
        with drafting(d):
            add(d, draft)
            mixture(d, draft, score_correction=score_correction, bias=mlp_bias, router_dtype=router_dtype)
            pre_norms(d, draft)
            draft_joint(d, draft)
    return d
