"""What dense text families have in common: basics with class defaults, what stands on top of the decoder, and the Llama shape.

A family's adapter says only how it differs: where it has biases, which norms, whether its MLP is gated, which layers slide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import HEAD_NAMES, HIDDEN_NAMES, LAYER_NAMES, Decoder, open_decoder
from gpufit.sources.patterns import FULL, SLIDING, attend, class_defaults, per_layer, spread, window_of

PRE_NORMS = (("input norm", "input_layernorm"), ("post-attention norm", "post_attention_layernorm"))
STRUCTURE = frozenset(HIDDEN_NAMES + LAYER_NAMES + HEAD_NAMES)
GENERATES = frozenset({"ChatGLMModel", "AquilaModel", "GritLM"})
"""Classes with an output head whose names do not say so."""
ENCODER_NOTE = "an encoder: it attends in both directions and keeps no KV cache"


def basics(config: Config, source: str, *, tie: bool, prefix: str = "model.", **fields: Any) -> Decoder:
    """A Decoder whose absent fields take the values of the class `source`; an answer repeats which ones it took.

    `fields` are the class's defaults by published name, only those that change cache, weights or context limit. A file of its own
    always names its width, layers and heads: there an absence means that it is not whole, and is refused.
    """
    if not config.path:
        fields = {name: value for name, value in fields.items() if name not in STRUCTURE}
    config.fall_back(class_defaults(source, **fields))
    d = open_decoder(config, tie_default=Default(value=tie, source=source), prefix="" if top_of(config) == "none" else prefix)
    state_defaults(d, source, fields)
    return d


def state_defaults(d: Decoder, source: str, fields: Iterable[str]) -> None:
    """Says in the answer which fields a whole config.json leaves to its class; nested configs are published as differences from it."""
    absent: dict[str, list[str]] = {}
    for name in fields:
        if name not in d.config.data and not d.config.path:
            said = d.config.fallbacks.get(name)
            absent.setdefault(said.source if said else source, []).append(name)
    for known, names in absent.items():
        d.assumptions.append(f"{d.config.origin} has no {', '.join(names)}: the defaults of {known} are used")


# -- what stands on top ---------------------------------------------------------------------------------------------------------


def top_of(config: Config) -> str:
    """What the class in `architectures` puts on top of the decoder: "lm", "score", "token", "span", "reward", "value" or "none".

    Nested text models and files without `architectures` count as language models: there the outer class decides.
    """
    listed = config.items("architectures") or []
    if config.path or not listed:
        return "lm"
    name = str(listed[0])
    if "Eagle" in name or "Medusa" in name or "DFlash" in name or "DSpark" in name:
        raise ConfigError(
            f"{config.where('architectures')} is {name}: a draft model, which is loaded beside another model",
            hint="size the model that it drafts for",
        )
    if "ForSequenceClassification" in name:
        return "score"
    if "ForTokenClassification" in name:
        return "token"
    if "ForQuestionAnswering" in name:
        return "span"
    if name in ("Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"):
        return "reward"
    if name == "InternLM2ForRewardModel":
        return "value"
    if "ForCausalLM" in name or name in GENERATES or name.endswith(("LMHeadModel", "ForConditionalGeneration", "ForMaskedLM")):
        return "lm"
    if name.endswith("Model"):
        return "none"
    raise ConfigError(
        f"{config.where('architectures')} is {name}, and what it puts on top of {config.text('model_type')} is not known",
        hint="a causal language model, a bare model, or a classification head are",
    )


def labels(config: Config, *, otherwise: int = 2) -> Q:
    """The outputs of a classification head: `num_labels`, the length of `id2label`, or the two that most classes start from."""
    named = config.raw("id2label")
    config.ignore("label2id")
    if config.has("num_labels") or not isinstance(named, dict):
        default = Default(value=otherwise, source="PreTrainedConfig (transformers 5.24.0)")
        return config.count("num_labels", symbol="n_l", label="labels", default=default)
    return config.item(len(named), "id2label", symbol="n_l", label="labels")


def output(d: Decoder, *, module: str = "embed_tokens", head: str = "/lm_head", head_bias: bool = False) -> None:
    """The token embedding and what the class puts on top: an output head, a classification head, or nothing."""
    top = top_of(d.config)
    if top == "lm":
        d.embedding(module=module, head=head, head_bias=head_bias)
        return
    if top == "none" and not d.tied:
        d.extras["head_rows"] = d.need(d.vocab)  # engines that run the language model's class make room for its head
    d.tied = True  # one matrix of the vocabulary's size: the embedding
    d.embedding(module=module)
    d.notes.append("an embedding or classification model: it has no output head over the vocabulary")
    if top == "none":
        return
    if top == "reward":
        d.part("reward layer", Role.HEAD, "/score.0", d.hidden, d.hidden, shard=Shard.COLUMN)
        d.part("reward layer bias", Role.HEAD, "/score.0.bias", d.hidden, shard=Shard.COLUMN)
    count = _one(d) if _architecture(d) in ("Qwen2ForRewardModel", "InternLM2ForRewardModel") else labels(d.config)
    names = {"score": "/score", "token": "/score", "span": "/qa_outputs", "reward": "/score.2", "value": "/v_head"}
    rows = d.config.item(2, "architectures", symbol="n_l", label="start and end of a span") if top == "span" else count
    d.part(
        "classification head",
        Role.HEAD,
        names[top],
        rows,
        d.hidden,
        shard=Shard.ROW if top in ("reward", "value") else Shard.REPLICATED,
    )
    if top not in ("score", "value"):
        d.part("classification head bias", Role.HEAD, names[top] + ".bias", rows)


def _architecture(d: Decoder) -> str:
    return str((d.config.items("architectures") or [""])[0])


def _one(d: Decoder) -> Q:
    return d.config.item(1, "architectures", symbol="n_l", label="labels")


# -- layers ----------------------------------------------------------------------------------------------------------------------


def causal(d: Decoder) -> bool:
    """Whether layers attend backwards only and so keep a cache; a config that says otherwise makes a note."""
    both_ways = "Bidirectional" in _architecture(d) or d.config.flag("use_bidirectional_attention")
    if d.config.flag("is_causal", default=True) and not both_ways:
        return True
    d.notes.append(ENCODER_NOTE)
    return False


def windows(d: Decoder, window: Q | None, otherwise: Sequence[str]) -> None:
    """The layer kinds: `layer_types` where the file has it, else `otherwise`, one word a layer.

    Sliding layers without a window are refused, as their mask would have no width.
    """
    total = int(d.num_layers)
    values = per_layer(d.config, "layer_types", total)
    at = spread(d.config, "layer_types", values if values is not None else list(otherwise), (FULL, SLIDING))
    if not d.config.asked("sliding_window") and not at[SLIDING]:
        stray_window(d)
    if at[SLIDING] and window is None:
        raise ConfigError(
            f"{d.config.where('layer_types')} has sliding layers, but sliding_window is {d.config.raw('sliding_window')!r}",
            hint="check that the config.json is complete",
        )
    if causal(d):
        attend(d, full=at[FULL], sliding=at[SLIDING], window=window)


def listed_windows(d: Decoder) -> None:
    """Full attention by the class; layers slide only where `layer_types` names them."""
    slides = SLIDING in (d.config.items("layer_types") or [])
    windows(d, window_of(d.config) if slides else None, every(d, FULL))


def stray_window(d: Decoder) -> None:
    """A window in the file of a family whose class knows none: an assumption of the answer, unless the file switches it off.

    The class attends fully. vLLM 0.33.0 hands the number to every attention layer that does not choose its own window, unless
    `layer_types` stands beside it (engine/arg_utils.py, model_executor/layers/attention/attention.py).
    """
    window = d.config.integer("sliding_window", default=0)
    if window and d.config.raw("use_sliding_window") is not False:
        d.assumptions.append(
            f"{d.config.where('sliding_window')} is {window}, but the published class does not read it: all layers are sized as full "
            "attention. vLLM would keep no more than the window in each"
        )


def every(d: Decoder, kind: str) -> list[str]:
    """One word for all layers."""
    return [kind] * int(d.num_layers)


def nth_full(d: Decoder, step: int) -> list[str]:
    """Sliding layers but for each `step`-th, which is full; a step of zero or less leaves none sliding."""
    return [SLIDING if step > 0 and (i + 1) % step else FULL for i in d.all]


# -- weights ---------------------------------------------------------------------------------------------------------------------


def width(d: Decoder, *names: str) -> Q:
    """The width of the MLP."""
    return d.config.count(*(names or ("intermediate_size",)), symbol="I", label="MLP width")


def norms(
    d: Decoder,
    listed: Iterable[tuple[str, str]] = PRE_NORMS,
    *,
    final: str = "norm",
    bias: bool = False,
    module: str = "layers.{i}.",
) -> None:
    """The norms of each layer by name and module, and the final one."""
    for name, path in listed:
        d.norm(name, module + path, layers=d.all, bias=bias)
    if final:
        d.norm("final norm", final, bias=bias)


def fused_qkv(
    d: Decoder, module: str, *, bias: bool = False, layers: Iterable[int] | None = None, kv_heads: Q | None = None
) -> None:
    """One published matrix with the queries, keys and values: three parts of one module, since each shards in its own way."""
    at = tuple(d.all if layers is None else layers)
    nq, nk, dim = d.need(d.attention_heads), kv_heads or d.need(d.kv_heads), d.need(d.head_dim)
    d.linear("q_proj", Role.ATTENTION, module, nq * dim, d.hidden, layers=at, shard=Shard.COLUMN, bias=bias)
    d.linear("k_proj", Role.ATTENTION, module, nk * dim, d.hidden, layers=at, shard=Shard.KV_HEADS, heads=nk, bias=bias)
    d.linear("v_proj", Role.ATTENTION, module, nk * dim, d.hidden, layers=at, shard=Shard.KV_HEADS, heads=nk, bias=bias)


def out_proj(d: Decoder, module: str, *, bias: bool = False) -> None:
    """The output projection of attention."""
    rows = d.need(d.attention_heads) * d.need(d.head_dim)
    d.linear("o_proj", Role.ATTENTION, module, d.hidden, rows, layers=d.all, shard=Shard.ROW, bias=bias)


def fused_gate_up(d: Decoder, module: str, intermediate: Q, *, bias: bool = False) -> None:
    """One published matrix with gate and up projection."""
    d.linear("gate_up_proj", Role.MLP, module, 2 * intermediate, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=bias)


def down(d: Decoder, module: str, intermediate: Q, *, bias: bool = False, shard: Shard = Shard.ROW) -> None:
    """The projection of the MLP back to the hidden size."""
    d.linear("down_proj", Role.MLP, module, d.hidden, intermediate, layers=d.all, shard=shard, bias=bias)


def up(d: Decoder, module: str, intermediate: Q, *, bias: bool = False, shard: Shard = Shard.COLUMN) -> None:
    """The projection of an MLP without a gate to its width."""
    d.linear("up_proj", Role.MLP, module, intermediate, d.hidden, layers=d.all, shard=shard, bias=bias)


def llama_shape(
    d: Decoder,
    *,
    bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: str = "",
    gated: bool = True,
    norm_bias: bool = False,
    listed: Iterable[tuple[str, str]] = PRE_NORMS,
) -> None:
    """The weights that Llama and its many relatives share: separate projections, a gated MLP, two norms a layer, a final norm."""
    output(d)
    d.attention(d.all, bias=bias, out_bias=out_bias, qk_norm=qk_norm)
    d.mlp(d.all, width(d), gated=gated, bias=mlp_bias)
    norms(d, listed, bias=norm_bias)


def inner_width(d: Decoder, name: str = "n_inner") -> Q:
    """The width of an MLP that is four times the model's unless the file says otherwise (absent or null)."""
    found = d.config.maybe(name, symbol="I", label="MLP width")
    return found if found is not None else (4 * d.hidden).as_step("I", "MLP width")


def latent_shape(d: Decoder, *, value_dim: Q | None = None) -> None:
    """A dense model with multi-head latent attention: DeepSeek's projections, an ordinary MLP in each layer."""
    c = d.config
    heads = d.need(d.attention_heads)
    output(d)
    query = c.maybe("q_lora_rank", symbol="r_q", label="query latent rank")
    rope = c.count("qk_rope_head_dim", symbol="d_r", label="rotary width of keys")
    nope = c.count("qk_nope_head_dim", symbol="d_n", label="other width of keys")
    value = c.maybe("v_head_dim", symbol="d_v", label="value width") or value_dim or nope
    rank = c.count("kv_lora_rank", symbol="r", label="latent rank")
    d.latent(
        d.all,
        heads=heads,
        latent_rank=rank,
        rope_dim=rope,
        nope_dim=nope,
        value_dim=value,
        query_rank=query,
        bias=c.flag("attention_bias"),
    )
    d.kv_heads = d.head_dim = None
    d.mlp(d.all, width(d), bias=c.flag("mlp_bias"))
    norms(d)
