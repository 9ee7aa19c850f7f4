"""Gemma 3n's text model: per-layer embeddings, four parallel residual streams (AltUp), low-rank side paths (Laurel), shared caches."""

from __future__ import annotations

from gpufit.layers.none import Shared
from gpufit.model import Role, Shard
from gpufit.sources.adapters.gemma2 import SANDWICH
from gpufit.sources.adapters.gemma4_text import per_layer_embeddings, queries_only, sharing
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, nth_full
from gpufit.sources.patterns import FULL, SLIDING, attend, per_layer, spread, window_of

MODEL_TYPES = ("gemma3n_text",)
ARCHITECTURES = ("Gemma3nForCausalLM",)
INERT = frozenset(
    {
        "activation_sparsity_pattern",
        "altup_active_idx",
        "altup_coef_clip",
        "altup_correct_scale",
        "altup_lr_multiplier",
        "rope_local_base_freq",
    }
)


def read(config: Config) -> Decoder:
    """Defaults: Gemma3nTextConfig (transformers 5.24.0), where every fifth layer is full.

    The last `num_kv_shared_layers` layers attend over the cache of the last earlier layer of their kind. Checkpoints hold key and value
    projections for them too, which no engine uses and this count leaves out.
    """
    d = basics(
        config, "Gemma3nTextConfig (transformers 5.24.0)", tie=True, vocab_size=262400, hidden_size=2048, intermediate_size=16384,
        num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=2, head_dim=256, max_position_embeddings=32768,
        sliding_window=512, num_kv_shared_layers=15, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
        altup_num_inputs=4, laurel_rank=64,
    )  # fmt: skip
    total = int(d.num_layers)
    at = spread(config, "layer_types", per_layer(config, "layer_types", total) or nth_full(d, 5), (FULL, SLIDING))
    first, own = sharing(d, at)
    attend(d, full=own[FULL], sliding=own[SLIDING], window=window_of(config))
    d.groups.sort(key=lambda group: isinstance(group.kind, Shared))
    if first < total:
        d.notes.append("published checkpoints also hold key and value projections of the sharing layers: not used and not counted")

    d.embedding()
    bias = config.flag("attention_bias")
    d.attention(range(first), bias=bias, out_bias=bias, qk_norm="head")
    queries_only(d, tuple(range(first, total)), d.need(d.head_dim), bias)
    _feed_forward(d)
    for name, module in SANDWICH:
        d.norm(name, f"layers.{{i}}.{module}", layers=d.all)
    d.norm("final norm", "norm")
    per_layer_embeddings(d)
    _altup(d)
    rank = config.count("laurel_rank", symbol="r_l", label="Laurel rank")
    d.linear("laurel in", Role.OTHER, "layers.{i}.laurel.linear_left", rank, d.hidden, layers=d.all, shard=Shard.REPLICATED)
    d.linear("laurel out", Role.OTHER, "layers.{i}.laurel.linear_right", d.hidden, rank, layers=d.all, shard=Shard.REPLICATED)
    d.norm("laurel norm", "layers.{i}.laurel.post_laurel_norm", layers=d.all)
    return d


def _feed_forward(d: Decoder) -> None:
    """One width for all layers, or a list with one a layer."""
    config = d.config
    if not isinstance(config.raw("intermediate_size"), list):
        d.mlp(d.all, config.count("intermediate_size", symbol="I", label="MLP width"))
        return
    widths = per_layer(config, "intermediate_size", int(d.num_layers)) or []
    for number, value in enumerate(dict.fromkeys(widths)):
        inner = config.item(value, "intermediate_size", symbol="I" if number == 0 else f"I_{number}", label="MLP width")
        d.mlp((i for i, w in enumerate(widths) if w == value), inner, label="" if number == 0 else f"width {value} ")


def _altup(d: Decoder) -> None:
    streams = d.config.count("altup_num_inputs", symbol="n_alt", label="residual streams")
    for name in ("altup_projections", "altup_unembed_projections"):
        d.part(
            name.replace("_", " "),
            Role.OTHER,
            f"{name}.{{e}}",
            d.hidden,
            d.hidden,
            copies=streams - 1,
            shard=Shard.COLUMN,
            linear=True,
        )
    module = "layers.{i}.altup."
    d.part("stream output scale", Role.OTHER, module + "correct_output_scale", d.hidden, layers=d.all)
    d.part("stream correction", Role.OTHER, module + "correction_coefs", streams, streams, layers=d.all)
    d.part("stream prediction", Role.OTHER, module + "prediction_coefs", streams * streams, streams, layers=d.all)
    d.part("stream router", Role.OTHER, module + "modality_router", streams, d.hidden, layers=d.all)
    d.norm("stream router norm", module + "router_norm", layers=d.all)
