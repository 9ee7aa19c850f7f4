"""DeepSeek-V4: a short window in every layer, compressed caches in most, hyper-connections, and hash-routed first mixtures."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.sparse import fp8_index
from gpufit.model import Role, Shard
from gpufit.quantity import BYTE_PER_TOKEN, NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_layers, drafting
from gpufit.sources.patterns import class_defaults, known, per_layer, spread
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("DeepseekV4ForCausalLM",)
INERT = frozenset({"hc_eps", "hc_sinkhorn_iters", "compress_rope_theta", "compress_rope_parameters", "qk_nope_head_dim"})
DEFAULTS = class_defaults(
    "DeepseekV4Config (transformers 5.24.0)",
    vocab_size=129280,
    hidden_size=4096,
    moe_intermediate_size=2048,
    num_hidden_layers=43,
    num_attention_heads=64,
    head_dim=512,
    q_lora_rank=1024,
    num_experts_per_tok=6,
    n_routed_experts=256,
    n_shared_experts=1,
    max_position_embeddings=1048576,
    hc_mult=4,
    sliding_window=128,
    o_groups=8,
    o_lora_rank=1024,
    index_n_heads=64,
    index_head_dim=128,
    num_hash_layers=3,
)
CODE = "modeling_deepseek_v4.py (transformers 5.24.0)"
WINDOW, INDEXED, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
RATIOS = {0: WINDOW, 4: INDEXED, 128: HEAVY}
OVERLAP = 2
"""Groups that one entry of an indexed layer is drawn from: its own and the one before."""


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers by `compress_ratios` (0, 4 with an indexer, 128) or by `layer_types`; entries beyond the layers are the draft's."""
    d = open_decoder(config, tie_default=False, prefix="", standard_heads=False)
    d.attention_heads = config.count("num_attention_heads", symbol="n_q", label="attention heads")
    if config.integer("num_key_value_heads", default=1) != 1:
        where = config.where("num_key_value_heads")
        raise ConfigError(f"{where} is {config.raw('num_key_value_heads')}, expected 1", hint="check the config.json")
    config.ignore("qk_rope_head_dim", "index_topk", "expert_dtype", "swiglu_limit")
    check_rates(config)
    kinds = layer_kinds(config, int(d.num_layers))
    keep_window(d, tuple(d.all))
    keep_entries(d, kinds)
    output(d, module="embed", head="/head")
    hidden = d.hidden
    attention(d, tuple(d.all))
    compressors(d, kinds)
    hashed = hash_layers(config, int(d.num_layers))
    mixture(d, tuple(d.all), hashed)
    hyper_connections(d, tuple(d.all))
    d.norm("final norm", "norm")
    hyper_head(d, "hc_head")
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    if draft:
        with drafting(d):
            keep_window(d, draft)
            attention(d, draft)
            mixture(d, draft, ())
            hyper_connections(d, draft)
            for name in ("e_proj", "h_proj"):
                d.linear(
                    f"joining {name}", Role.DRAFT, f"layers.{{i}}.{name}", hidden, hidden, layers=draft, shard=Shard.REPLICATED
                )
            for name in ("enorm", "hnorm", "norm"):
                d.norm(f"draft {name}", f"layers.{{i}}.{name}", layers=draft)
            hyper_head(d, "layers.{i}.hc_head", layers=draft)
    return d


def layer_kinds(config: Config, layers: int) -> dict[str, tuple[int, ...]]:
    """Layers by what they keep beside the window."""
    words = per_layer(config, "layer_types", layers)
    ratios = config.items("compress_ratios")
    if words is not None:
        return spread(config, "layer_types", words, RATIOS.values())
    if ratios is not None:
        if len(ratios) < layers:
            raise ConfigError(
                f"{config.where('compress_ratios')} has {len(ratios)} entries for {layers} layers",
                hint="check that the file is complete",
            )
        by_ratio = spread(config, "compress_ratios", ratios[:layers], RATIOS)
        return {word: by_ratio[ratio] for ratio, word in RATIOS.items()}
    turn = [HEAVY if i < 2 or i % 2 == 0 else INDEXED for i in range(layers)]
    return spread(config, "layer_types", turn, RATIOS.values())


def check_rates(config: Config) -> None:
    """Refuses compression rates by which no DeepSeek-V4 was published: which layers own an indexer hangs on them."""
    rates = config.sub("compress_rates")
    given = [(config, "compress_rate_csa", 4), (config, "compress_rate_hca", 128)]
    if rates is not None:
        given += [(rates, INDEXED, 4), (rates, HEAVY, 128)]
    for level, name, usual in given:
        if (rate := level.integer(name, default=usual)) != usual:
            raise ConfigError(f"{level.where(name)} is {rate}, expected {usual}", hint="a newer gpufit may know this rate")


