"""llama.cpp's GGUF mixes: which tensor type each weight of a model gets when a file is quantised as Q4_K_M and the like.

Rules: llama.cpp (2026), src/llama-quant.cpp llama_tensor_get_type_impl and tensor_allows_quantization, and what its converter keeps at
F32. Published files of the same name differ where their makers override types (dynamic "UD" files, "_L" variants) or where an older
llama.cpp made them. IQ4 mixes are sized without an importance matrix; IQ1 to IQ3 cannot be made without one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpufit.formats.ggml import bits_per_weight, fitting, ggml_format
from gpufit.formats.tensor import TensorFormat
from gpufit.model import TOWERS, Model, Recipe, Role, WeightPart
from gpufit.quantity import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A file type of llama-quantize: its `base` type holds most weights, `rule` says what stands out, for people."""

    name: str
    base: str
    rule: str

    @property
    def bits(self) -> float:
        """Bits per weight of the base type."""
        return bits_per_weight(self.base)


_MIXES: tuple[tuple[str, str, str], ...] = (
    ("f16", "F16", "vectors F32"),
    ("q8_0", "Q8_0", "the same everywhere"),
    ("q6_k", "Q6_K", "the same everywhere"),
    ("q5_k_m", "Q5_K", "attn_v and ffn_down Q6_K in half the layers, head Q6_K"),
    ("q5_k_s", "Q5_K", "head Q6_K"),
    ("q5_1", "Q5_1", "head Q6_K"),
    ("q5_0", "Q5_0", "head Q6_K"),
    ("q4_1", "Q4_1", "head Q6_K"),
    ("q4_k_m", "Q4_K", "attn_v and ffn_down Q6_K in half the layers, head Q6_K"),
    ("q4_k_s", "Q4_K", "attn_v Q5_K in 4 layers, ffn_down in the first 1/8, head Q6_K"),
    ("q4_0", "Q4_0", "head Q6_K"),
    ("mxfp4_moe", "MXFP4", "experts MXFP4, all else Q8_0"),
    ("iq4_nl", "IQ4_NL", "attn_v Q5_K (GQA of 4 or more), ffn_down Q5_K in the first 1/8, head Q6_K"),
    ("iq4_xs", "IQ4_XS", "attn_v Q5_K (GQA of 4 or more), ffn_down Q5_K in the first 1/8, head Q6_K"),
    ("q3_k_l", "Q3_K", "attn_v, attn_output and ffn_down Q5_K, head Q6_K"),
    ("q3_k_m", "Q3_K", "attn_v, attn_output and ffn_down Q4_K, the first layers Q5_K, head Q6_K"),
    ("iq3_m", "IQ3_S", "attn_v and attn_output Q4_K, ffn_down Q4_K in the first 1/8, head Q6_K"),
    ("q3_k_s", "Q3_K", "head Q6_K"),
    ("iq3_s", "IQ3_S", "attn_v Q4_K (GQA of 4 or more), head Q6_K"),
    ("iq3_xs", "IQ3_S", "attn_q, attn_k and the middle MLPs IQ3_XXS, attn_v Q4_K (GQA of 4 or more), head Q6_K"),
    ("iq3_xxs", "IQ3_XXS", "attn_q and attn_k IQ2_S, attn_output and embedding IQ3_S, head Q5_K"),
    ("q2_k", "Q2_K", "attn_output and ffn_down Q3_K, attn_v Q4_K (GQA of 4 or more), head Q6_K"),
    ("q2_k_s", "Q2_K", "attn_v Q4_K (GQA of 4 or more), ffn_down Q4_K in the first 1/8, head Q6_K"),
    ("iq2_m", "IQ2_S", "attn_output and embedding IQ3_S, attn_v Q4_K (GQA of 4 or more), head Q5_K"),
    ("iq2_s", "IQ2_XS", "attn_output and embedding IQ3_S, attn_v Q4_K (GQA of 4 or more), head Q5_K"),
    ("iq2_xs", "IQ2_XS", "attn_v Q4_K (GQA of 4 or more), embedding Q2_K, head Q5_K"),
    ("iq2_xxs", "IQ2_XXS", "attn_v Q4_K (GQA of 4 or more), embedding Q2_K, head Q5_K"),
    ("iq1_m", "IQ1_M", "attn_v Q4_K (GQA of 4 or more), embedding Q2_K, head Q5_K"),
    ("iq1_s", "IQ1_S", "attn_v Q4_K (GQA of 4 or more), embedding Q2_K, head Q5_K"),
)  # fmt: skip

