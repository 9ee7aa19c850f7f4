"""`quant_method: fp8`: FP8 weights scaled per block or per tensor, as DeepSeek publishes them; and Meta's `fbgemm_fp8`."""

from __future__ import annotations

from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.microscaling import MXFP4
from gpufit.formats.names import Names
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.sources.quant import modelopt
from gpufit.sources.quant.base import Declared, Found, Kept, float8_cache

METHODS = ("fp8", "fbgemm_fp8")

_E4M3 = ("e4m3", "float8_e4m3fn", "e5m2", "float8_e5m2", None)
_EXPERTS = Scope(experts_only=True)
_ALWAYS_KEPT = Names(["eh_proj"])
"""The projection that joins the draft layer of DeepSeek-V3 and its kin to the last hidden state: BF16 in the published files."""


def _layout(d: Declared) -> TensorFormat:
    """The format of a quantised matrix."""
    fmt = d.keys.text("fmt")
    if fmt not in _E4M3:
        raise d.refuse("fmt", fmt, "expected an 8-bit float")
    static = d.keys.text("activation_scheme") == "static"
    extra = d.scalars(int(static), 4, f"{d.origin('activation_scheme')}: static, one FP32 input scale")
    block = d.keys.items("weight_block_size")
    if block is None:
        return TensorScaled(name="fp8 per tensor", word="fp8", scale=scale_of(4, "one FP32 scale a matrix"), extra=extra)
    # DeepSeek-V4 stores its block scales as E8M0; V3.1 and V3.2 round theirs to powers of two but store FP32.
    power = (d.text.text("model_type") or "").startswith(("deepseek_v4", "deepseek_ref"))
    scale = scale_of(1, "E8M0 scales of DeepSeek-V4's files") if power else scale_of(4, "weight_scale_inv is FP32")
    return in_blocks("fp8", *d.pair("weight_block_size", block), scale=scale, origin=d.origin("weight_block_size"), extra=extra)


def read(d: Declared) -> Found:
    """Linear layers but those listed. The output head is never quantised (vLLM 0.33, quantization/fp8.py: linear layers only).

    `expert_dtype: fp4` beside it (DeepSeek-V4): routed experts are MXFP4. A modelopt map inside it (NVIDIA's re-quantised experts of
    DeepSeek-V4) comes first; its `ignore` list then speaks of that map alone.
    """
    k = d.keys
    if k.text("quant_method") == "fbgemm_fp8":
        channel = ChannelScaled(name="fp8 per channel", word="fp8", scale=scale_of(4, "weight_scale is FP32 (fbgemm)"))
        kept = Kept(names=d.names("modules_to_not_convert"))
        recipe = ByModule(plain=d.plain, scope=Scope(towers=bool(kept.names)), rules=kept.rules(), default=channel)
        return Found(recipe=recipe, word="fp8", detail="FP8 per output channel (fbgemm)")
    layout = _layout(d)
    k.ignore("scale_fmt", "weight_per_tensor", "act_per_tensor", "dequantize")
    rules: list[Rule] = []
    cache: tuple[str | None, str] = (None, "")
    if k.has("quantized_layers"):
        rules += modelopt.mapped(d)
        cache = modelopt.cache_of(d)
        k.ignore("config_groups", "ignore", "quant_algo", "moe_quant_algo", "group_size", "exclude_modules")
    scheme = k.raw("kv_cache_scheme")
    if (
        scheme not in ("static", "dynamic") and not cache[0]
    ):  # these two say that scales stand in the file, not in what dtype the cache is
        cache = float8_cache(scheme, d.origin("kv_cache_scheme"))
    kept_names = d.names("ignored_layers", "modules_to_not_convert")
    rules += Kept(names=kept_names).rules()
    rules.append(Rule(names=_ALWAYS_KEPT, format=None))
    expert_dtype = d.text.text("expert_dtype") or k.text("store_dtype")
    if expert_dtype in ("fp4", "mxfp4"):
        rules.append(Rule(names=Names(["experts"]), format=MXFP4, scope=_EXPERTS))
    elif expert_dtype not in (None, "fp8"):
        raise d.refuse("expert_dtype", expert_dtype, "expected fp4 or fp8")
    # Without a list nothing says that the towers of a multimodal file were converted, and no published one has them so.
    recipe = ByModule(plain=d.plain, scope=Scope(towers=bool(kept_names)), rules=tuple(rules), default=layout)
    return Found(recipe=recipe, word="fp8", detail=layout.name, cache=cache[0], cache_origin=cache[1])