def width(d: Decoder) -> Q:
    """The width of the shared vector, and of each query head."""
    return d.config.count("head_dim", symbol="d", label="head dimension")


def index_width(d: Decoder) -> Q:
    """The width of an index key."""
    return d.config.count("index_head_dim", symbol="d_i", label="index width")


def ratio_of(word: str) -> Q:
    """Tokens to one entry."""
    ratio = next(r for r, w in RATIOS.items() if w == word)
    return fact(ratio, NUMBER, symbol=f"r_{ratio}", name="tokens to one entry", origin=f"compress_ratios: {ratio}")


def keep_window(d: Decoder, layers: tuple[int, ...]) -> None:
    """The window of the last tokens, which every layer keeps."""
    window = d.config.count("sliding_window", symbol="w", label="attention window", unit=TOKEN_PER_SEQUENCE)
    d.layer(SlidingLatent(entry_dim=width(d), window=window, attention_heads=d.need(d.attention_heads)), layers)


def keep_entries(d: Decoder, kinds: dict[str, tuple[int, ...]]) -> None:
    """The compressed caches. A compressor holds values and gates at fp32; an indexed one does so for two groups."""
    fp32 = fact(4, BYTE_PER_TOKEN, symbol="b_z", name="bytes of a state element", origin="compressor states are fp32 (DeepSeek-V4)")
    for word, groups in ((INDEXED, OVERLAP), (HEAVY, 1)):
        ratio = ratio_of(word)
        waiting = groups * int(ratio)
        origin = f"{groups} groups of {int(ratio)} tokens"
        tokens = fact(waiting, TOKEN_PER_SEQUENCE, symbol=f"z_{int(ratio)}", name="tokens that wait", origin=origin)
        kind = Compressed(
            ratio=ratio,
            entry_dim=width(d),
            attention_heads=d.need(d.attention_heads),
            state_tokens=tokens,
            state_width=2 * groups * width(d),
            state_bytes=fp32,
            index=fp8_index(index_width(d)) if word == INDEXED else None,
            index_state_width=2 * groups * index_width(d) if word == INDEXED else None,
        )
        d.layer(kind, kinds[word])


def attention(d: Decoder, layers: tuple[int, ...]) -> None:
    """Low-rank queries, one shared vector, sinks, and a grouped low-rank output."""
    c, role, heads, hidden = d.config, Role.ATTENTION, d.need(d.attention_heads), d.hidden
    rank = c.count("q_lora_rank", symbol="r_q", label="query rank")
    out_rank = c.count("o_lora_rank", symbol="r_o", label="output rank")
    groups = c.count("o_groups", symbol="g_o", label="output groups")
    if not int(groups):
        raise ConfigError(f"{c.where('o_groups')} is 0", hint="check the config.json")
    inner = heads * width(d) // groups
    for name, rows, columns, shard in (
        ("wq_a", rank, hidden, Shard.REPLICATED),
        ("wq_b", heads * width(d), rank, Shard.COLUMN),
        ("wkv", width(d), hidden, Shard.REPLICATED),
        ("wo_a", groups * out_rank, inner, Shard.COLUMN),
        ("wo_b", hidden, groups * out_rank, Shard.ROW),
    ):
        d.linear(name, role, f"layers.{{i}}.attn.{name}", rows, columns, layers=layers, shard=shard)
    d.norm("q_norm", "layers.{i}.attn.q_norm", layers=layers, size=rank)
    d.norm("kv_norm", "layers.{i}.attn.kv_norm", layers=layers, size=width(d))
    # Whole on every rank: vLLM 0.33.0 pads the heads of a rank up to 64 (models/deepseek_v4/attention.py).
    d.part("attention sinks", role, "layers.{i}.attn.attn_sink", heads, layers=layers, dtype="fp32")
    d.norm("attention norm", "layers.{i}.attn_norm", layers=layers)
    d.norm("MLP norm", "layers.{i}.ffn_norm", layers=layers)


