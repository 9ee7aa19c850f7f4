"""How vLLM's own classes store a part otherwise than its file does, and what they fuse: a few facts, each with its source.

All of vLLM 0.33.0, as its planner's weights per rank confirm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from gpufit.engines.vllm.linear_weights import sixteen_bit
from gpufit.formats.microscaling import Microscaled
from gpufit.formats.recipe import ByModule
from gpufit.formats.tensor import Plain, TensorFormat
from gpufit.layers.mamba1 import Mamba1
from gpufit.layers.mamba2 import Mamba2
from gpufit.model import TOWERS, Model, Role, WeightPart
from gpufit.quantity import BYTE, NUMBER, Q, fact

_FUSED_IN_FILE = {
    "qkv_proj": 3, "query_key_value": 3, "W_pack": 3, "Wqkv": 3, "wqkv": 3, "c_attn": 3, "qkv": 3, "gate_up_proj": 2, "in_proj_qkv": 3,
}  # fmt: skip
"""Modules that files hold fused already, and the parts that vLLM counts in them (QKVParallelLinear, MergedColumnParallelLinear)."""


def partitions(model: Model, parts: Sequence[WeightPart], tp: Q) -> Q:
    """How many parts vLLM counts in the module that it makes of these: each brings scalar scales of its own."""
    apart = len({p.module for p in parts}) < len(parts)  # what the file holds fused, the reader may have told apart already
    count = len(parts) if apart else sum(_counted(model, p, tp) for p in parts)
    return fact(count, NUMBER, symbol="m", name="parts fused in one module", origin="vLLM 0.33.0: output sizes of the fused module")


def _counted(model: Model, part: WeightPart, tp: Q) -> int:
    last = part.module.rpartition(".")[2]
    if last == "in_proj" and part.role is Role.STATE:
        for kind in (g.kind for g in model.layers):
            if isinstance(kind, Mamba2):  # z, x, B, C and the step sizes; one part where groups are copied (mamba_mixer2.py)
                return 5 if int(kind.groups) % int(tp) == 0 else 1
            if isinstance(kind, Mamba1):
                return 2
    return _FUSED_IN_FILE.get(last, 1)


def format_here(model: Model, part: WeightPart, published: TensorFormat) -> TensorFormat:
    """The format in which vLLM creates a part whose file has `published`.

    The indexer's key projection is one module with its head weights, and that is not quantised (models/deepseek_v32). FP8 lists are
    taken name by name, so that a whole tower named in one keeps nothing at 16 bit (quantization/fp8.py, "exact"; Mistral 3 names its
    tower so). Weight-only NVFP4 of modelopt makes room for an input scale all the same, at 16 bit (modelopt.py _DropInputScale).
    """
    if part.role is Role.INDEXER and part.module.endswith(".wk"):
        return sixteen_bit(model.dtype)
    if part.role is Role.STATE and any(isinstance(g.kind, Mamba1) for g in model.layers):
        return sixteen_bit(model.dtype)  # the class of Mamba 1 mixers takes no quantisation (layers/mamba/mamba_mixer.py)
    if isinstance(published, Plain) and _listed_by_tree(model, part):
        recipe = model.published.recipe
        return recipe.default if isinstance(recipe, ByModule) and recipe.default is not None else published
    if isinstance(published, Microscaled) and model.published.method.startswith("modelopt"):
        return _weight_only(published)
    return published


def _listed_by_tree(model: Model, part: WeightPart) -> bool:
    return (
        model.published.method == "fp8"
        and model.family == "mistral3"
        and part.role in TOWERS
        and not part.module.endswith("merging_layer")
    )


@cache
def _weight_only(form: Microscaled) -> Microscaled:
    if form.extra is None or int(form.extra) != 4:
        return form
    scale = fact(
        4 + 2, BYTE, symbol="z_t", name="global scale and unused input scale", origin="vLLM 0.33.0, modelopt.py W4A16_NVFP4"
    )
    return replace(form, extra=scale)
