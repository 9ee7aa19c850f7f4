"""`quant_method: compressed-tensors`: groups of modules, each with its own format; ignore lists with `re:` expressions.

Tensors as compressed-tensors 0.14 writes them: scales in the model's dtype unless `scale_dtype` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.integer_groups import IntegerGroups
from gpufit.formats.microscaling import MXFP4, MXFP8, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.quantity import BIT, BYTE, NUMBER, fact
from gpufit.sources.config import is_off
from gpufit.sources.quant.base import Declared, Found, float8_cache

METHODS = ("compressed-tensors", "compressed_tensors", "sparseml")

_SCALES = "compressed-tensors: scales in the model's dtype unless scale_dtype says otherwise"

_PACKED = "pack-quantized"
_PLAIN_FORMATS = ("int-quantized", "float-quantized", "naive-quantized", _PACKED, "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                  "mxfp8-quantized", "mixed-precision", "dense", None)  # fmt: skip
_WEIGHT_KEYS = {"actorder", "block_structure", "dynamic", "group_size", "num_bits", "observer", "observer_kwargs", "strategy", "symmetric",
                "type", "scale_dtype", "zp_dtype"}  # fmt: skip
_CLASSES = {
    "Linear": Scope(head=True),
    "Embedding": Scope(embeddings=True),
    "RoutedExperts": Scope(experts_only=True),
    "FusedMoE": Scope(experts_only=True),
}
_ANY = Scope(head=True, embeddings=True, every_matrix=True)


def read(d: Declared) -> Found:
    """Modules that a group targets and no list ignores. A module's own name comes before its class."""
    k = d.keys
    overall = k.text("format")
    k.ignore("total_num_heads", "total_num_kv_heads", "version")
    sparsity, transform = k.raw("sparsity_config"), k.raw("transform_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format") not in (None, "dense"):
        raise d.refuse("sparsity_config.format", sparsity["format"], "weights stored sparse are not known")
    if isinstance(transform, Mapping) and not is_off(transform.get("config_groups")):
        raise d.refuse("transform_config", transform, "online transforms are not known")
    cache, where = float8_cache(k.raw("kv_cache_scheme"), d.origin("kv_cache_scheme"))
    groups = k.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise d.refuse("config_groups", groups, "expected the groups of modules")
    named: list[Rule] = []
    classes: list[Rule] = []
    layouts: list[TensorFormat] = []
    for name, group in groups.items():
        at = f"config_groups.{name}"
        if not isinstance(group, Mapping):
            raise d.refuse(at, group, "expected an object")
        targets = [str(t) for t in group.get("targets") or []]
        if group.get("weights") is None or (len(targets) == 1 and targets[0].endswith("Attention")):
            continue  # a group for activations or the cache alone
        chosen = _layout(d, at, group, group.get("format") or overall)
        layouts.append(chosen)
        for target in targets:
            if target in _CLASSES:
                classes.append(Rule(names=Names(["re:.*"]), format=chosen, scope=_CLASSES[target]))
            elif target.startswith("re:") or "." in target or target.islower():
                named.append(Rule(names=Names([target]), format=chosen, scope=Scope(head=True, embeddings="embed" in target)))
            else:
                raise d.refuse(f"{at}.targets", target, f"known classes are {', '.join(_CLASSES)}")
    if not layouts:
        raise d.refuse("config_groups", groups, "no group has weights")
    ignored = d.names("ignore")
    first = (Rule(names=ignored, format=None),) if ignored else ()
    recipe = ByModule(plain=d.plain, scope=_ANY, rules=(*first, *named, *classes))
    return Found(recipe=recipe, word=layouts[0].word, detail=layouts[0].name, cache=cache, cache_origin=where)


