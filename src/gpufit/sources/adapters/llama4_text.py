"""The text model of Llama 4: chunked layers with rotary positions, full ones without, and mixtures with a shared expert."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.chunked import Chunked
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import CHUNKED, FULL, class_defaults, pre_norms, typed_layers, without
from gpufit.sources.stated import with_defaults

MODEL_TYPES = ("llama4_text",)
ARCHITECTURES = ("Llama4ForCausalLM",)
INERT = frozenset({"for_llm_compressor", "_attn_implementation_autoset", "use_qk_norm", "attn_temperature_tuning"})
DEFAULTS = class_defaults(
    "Llama4TextConfig (transformers 5.24.0)",
    vocab_size=202048,
    hidden_size=5120,
    intermediate_size=8192,
    intermediate_size_mlp=16384,
    num_hidden_layers=48,
    num_attention_heads=40,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    num_experts_per_tok=1,
    num_local_experts=16,
    interleave_moe_layer_step=1,
    no_rope_layer_interval=4,
    attention_chunk_size=8192,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Layers by `layer_types`, else chunked where they rotate; query and key norms have no weights."""
    d = open_decoder(config, tie_default=False)
    attention_kinds(d)
    output(d)
    bias = config.flag("attention_bias")
    d.attention(d.all, bias=bias, out_bias=bias)
    sparse = moe_layers(d)
    dense = without(d.all, sparse)
    where = "layers.{i}.feed_forward"
    if dense:
        d.mlp(dense, config.count("intermediate_size_mlp", symbol="I_d", label="MLP width"), module=where)
    config.ignore("intermediate_size_mlp")
    width = config.count("intermediate_size", symbol="I", label="expert width")
    experts = config.count("num_local_experts", symbol="E", label="routed experts")
    used = config.count("num_experts_per_tok", symbol="E_k", label="experts per token")
    if sparse:
        d.part("router", Role.ROUTER, f"{where}.router", experts, d.hidden, layers=sparse)
        pairs = (("gate_up_proj", 2 * width, d.hidden, Shard.COLUMN), ("down_proj", d.hidden, width, Shard.ROW))
        for name, rows, columns, shard in pairs:
            d.linear(
                f"expert {name}",
                Role.ROUTED_EXPERTS,
                f"{where}.experts.{name}",
                rows,
                columns,
                layers=sparse,
                shard=shard,
                copies=experts,
                active=(used, experts),
            )
        d.shared_experts(sparse, width, module=f"{where}.shared_expert")
    pre_norms(d)
    return d


def attention_kinds(d: Decoder) -> None:
    """Chunked and full layers. `no_rope_layers` has 0 for a layer without positions, which attends fully; empty or absent it is every
    `no_rope_layer_interval`-th.
    """
    config, layers = d.config, int(d.num_layers)
    marks = config.items("no_rope_layers")
    interval = config.integer("no_rope_layer_interval", "nope_layer_interval")
    if not marks:
        marks = [int((i + 1) % interval != 0) for i in d.all]
    if len(marks) < layers:
        raise ConfigError(
            f"{config.where('no_rope_layers')} has {len(marks)} entries for {layers} layers", hint="check that the file is complete"
        )
    chunk = config.maybe("attention_chunk_size", symbol="c", label="attention chunk", unit=TOKEN_PER_SEQUENCE)
    words = [CHUNKED if marks[i] and chunk is not None else FULL for i in d.all]
    kinds = typed_layers(config, layers, (FULL, CHUNKED), otherwise=words)
    d.full(kinds[FULL])
    if kinds[CHUNKED]:
        if chunk is None:
            raise config.missing("attention_chunk_size")
        kind = Chunked(
            attention_heads=d.need(d.attention_heads), kv_heads=d.need(d.kv_heads), head_dim=d.need(d.head_dim), chunk=chunk
        )
        d.layer(kind, kinds[CHUNKED])


def moe_layers(d: Decoder) -> tuple[int, ...]:
    """Mixtures: those listed in `moe_layers`, else every `interleave_moe_layer_step`-th layer."""
    listed = d.config.items("moe_layers")
    step = d.config.integer("interleave_moe_layer_step")
    if listed is not None:
        return tuple(i for i in d.all if i in listed)
    return tuple(range(step - 1, int(d.num_layers), step)) if step else ()
