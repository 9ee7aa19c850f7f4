"""Where vLLM's own classes hold other tensors than the published checkpoint: a few facts, each with the class that shows it.

All of vLLM 0.33.0, model_executor/models, as its planner's weights per rank confirm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpufit.layers.mamba1 import Mamba1
from gpufit.layers.mamba2 import Mamba2
from gpufit.model import Model, Role, Shard, WeightPart
from gpufit.quantity import NUMBER, Q, fact

_BARE_DECODERS = ("LlamaModel", "MistralModel", "Qwen2Model", "Gemma2Model")
"""Architectures without an output head that vLLM runs with the language model's class, head and all (registry.py)."""

_TRANSFORMERS_BACKEND = (
    "SolarOpenForCausalLM", "YoutuForCausalLM", "Mistral4ForCausalLM", "FlexOlmoForCausalLM", "HunYuanMoEV1ForCausalLM",
)  # fmt: skip
"""Mixtures that vLLM runs through the classes of transformers, where a router's score correction is a buffer (registry.py)."""

_TOWER_BUFFERS = ("model.vision_tower.std_bias", "model.vision_tower.std_scale")
"""Published as tensors of Gemma 4's tower, but buffers of vLLM's class (gemma4_mm.py)."""

_FUSED_IN_FILE = {
    "qkv_proj": 3, "query_key_value": 3, "W_pack": 3, "Wqkv": 3, "wqkv": 3, "c_attn": 3, "qkv": 3, "gate_up_proj": 2, "in_proj_qkv": 3,
}  # fmt: skip
"""Modules that files hold fused already, and the parts that vLLM counts in them (QKVParallelLinear, MergedColumnParallelLinear)."""


def partitions(model: Model, parts: Sequence[WeightPart], tp: Q) -> Q:
    """How many parts vLLM counts in the module that it makes of these: each brings scalar scales of its own."""
    count = sum(_counted(model, p, tp) for p in parts)
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


def class_parts(model: Model) -> Iterator[WeightPart]:
    """The parts of a model as vLLM's class creates them."""
    for part in model.parts:
        if part.module in _TOWER_BUFFERS or (part.buffer and model.architecture in _TRANSFORMERS_BACKEND):
            continue
        yield part
    yield from _shared_values(model)
    yield from _head_of_bare(model)


def plain_here(part: WeightPart) -> bool:
    """Whether vLLM keeps a part at 16 bit whatever its file has: the indexer's key projection, fused with its head weights.

    Source: models/deepseek_v32, where the two are one module without quantisation.
    """
    return part.role is Role.INDEXER and part.module.endswith(".wk")


def has_output_head(model: Model) -> bool:
    """Whether the embedding serves as the output head of a language model (embedding and scoring models have none)."""
    bare = model.architecture.endswith("Model") and model.architecture not in _BARE_DECODERS
    scoring = any(p.role is Role.HEAD and p.shard is not Shard.VOCAB for p in model.parts)
    return model.tied and not bare and not scoring


def _shared_values(model: Model) -> Iterator[WeightPart]:
    """Value projections where the published layer takes its keys for values: the fused module of Gemma 4's class has room for both."""
    if not model.family.startswith("gemma4"):
        return
    valued = _layers_with(model.parts, ".v_proj")
    for part in model.parts:
        if part.module.endswith(".self_attn.k_proj") and (lacking := tuple(i for i in part.layers if i not in valued)):
            yield replace(part, name="v_proj", module=part.module.replace("k_proj", "v_proj"), layers=lacking)


def _layers_with(parts: Iterable[WeightPart], ending: str) -> frozenset[int]:
    return frozenset(i for p in parts if p.module.endswith(ending) for i in p.layers)


def _head_of_bare(model: Model) -> Iterator[WeightPart]:
    """The output head that a bare decoder's file lacks and vLLM's class has."""
    rows = model.extras.get("head_rows")
    if rows is not None and model.architecture in _BARE_DECODERS:
        yield WeightPart(
            name="output head", role=Role.HEAD, module="lm_head", rows=rows, columns=model.hidden_size, shard=Shard.VOCAB, linear=True
        )