def _layout(d: Declared, at: str, group: Mapping[str, Any], form: str | None) -> TensorFormat:
    """The format of one group's weights."""
    weights = group["weights"]
    if not isinstance(weights, Mapping) or set(weights) - _WEIGHT_KEYS:
        odd = sorted(set(weights) - _WEIGHT_KEYS) if isinstance(weights, Mapping) else weights
        raise d.refuse(f"{at}.weights", odd, "keys that are not known")
    if form not in _PLAIN_FORMATS:
        raise d.refuse(f"{at}.format", form, "a storage format that is not known")
    kind, bits, strategy = weights.get("type", "int"), weights.get("num_bits"), weights.get("strategy")
    size = weights.get("group_size")
    inputs = group.get("input_activations")
    static = isinstance(inputs, Mapping) and inputs.get("dynamic") is False
    if strategy is None:
        strategy = "group" if size else "tensor"
    if form == "dense":
        return d.plain
    if kind == "float" and bits == 4:
        if size == 16 and strategy == "tensor_group":
            return nvfp4(scalars=8 if inputs else 4)
        if size == 32 and strategy == "group":
            return MXFP4
    elif kind == "float" and bits == 8 and size == 32 and strategy == "group" and _one_byte(weights.get("scale_dtype")):
        return MXFP8
    elif kind == "float" and bits == 8:
        return _eight(d, at, weights, strategy, "fp8", 2 if static else 0)
    elif kind == "int" and form == _PACKED and isinstance(bits, int) and 2 <= bits <= 8:
        return _packed(d, at, weights, strategy, size)
    elif kind == "int" and bits == 8:
        return _eight(d, at, weights, strategy, "int8", 2 if static else 0)
    elif kind == "int" and isinstance(bits, int) and 2 <= bits < 8 and strategy in ("group", "channel"):
        # int-quantized keeps one byte for every weight, however few bits it uses.
        return _grouped_bytes(d, at, weights, strategy, size)
    raise d.refuse(f"{at}.weights", dict(weights), f"{bits}-bit {kind} weights by {strategy} in format {form} are not known")


def _one_byte(dtype: Any) -> bool:
    return str(dtype).removeprefix("torch.") in ("uint8", "float8_e8m0fnu")


def _scale(d: Declared, weights: Mapping[str, Any]) -> int:
    """Bytes of one scale."""
    named = weights.get("scale_dtype")
    if named is None:
        return d.plain_bytes()
    sizes = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "uint8": 1}
    word = str(named).removeprefix("torch.")
    if word not in sizes:
        raise d.refuse("config_groups.weights.scale_dtype", named, "a scale dtype that is not known")
    return sizes[word]


def _eight(d: Declared, at: str, weights: Mapping[str, Any], strategy: str, word: str, scalars: int) -> TensorFormat:
    z = scale_of(_scale(d, weights), _SCALES)
    extra = d.scalars(1, scalars, f"{at}.input_activations: static, one input scale") if scalars else None
    if strategy == "tensor":
        return TensorScaled(name=f"{word} per tensor", word=word, scale=z, extra=extra)
    if strategy == "channel":
        return ChannelScaled(name=f"{word} per channel", word=word, scale=z, extra=extra)
    if strategy == "block":
        where = f"{at}.weights.block_structure"
        return in_blocks(word, *d.pair(where, weights.get("block_structure")), scale=z, origin=d.origin(where), extra=extra)
    if strategy == "group":
        return _grouped_bytes(d, at, weights, strategy, weights.get("group_size"), word)
    raise d.refuse(f"{at}.weights.strategy", strategy, "known are tensor, channel, group and block")


def _grouped_bytes(d: Declared, at: str, weights: Mapping[str, Any], strategy: str, size: Any, word: str = "") -> TensorFormat:
    """One byte a weight with a scale for each group: a block of one row."""
    bits = weights.get("num_bits")
    word = word or f"int{bits}"
    if strategy == "channel" or not size:
        return _eight(d, at, weights, "channel", word, 0)
    return in_blocks(word, 1, int(size), scale=scale_of(_scale(d, weights), _SCALES), origin=d.origin(f"{at}.weights.group_size"))


def _packed(d: Declared, at: str, weights: Mapping[str, Any], strategy: str, size: Any) -> TensorFormat:
    """pack-quantized: 32-bit words along the input features, 16 bytes for the shape of the matrix."""
    bits = int(weights["num_bits"])
    if strategy not in ("group", "channel"):
        raise d.refuse(f"{at}.weights.strategy", strategy, "packed integers are known by group and by channel")
    group = d.group(f"{at}.weights.group_size", int(size)) if strategy == "group" else None
    order = weights.get("actorder")
    index = order in ("group", "dynamic") or order is True
    return IntegerGroups(
        name=f"int{bits} {f'groups of {size}' if group is not None else 'per channel'} (packed)",
        word=f"int{bits}",
        bits=fact(bits, BIT, symbol="e", name="bits of one weight", origin=d.origin(f"{at}.weights.num_bits")),
        scale=scale_of(_scale(d, weights), _SCALES),
        group=group,
        per_word=fact(32 // bits, NUMBER, symbol="n_w", name="weights in one 32-bit word", origin="whole weights in a word"),
        packed_zero=weights.get("symmetric", True) is False,
        index=fact(4, BYTE, symbol="i", name="bytes of one group number", origin="weight_g_idx, int32") if index else None,
        extra=fact(16, BYTE, symbol="z_t", name="the shape beside one matrix", origin="weight_shape, two int64"),
    )