GGUF_MIXES: dict[str, Mix] = {name: Mix(name=name, base=base, rule=rule) for name, base, rule in _MIXES}
"""By the name a user types, from the widest to the narrowest."""

GGUF_ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
"""Short names that llama-quantize takes too."""

_IQ2 = frozenset({"iq2_s", "iq2_m"})
_IQ1_2 = _IQ2 | {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs"}
_HEAD_Q5 = _IQ1_2 | {"iq3_xxs"}
_EIGHT_OUT_Q5 = frozenset(
    {"q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs"}
) | _IQ1_2  # fmt: skip
"""Mixes in which attn_output of a model with eight experts is Q5_K."""

_SEVENTY = frozenset({"llama", "mistral", "qwen2", "qwen2_vl", "qwen2_5_vl", "nemotron-nas"})
"""Families of which llama.cpp calls a model of 80 layers LLM_TYPE_70B (those of its llama architecture only with grouped KV heads)."""
_EVERY_LAYER = ("qwen3_next", "qwen3_5")
"""Hybrid families whose GGUF metadata state one number of KV heads for all layers; others state none for layers without attention."""

_FUSED = ("query_key_value", "c_attn", "Wqkv", "qkv_proj", "in_proj_qkv", "in_proj_qkvz")
"""Modules that stay one attn_qkv tensor; wqkv of InternLM 2 and W_pack of Baichuan are split by the converter."""

_TABLES = ("token embedding", "per-layer embedding")
"""What llama.cpp calls token embeddings: token_embd and per_layer_token_embd."""

_VALUE = re.compile(r"(^|[ _])v(_proj)?$")
_KEY = re.compile(r"(^|[ _])k(_proj)?$")
_QUERY = re.compile(r"(^|[ _])q(_proj)?$")
_OUT = re.compile(r"(^|[ _])o(ut)?(_proj)?$")
_DOWN = re.compile(r"(^|[ _])(down_proj|output_linear|wo)$|^expert w2$")
_GATE_UP = re.compile(r"(gate|up|gate_up)_proj$|input_linear$|wi_[01]$|^expert (w1|v1)$")
_SMALL = re.compile(r"position|token type|conv")
_LEFT_16 = re.compile(r"^(per-layer model projection|index_[qk]_proj|laurel (in|out)|(stream|altup) .*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latents:
    """A kv_b_proj as llama.cpp stores it: keys transposed (rows as long as a head's non-rotary part), values as they are."""

    name: str
    word: str
    keys: TensorFormat
    values: TensorFormat
    heads: Q
    nope: Q

    def tensor_bytes(self, rows: Q, columns: Q | None) -> Q:
        """Bytes of attn_k_b and attn_v_b."""
        if columns is None:
            return self.values.tensor_bytes(rows, columns)
        keys = self.heads * self.nope
        return self.keys.tensor_bytes(self.heads * columns, self.nope) + self.values.tensor_bytes(rows - keys, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufRecipe:
    """A mix for one model: the tensor type of each part in each layer.

    `values` and `downs` are the places of layers among those with an attn_v and an ffn_down tensor, by which llama.cpp counts; `gqa` is
    query heads per KV head in layer 0. `nope` and `heads` are those of latent attention. `native` is the published checkpoint's recipe:
    what it stores as MXFP4 stays so, since llama.cpp does not quantise twice.
    """

    mix: Mix
    layers: int
    experts: int
    gqa: int
    seventy: bool
    falcon: bool
    tied: bool
    nope: Q | None
    heads: Q | None
    native: Recipe | None
    values: dict[int, int]
    downs: dict[int, int]
    known: dict[tuple[str, str, int | None], TensorFormat] = field(default_factory=dict, compare=False, repr=False)

    def stored(self, part: WeightPart) -> tuple[tuple[TensorFormat, int], ...]:
        """The formats that this part has over its layers, each with the number of layers that have it."""
        if not part.layers:
            return ((self.format_of(part, None), 1),)
        counts: Counter[int] = Counter()
        by_id: dict[int, TensorFormat] = {}
        for layer in part.layers:
            form = self.format_of(part, layer)
            by_id[id(form)] = form
            counts[id(form)] += 1
        return tuple((by_id[i], n) for i, n in counts.items())

    def format_of(self, part: WeightPart, layer: int | None) -> TensorFormat:
        """The storage format of this part in this layer."""
        key = (part.name, part.module, layer)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._format(part, layer)
        return found

    def _format(self, part: WeightPart, layer: int | None) -> TensorFormat:
        if part.columns is None or part.buffer or part.dtype in ("int32", "int64", "fp32"):
            return ggml_format("I32" if part.dtype in ("int32", "int64") else "F32")
        if self.native is not None and self.native.format_of(part, layer).word == "mxfp4":
            return ggml_format("MXFP4")
        meant = self._type(part, layer)
        if part.module.endswith("kv_b_proj") and self.nope is not None and self.heads is not None:
            return self._latents(meant, part)
        return ggml_format(fitting(meant, int(part.columns)))

    def _latents(self, meant: str, part: WeightPart) -> TensorFormat:
        assert self.nope is not None and self.heads is not None and part.columns is not None
        keys, values = fitting(meant, int(self.nope)), fitting(meant, int(part.columns))
        name = values if keys == values else f"{keys} keys, {values} values"
        key = (name, "latents", int(self.heads))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Latents(
                name=name, word=values.lower(), keys=ggml_format(keys), values=ggml_format(values), heads=self.heads, nope=self.nope
            )
        return found

    def unfit(self, parts: Iterable[WeightPart]) -> tuple[str, ...]:
        """Parts whose rows are no whole number of blocks of any type the mix means for them: they are taken at F16."""
        found = []
        for p in parts:
            layer = p.layers[0] if p.layers else None
            if (
                p.columns is not None
                and int(p.columns) % 32
                and self.format_of(p, layer).word == "fp16"
                and self._type(p, layer) != "F16"
            ):
                found.append(p.name)
        return tuple(dict.fromkeys(found))

    # -- llama.cpp's rules ------------------------------------------------------------------------------------------------------

    def _type(self, part: WeightPart, layer: int | None) -> str:
        """The type meant for a matrix, before its row length is looked at."""
        name, mix = part.name, self.mix.name
        small = part.role in (Role.ROUTER, Role.NORM, Role.STATE) or _SMALL.search(name) is not None
        if small and not part.linear:
            return "F32"
        if part.role in TOWERS or _LEFT_16.search(name) or mix == "f16":
            return "F16"
        if name == "output head" or (self.tied and name in _TABLES):
            return self._head(part)
        if mix == "mxfp4_moe":
            experts = part.role is Role.ROUTED_EXPERTS or part.module.endswith("kv_b_proj")
            return "MXFP4" if experts else "Q8_0"
        if part.role is Role.EMBEDDING or name in _TABLES:
            return self._embedding()
        fused = part.module.endswith(_FUSED)
        if layer in self.values and (fused or _VALUE.search(name)):
            return self._value(self.values[layer])
        if part.role in (Role.ATTENTION, Role.STATE):
            if _KEY.search(name):
                return self._key_or_query(key=True)
            if _QUERY.search(name):
                return self._key_or_query(key=False)
        if part.role is Role.ATTENTION and _OUT.search(name):
            return self._output()
        if layer in self.downs and _DOWN.search(name):
            return self._down(layer if self.experts > 1 else self.downs[layer])
        if mix == "iq3_xs" and layer is not None and _GATE_UP.search(name):
            return "IQ3_XXS" if self.layers // 8 <= layer < 7 * self.layers // 8 else "IQ3_S"
        return self.mix.base

    def _more_bits(self, place: int, of: int) -> bool:
        """The first and the last eighth, and every third between."""
        return place < of // 8 or place >= 7 * of // 8 or (place - of // 8) % 3 == 2

    def _head(self, part: WeightPart) -> str:
        base = self.mix.base
        assert part.columns is not None
        if self.mix.name == "mxfp4_moe" or self.falcon or fitting(base, int(part.columns)) != base or base == "Q8_0":
            return "Q8_0"
        return "Q5_K" if self.mix.name in _HEAD_Q5 else "Q6_K"

    def _embedding(self) -> str:
        mix = self.mix.name
        if mix in _IQ2 or mix == "iq3_xxs":
            return "IQ3_S"
        return "Q2_K" if mix in _IQ1_2 else self.mix.base

    def _value(self, place: int) -> str:
        """attn_v, and attn_qkv where it is one tensor."""
        mix, base, grouped = self.mix.name, self.mix.base, self.gqa >= 4
        if mix in _IQ1_2:
            narrow = "IQ3_S" if mix in _IQ2 else "Q2_K"
            return "Q4_K" if grouped or self.experts >= 4 else narrow
        if self.experts == 8:
            return "Q8_0"
        chosen = base
        if mix in ("q4_k_m", "q5_k_m") and self._more_bits(place, len(self.values)):
            chosen = "Q6_K"
        elif mix == "q4_k_s" and place < 4:
            chosen = "Q5_K"
        elif mix == "q3_k_m":
            chosen = "Q5_K" if place < 2 else "Q4_K"
        elif mix == "q3_k_l" or (mix in ("iq4_nl", "iq4_xs") and grouped):
            chosen = "Q5_K"
        elif mix == "q2_k":
            chosen = "Q4_K" if grouped else "Q3_K"
        elif mix == "iq3_m" or (mix in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s") and grouped):
            chosen = "Q4_K"
        return "Q5_K" if self.seventy and chosen in ("Q3_K", "Q4_K") else chosen

    def _key_or_query(self, *, key: bool) -> str:
        mix = self.mix.name
        if key and self.experts == 8:
            return "Q4_K" if mix in _IQ1_2 else "Q8_0"
        return {"iq3_xs": "IQ3_XXS", "iq3_xxs": "IQ2_S"}.get(mix, self.mix.base)

    def _output(self) -> str:
        """attn_output."""
        mix, base = self.mix.name, self.mix.base
        if self.falcon:
            return "Q4_K" if mix == "q3_k_l" else base
        if self.experts == 8:
            return "Q5_K" if mix in _EIGHT_OUT_Q5 else base
        if mix in ("iq1_s", "iq1_m"):
            return "IQ2_XXS"
        if mix in _IQ2 or mix == "iq3_xxs":
            return "IQ3_S"
        return {"q2_k": "Q3_K", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K", "iq3_m": "Q4_K"}.get(mix, base)

    def _down(self, place: int) -> str:
        """ffn_down, of experts too."""
        mix, base, of = self.mix.name, self.mix.base, self.layers
        first, more = place < of // 8, self._more_bits(place, of)
        if mix in _IQ1_2:
            narrow = "IQ3_S" if mix in _IQ2 else "Q2_K"
            return narrow if first else base
        match mix:
            case "q2_k":
                return "Q3_K"
            case "q2_k_s":
                return "Q4_K" if first else base
            case "q3_k_m":
                if place < of // 16:
                    return "Q5_K"
                return "Q4_K" if more or not self.falcon else base
            case "q3_k_l":
                return "Q4_K" if self.falcon else "Q5_K"
            case "iq3_m":
                return "Q4_K" if first or (self.experts == 8 and more) else base
            case "q4_k_m" if self.falcon:
                return "Q6_K" if place < of // 16 else "Q5_K" if more else base
            case "q4_k_m" | "q5_k_m":
                return "Q6_K" if more else base
            case "q4_k_s":
                return "Q5_K" if first and not self.falcon else base
            case "iq4_nl" | "iq4_xs":
                return "Q5_K" if first else base
        return base


def gguf_mix(name: str) -> Mix | None:
    """The mix of a name as people write it, as in "Q4_K_M" or "q4_k"; None where it names none."""
    word = name.strip().lower()
    return GGUF_MIXES.get(GGUF_ALIASES.get(word, word))


def gguf_recipe(name: str, model: Model) -> GgufRecipe:
    """The recipe of a mix by name for a model. `KeyError` for a name that is not in `GGUF_MIXES`."""
    return GgufRecipe(
        mix=GGUF_MIXES[name],
        layers=int(model.num_layers),
        experts=max((int(p.copies) for p in model.parts if p.role is Role.ROUTED_EXPERTS and p.copies is not None), default=0),
        gqa=_grouping(model),
        seventy=_is_seventy(model),
        falcon=model.family == "falcon",
        tied=not any(p.name == "output head" for p in model.parts),
        nope=_nope(model),
        heads=_latent_heads(model),
        native=model.published.recipe,
        values=_places(model, lambda p: _VALUE.search(p.name) is not None or p.module.endswith(_FUSED)),
        downs=_places(model, lambda p: _DOWN.search(p.name) is not None),
    )


def _grouping(model: Model) -> int:
    """Query heads per KV head in layer 0, as llama.cpp's metadata have them: a latent counts as one KV head, no attention as none."""
    first = [g.kind for g in model.layers if 0 in g.indices]
    if any(hasattr(kind, "latent_rank") for kind in first):
        return _heads_of(first)
    for kind in first:
        kv = getattr(kind, "kv_heads", None)
        if isinstance(kv, Q) and int(kv):
            return _heads_of(first) // int(kv)
    stated = model.family.startswith(_EVERY_LAYER) and model.attention_heads is not None and model.kv_heads is not None
    return int(model.attention_heads or 0) // int(model.kv_heads or 1) if stated else 0


def _heads_of(kinds: Iterable[object]) -> int:
    return max((int(h) for k in kinds if isinstance(h := getattr(k, "attention_heads", None), Q)), default=0)


def _is_seventy(model: Model) -> bool:
    """What llama.cpp calls the 70B model."""
    if int(model.num_layers) != 80 or model.family not in _SEVENTY:
        return False
    grouped = model.attention_heads is None or model.kv_heads is None or int(model.attention_heads) != int(model.kv_heads)
    return grouped or model.family.startswith("qwen2")


def _latent_heads(model: Model) -> Q | None:
    for group in model.layers:
        heads = getattr(group.kind, "attention_heads", None)
        if hasattr(group.kind, "latent_rank") and isinstance(heads, Q):
            return heads
    return None


def _nope(model: Model) -> Q | None:
    """The part of a head's key that is not rotary, from the rows of the query projection; None without latent attention."""
    heads = _latent_heads(model)
    rope = next((r for g in model.layers if isinstance(r := getattr(g.kind, "rope_dim", None), Q)), None)
    query = next((p for p in model.parts if p.role is Role.LATENT and p.name in ("q_b_proj", "q_proj")), None)
    if heads is None or rope is None or query is None:
        return None
    return (query.rows // heads - rope).as_step("d_n", "width of a head's key that is not rotary")


def _places(model: Model, matches: Callable[[WeightPart], bool]) -> dict[int, int]:
    """The layers that have a matching matrix, each with its place among them."""
    layers = {i for p in model.parts if p.columns is not None and p.role not in TOWERS and matches(p) for i in p.layers}
    return {layer: place for place, layer in enumerate(sorted(layers))}