def compressors(d: Decoder, kinds: dict[str, tuple[int, ...]]) -> None:
    """Projections of the compressors and of the indexers, whole on every rank; all but the indexers' queries stay at 16 bit."""
    for word, groups in ((INDEXED, OVERLAP), (HEAVY, 1)):
        compressor(d, Role.ATTENTION, "layers.{i}.attn.compressor", kinds[word], ratio_of(word), groups, width(d))
    at = kinds[INDEXED]
    if not at:
        return
    c, where = d.config, "layers.{i}.attn.indexer"
    heads = c.count("index_n_heads", symbol="n_i", label="index heads")
    rank = c.count("q_lora_rank", symbol="r_q", label="query rank")
    compressor(d, Role.INDEXER, f"{where}.compressor", at, ratio_of(INDEXED), OVERLAP, index_width(d))
    d.linear("index wq_b", Role.INDEXER, f"{where}.wq_b", heads * index_width(d), rank, layers=at, shard=Shard.REPLICATED)
    d.part("index weights_proj", Role.INDEXER, f"{where}.weights_proj", heads, d.hidden, layers=at)


def compressor(d: Decoder, role: Role, where: str, layers: tuple[int, ...], ratio: Q, groups: int, size: Q) -> None:
    """One compressor: values and gates of `groups` groups, their positions, and a norm."""
    for name in ("wkv", "wgate"):
        d.part(f"compressor {name}", role, f"{where}.{name}", groups * size, d.hidden, layers=layers)
    d.part("compressor positions", role, f"{where}.ape", ratio, groups * size, layers=layers, dtype="fp32")
    d.norm("compressor norm", f"{where}.norm", layers=layers, size=size)


def hash_layers(config: Config, layers: int) -> tuple[int, ...]:
    """The layers whose experts are looked up by token."""
    words = per_layer(config, "mlp_layer_types", layers)
    if words is not None:
        return spread(config, "mlp_layer_types", words, ("hash_moe", "moe"))["hash_moe"]
    return tuple(range(min(layers, config.integer("num_hash_layers"))))


def mixture(d: Decoder, layers: tuple[int, ...], hashed: tuple[int, ...]) -> None:
    """Routed and shared experts; a hashed layer has a table from token to experts where others have a score correction."""
    c, where = d.config, "layers.{i}.ffn"
    experts = c.count("n_routed_experts", symbol="E", label="routed experts")
    used = c.count("num_experts_per_tok", symbol="E_k", label="experts per token")
    inner = c.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.experts(layers, experts=experts, per_token=used, intermediate=inner, module=where, names=("w1", "w3", "w2"))
    scored = tuple(i for i in layers if i not in hashed)
    if c.text("topk_method") in (None, "noaux_tc"):
        d.part("router score correction", Role.ROUTER, f"{where}.gate.bias", experts, layers=scored, dtype="fp32", buffer=True)
    table = d.need(d.vocab)
    if hashed:
        d.part("router table", Role.ROUTER, f"{where}.gate.tid2eid", table, used, layers=hashed, dtype="int32", buffer=True)
    shared = c.maybe("n_shared_experts", symbol="E_s", label="shared experts")
    if shared is not None and int(shared):
        at, role = f"{where}.shared_experts", Role.SHARED_EXPERTS
        d.mlp(layers, shared * inner, module=at, names=("w1", "w3", "w2"), role=role, label="shared expert ")


def streams(d: Decoder) -> Q:
    """The number of residual streams."""
    return d.config.count("hc_mult", symbol="m", label="residual streams")


def hyper_connections(d: Decoder, layers: tuple[int, ...]) -> None:
    """What mixes the residual streams around attention and MLP, at fp32: (2 + m) * m rows over all streams."""
    m = streams(d)
    rows = (2 + int(m)) * m
    three = known(3, symbol="three", label="scales of one connection", source=CODE)
    for name in ("attn", "ffn"):
        d.part(f"{name} connection", Role.OTHER, f"layers.{{i}}.hc_{name}_fn", rows, m * d.hidden, layers=layers, dtype="fp32")
        d.part(f"{name} connection base", Role.OTHER, f"layers.{{i}}.hc_{name}_base", rows, layers=layers, dtype="fp32")
        d.part(f"{name} connection scale", Role.OTHER, f"layers.{{i}}.hc_{name}_scale", three, layers=layers, dtype="fp32")


def hyper_head(d: Decoder, module: str, layers: tuple[int, ...] = ()) -> None:
    """What joins the residual streams before the output head."""
    m = streams(d)
    one = known(1, symbol="one", label="scale of the head connection", source=CODE)
    d.part("head connection", Role.OTHER, f"{module}_fn", m, m * d.hidden, layers=layers, dtype="fp32")
    d.part("head connection base", Role.OTHER, f"{module}_base", m, layers=layers, dtype="fp32")
    d.part("head connection scale", Role.OTHER, f"{module}_scale", one, layers=layers, dtype="fp32")
