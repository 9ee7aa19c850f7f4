"""What a config says twice must agree with itself and with the layers that were made of it; what agrees is understood.

Files repeat themselves: under an older and a newer name, in a list of layer types beside a pattern, in a basic that the family computes
from other fields. A repetition that contradicts could mean another cache, so it refuses the file by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufit.errors import ConfigError
from gpufit.quantity import Q
from gpufit.sources.decoder import Decoder

SYNONYMS = (
    ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_blocks"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("hidden_size", "n_embd", "n_embed", "d_model"),
    ("head_dim", "attention_head_dim"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
    ("num_shared_experts", "n_shared_experts"),
    ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"),
)
"""Names of one thing. No published file that was met gives two of a row different numbers."""

STATES = frozenset({"gated_delta", "kda", "linear", "mamba1", "mamba2", "rg_lru", "rwkv", "short_conv", "mlstm"})
WINDOWS = frozenset({"sliding", "sliding_latent", "chunked"})
GROWING = frozenset({"full", "latent", "sparse_latent", "sparse_full", "sparse_shared", "cross"})
SPARSE = frozenset({"sparse_latent", "sparse_full", "sparse_shared"})
NOTHING = frozenset({"none", "shared"})

WORDS: Mapping[str, tuple[frozenset[str], ...]] = {
    "full_attention": (GROWING | NOTHING,),
    "attention": (GROWING | NOTHING | WINDOWS,),
    "sliding_attention": (WINDOWS | NOTHING,),
    "chunked_attention": (frozenset({"chunked"}) | NOTHING,),
    "indexed_attention": (SPARSE,),
    "deepseek_sparse_attention": (SPARSE,),
    "linear_attention": (STATES,),
    "mamba": (STATES,),
    "conv": (STATES,),
    "recurrent": (STATES,),
    "hybrid": (STATES, GROWING),
    "compressed_sparse_attention": (frozenset({"compressed"}),),
    "heavily_compressed_attention": (frozenset({"compressed"}),),
    "minimax_m3_sparse": (SPARSE,),
    "moe": (NOTHING,),
    "mlp": (NOTHING,),
}
"""What a layer type means (transformers 5.24.0, ALLOWED_LAYER_TYPES and the older words): a kind of each set must be in the layer."""


def settle(d: Decoder) -> None:
    """Checks what the decoder's config repeats, and marks lists of layer types that agree as read.

    Raises `ConfigError` naming the fields that contradict each other, or a layer type that the layers are not of.
    """
    _synonyms(d)
    _basics(d)
    _heads(d)
    if any(part.name in ("q_norm", "query norm") for part in d.parts):
        d.config.ignore("use_qk_norm", "qk_norm")
    if d.config.data.get("use_sliding_window") is False:
        d.config.ignore("use_sliding_window", "sliding_window", "max_window_layers")
    if not d.config.data.get("sliding_window"):
        d.config.ignore("max_window_layers")
    if d.groups:
        _backwards(d)
        for name in ("layer_types", "layers_block_type"):
            _layer_types(d, name)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _synonyms(d: Decoder) -> None:
    for names in SYNONYMS:
        given = {name: value for name in names if (value := _number(d.config.data.get(name))) is not None}
        if len(set(given.values())) > 1:
            said = " and ".join(f"{d.config.path}{name} = {value}" for name, value in given.items())
            raise ConfigError(f"{d.config.origin} contradicts itself: {said} are names of one number", hint="check the config.json")


def _basics(d: Decoder) -> None:
    used = (
        ("num_key_value_heads", d.kv_heads),
        ("head_dim", d.head_dim),
        ("num_attention_heads", d.attention_heads),
        ("hidden_size", d.hidden),
    )
    for name, taken in used:
        value = _number(d.config.data.get(name))
        if value is not None and taken is not None and value != int(taken):
            raise ConfigError(
                f"{d.config.where(name)} is {value}, but this family takes {int(taken)} {taken.name} from other fields",
                hint="check the config.json",
            )


def _heads(d: Decoder) -> None:
    """Attention that keeps keys and values has KV heads, and as many attention heads to each."""
    for group in d.groups:
        heads, kv = getattr(group.kind, "attention_heads", None), getattr(group.kind, "kv_heads", None)
        if not isinstance(heads, Q) or not isinstance(kv, Q):
            continue
        if not int(kv) or int(heads) % int(kv):
            raise ConfigError(
                f"{kv.name} are {kv.value} ({kv.origin or d.config.origin}), which {heads.value} attention heads cannot share evenly",
                hint="check the config.json",
            )


def _backwards(d: Decoder) -> None:
    """A file that says its layers attend in both directions keeps no cache, if its family's reader looked there."""
    for name, value in d.config.unread().items():
        if name.rsplit(".", 1)[-1] in ("is_causal", "causal") and value is False:
            raise ConfigError(
                f"{d.config.origin}: {name} is false, which {d.config.text('model_type') or 'this family'}'s reader does not know",
                hint="layers that attend in both directions keep no KV cache",
            )


def _layer_types(d: Decoder, name: str) -> None:
    words = d.config.data.get(name)
    layers = int(d.num_layers)
    if isinstance(words, str) or not isinstance(words, Sequence):
        return  # null or absent; anything else that nobody read is the guard's to name
    if len(words) < layers:
        raise ConfigError(
            f"{d.config.where(name)} has {len(words)} entries for {layers} layers", hint="check that the file is complete"
        )
    kinds: dict[int, set[str]] = {}
    for group in d.groups:
        for i in group.indices:
            kinds.setdefault(i, set()).add(group.kind.kind)
    for i, word in enumerate(words[:layers]):
        wanted = WORDS.get(str(word))
        if wanted is None:
            raise ConfigError(f"{d.config.where(name)}[{i}] is {word!r}, which is not known", hint=f"known are {', '.join(WORDS)}")
        found = kinds.get(i, set()) or {"none"}
        if not all(found & each for each in wanted) or (word == "full_attention" and found & (WINDOWS | STATES)):
            raise ConfigError(
                f"{d.config.where(name)}[{i}] is {word!r}, but {d.config.text('model_type') or 'this family'} has "
                f"{' and '.join(sorted(found))} in that layer",
                hint="this family's layer kinds do not follow the list, or the file is not complete",
            )
    if len(words) == layers:
        d.config.ignore(name)
