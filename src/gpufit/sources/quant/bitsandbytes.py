"""`quant_method: bitsandbytes`: NF4 or FP4 with or without double quantisation, or LLM.int8()."""

from __future__ import annotations

from gpufit.formats.bitsandbytes import FourBit, RowInt8
from gpufit.formats.recipe import ByModule, Scope
from gpufit.formats.tensor import TensorFormat
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit")


def read(d: Declared) -> Found:
    """Linear layers but those skipped; without a list the output head is skipped (transformers 5.24, integrations)."""
    k = d.keys
    four = k.flag("load_in_4bit", "_load_in_4bit") or k.text("quant_method") == "bitsandbytes_4bit"
    eight = k.flag("load_in_8bit", "_load_in_8bit") or k.text("quant_method") == "bitsandbytes_8bit"
    k.ignore("_load_in_4bit", "_load_in_8bit", "bnb_4bit_compute_dtype", "llm_int8_threshold", "llm_int8_has_fp16_weight",
             "llm_int8_enable_fp32_cpu_offload")  # fmt: skip
    storage = k.text("bnb_4bit_quant_storage")
    if storage not in (None, "uint8", "bfloat16", "float16", "float32"):
        raise d.refuse("bnb_4bit_quant_storage", storage, "a storage dtype that is not known")
    double = k.flag("bnb_4bit_use_double_quant")
    kind = (k.text("bnb_4bit_quant_type") or "fp4").lower()
    chosen: TensorFormat
    if four:
        if kind not in ("nf4", "fp4"):
            raise d.refuse("bnb_4bit_quant_type", kind, "known are nf4 and fp4")
        chosen = FourBit(
            name=f"{kind} blocks of 64{', double quantised' if double else ''} (bitsandbytes)", word=kind, double=double
        )
    elif eight:
        chosen = RowInt8(name="int8 per row (bitsandbytes)", word="int8")
    else:
        raise d.refuse("load_in_4bit", False, "neither load_in_4bit nor load_in_8bit is set")
    kept = Kept(names=d.names("llm_int8_skip_modules"))
    recipe = ByModule(plain=d.plain, scope=Scope(head=bool(kept.names)), rules=kept.rules(), default=chosen)
    return Found(recipe=recipe, word=chosen.word, detail=chosen.name)
