"""What the classes after DeepSeek-V2 share: latent attention, dense layers first, mixtures with shared experts, draft layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.drafts import draft_joint, draft_layers, drafting
from gpufit.sources.patterns import after_dense, per_layer, pre_norms, spread, without

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")
UNUSED = ("intermediate_size", "moe_intermediate_size", "n_shared_experts", "num_experts_per_tok")
"""Fields of this line that stand in configs of models without the layers that need them."""

Attention = Callable[[Decoder, tuple[int, ...]], None]


def query_rank(config: Config) -> Q | None:
    """The rank of the compressed queries; None when the config says null (an absent field is the class default instead)."""
    if config.present("q_lora_rank") and config.raw("q_lora_rank") is None:
        return None
    rank = config.maybe("q_lora_rank", symbol="r_q", label="query rank")
    return rank if rank is not None and int(rank) else None


def latent_attention(d: Decoder, layers: Iterable[int], *, bias: bool = False) -> None:
    """Latent attention from the field names of the DeepSeek classes."""
    c = d.config
    d.latent(
        layers,
        heads=d.need(d.attention_heads),
        latent_rank=c.count("kv_lora_rank", symbol="r_kv", label="latent rank"),
        rope_dim=c.count("qk_rope_head_dim", symbol="d_r", label="rotary width"),
        nope_dim=c.count("qk_nope_head_dim", symbol="d_n", label="width without position"),
        value_dim=c.count("v_head_dim", symbol="d_v", label="value width"),
        query_rank=query_rank(c),
        bias=bias,
    )


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


def mixture(d: Decoder, sparse: Iterable[int], *, score_correction: bool, bias: bool = False) -> None:
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
    )
    shared = c.maybe("n_shared_experts", "num_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        d.shared_experts(at, shared * width)


def deepseek(
    config: Config,
    *,
    score_correction: bool,
    attention: Attention | None = None,
    tie_from: Config | None = None,
    prefix: str = "model.",
) -> Decoder:
    """A decoder of the DeepSeek-V2 line; `attention` adds other layers than plain latent ones. Draft layers are mixtures."""
    d = open_latent(config, tie_from=tie_from, prefix=prefix)
    bias = config.flag("attention_bias")

    def plain(decoder: Decoder, layers: tuple[int, ...]) -> None:
        latent_attention(decoder, layers, bias=bias)

    add = attention or plain
    add(d, tuple(d.all))
    d.embedding()
    sparse = mixture_layers(d)
    dense = without(d.all, sparse)
    mlp_bias = config.flag("mlp_bias")
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"), bias=mlp_bias)
    mixture(d, sparse, score_correction=score_correction, bias=mlp_bias)
    config.ignore(*UNUSED, *EXPERT_COUNTS)
    pre_norms(d)
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    if draft:
        with drafting(d):
            add(d, draft)
            mixture(d, draft, score_correction=score_correction, bias=mlp_bias)
            pre_norms(d, draft)
            draft_joint(d, draft)
    return d
