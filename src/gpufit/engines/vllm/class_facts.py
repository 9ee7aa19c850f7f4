"""Where vLLM's own classes hold other tensors than the published checkpoint: a few facts, each with the class that shows it.

All of vLLM 0.33.0, model_executor/models, as its planner's weights per rank confirm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpufit.engines.vllm.weight_shards import Spread
from gpufit.layers.kda import Kda
from gpufit.model import Model, Role, Shard, WeightPart
from gpufit.quantity import NUMBER, Q, ceil_div, fact, round_up

_BARE_DECODERS = ("LlamaModel", "MistralModel", "Qwen2Model", "Gemma2Model")
"""Architectures without an output head that vLLM runs with the language model's class, head and all (registry.py)."""

_TRANSFORMERS_BACKEND = (
    "SolarOpenForCausalLM", "YoutuForCausalLM", "Mistral4ForCausalLM", "FlexOlmoForCausalLM", "HunYuanMoEV1ForCausalLM",
)  # fmt: skip
"""Mixtures that vLLM runs through the classes of transformers, where a router's score correction is a buffer (registry.py)."""

_TOWER_BUFFERS = ("model.vision_tower.std_bias", "model.vision_tower.std_scale")
"""Published as tensors of Gemma 4's tower, but buffers of vLLM's class (gemma4_mm.py)."""


def class_parts(model: Model, spread: Spread) -> Iterator[WeightPart]:
    """The parts of a model as vLLM's class creates them on a rank of `spread`."""
    tp = spread.tp
    whole_tower = _unsplit_tower(model, tp)
    whole = _whole_roles(model) if spread.sequence_parallel else ()
    for part in _without_poolers(model):
        if part.module in _TOWER_BUFFERS or (part.buffer and model.architecture in _TRANSFORMERS_BACKEND):
            continue
        if _after_last_used(model, part):
            continue
        if part.role is Role.VISION and part.copies is not None and "tower_blocks" in model.extras:
            part = replace(part, copies=model.extras["tower_blocks"])
        if whole_tower and part.role is Role.VISION:
            part = replace(part, shard=Shard.REPLICATED)
        elif part.module.endswith(".attn.attn_sink"):
            part = _padded_sinks(part, tp)
        elif part.role is Role.ROUTER and model.family == "nemotron_h" and part.columns is not None and not _router_kernels(spread):
            part = replace(part, dtype="fp32")
        elif part.role in whole or _unsplit_gates(model, part):
            part = replace(part, shard=Shard.REPLICATED)
        elif part.role is Role.SHARED_EXPERTS and model.family == "deepseek_v4" and model.published.method == "fp8":
            part = _whole_block_shares(part, tp)
        yield part
    yield from _shared_values(model)
    yield from _head_of_bare(model)
    yield from _key_biases(model)
    yield from _second_embedding(model)
    yield from _aligned_mixers(model, tp)


def has_output_head(model: Model) -> bool:
    """Whether the embedding serves as the output head of a language model (embedding and scoring models have none)."""
    bare = model.architecture.endswith("Model") and model.architecture not in _BARE_DECODERS
    return model.tied and not bare and not scores(model)


def scores(model: Model) -> bool:
    """Whether the model classifies or scores: its heads are created in the head dtype of pooling models, fp32."""
    return any(word in model.architecture for word in ("Classification", "Reward", "QuestionAnswering"))


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
            name="output head",
            role=Role.HEAD,
            module="lm_head",
            rows=rows,
            columns=model.hidden_size,
            shard=Shard.VOCAB,
            linear=True,
        )


def _key_biases(model: Model) -> Iterator[WeightPart]:
    """Biases of Whisper's key projections, which the fused module has and the file has not (whisper.py)."""
    if model.family != "whisper":
        return
    for part in model.parts:
        if part.module.endswith(".k_proj"):
            yield replace(part, name=f"{part.name} bias", module=f"{part.module}.bias", columns=None, linear=False)


def _unsplit_tower(model: Model, tp: Q) -> bool:
    """Whether the tower is whole on every rank because its heads do not divide (vision.py is_vit_use_data_parallel)."""
    heads = model.extras.get("tower_heads")
    return heads is not None and int(heads) % int(tp) != 0


_SINK_ROWS = fact(
    64, NUMBER, symbol="p_s", name="heads to which sinks are padded", origin="vLLM 0.33.0, deepseek_v4: FlashMLA takes 64 or 128"
)


def _padded_sinks(part: WeightPart, tp: Q) -> WeightPart:
    """Attention sinks of DeepSeek-V4: one a head, padded to what the decode kernel takes (models/deepseek_v4/nvidia/flashmla.py)."""
    return replace(part, rows=round_up(ceil_div(part.rows, tp), _SINK_ROWS), shard=Shard.REPLICATED)


def _aligned_mixers(model: Model, tp: Q) -> Iterator[WeightPart]:
    """Rows that fill the fused input projection of Kimi-K3's linear attention to a multiple of 16 (models/kimi_k3/nvidia/kda.py)."""
    if not model.family.startswith("kimi_k3"):
        return
    for group in model.layers:
        kind = group.kind
        if not isinstance(kind, Kda):
            continue
        rows = (4 * kind.heads * kind.head_dim + kind.heads) // tp + kind.head_dim
        padding = round_up(rows, 16) - rows
        if int(padding):
            yield WeightPart(
                name="padding of the fused projection", role=Role.STATE, module="in_proj_qkvgfab", rows=padding, columns=model.hidden_size,
                layers=group.indices,
            )  # fmt: skip


_POOLED_BY_VLLM = (
    "BertModel", "RobertaModel", "XLMRobertaModel", "RobertaForMaskedLM", "XLMRobertaForMaskedLM", "NomicBertModel", "MPNetModel",
)  # fmt: skip
"""Encoders that vLLM serves as embedding models: neither the file's pooler nor its head over the vocabulary is made (bert.py)."""


def _without_poolers(model: Model) -> Iterator[WeightPart]:
    """The parts of an encoder without what its embedding class leaves out; the head of masked BERT is a matrix of its own."""
    for part in model.parts:
        left_out = part.name.startswith("pooler") or part.role is Role.HEAD
        if not (model.architecture in _POOLED_BY_VLLM and left_out):
            yield part
    if model.architecture == "BertForMaskedLM" and model.vocab_size is not None:
        yield WeightPart(
            name="output head", role=Role.HEAD, module="mlm_head.decoder", rows=model.vocab_size, columns=model.hidden_size
        )


def _after_last_used(model: Model, part: WeightPart) -> bool:
    """The norm behind a tower's blocks: not made where not all blocks are used, and never for LLaVA (llava.py require_post_norm)."""
    unused = "tower_blocks" in model.extras or model.family.startswith("llava")
    return unused and part.role is Role.VISION and part.name.startswith("vision last norm")


def _second_embedding(model: Model) -> Iterator[WeightPart]:
    """Phi-3 Vision's class makes the token embedding beside that of its text model (phi3v.py)."""
    if model.family != "phi3_v":
        return
    for part in model.parts:
        if part.role is Role.EMBEDDING and part.shard is Shard.VOCAB:
            yield replace(part, name=f"{part.name}, made twice")


_WHOLE_SHARED = frozenset([
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "kimi_k2", "kimi_k25", "kimi_vl", "kimi_k3",
    "kimi_linear", "mistral4", "axk1", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text", "llama4", "llama4_text", "nemotron_h",
    "pangu_ultra_moe",
])  # fmt: skip
"""Families whose shared experts stand whole on every rank of a sequence-parallel mixture; the others split them all the same."""

_WHOLE_DENSE = frozenset(["deepseek_v32", "glm_moe_dsa", "kimi_k3"])
"""Families whose dense MLPs do so as well."""


def _whole_roles(model: Model) -> tuple[Role, ...]:
    shared = (Role.SHARED_EXPERTS,) if model.family in _WHOLE_SHARED else ()
    return (*shared, Role.MLP) if model.family in _WHOLE_DENSE else shared


_BLOCK = fact(
    128,
    NUMBER,
    symbol="g_n",
    name="edge of a scale block",
    origin="vLLM 0.33.0, models/deepseek_v4: shared experts in whole blocks",
)


def _whole_block_shares(part: WeightPart, tp: Q) -> WeightPart:
    """Shared experts of DeepSeek-V4: each rank takes whole scale blocks, the last ones padded (models/deepseek_v4/nvidia/model.py)."""

    def padded(size: Q) -> Q:
        return size if int(size) % (128 * int(tp)) == 0 else ceil_div(size // _BLOCK, tp) * _BLOCK * tp

    if part.shard is Shard.COLUMN:
        return replace(part, rows=padded(part.rows))
    if part.shard is Shard.ROW and part.columns is not None:
        return replace(part, columns=padded(part.columns))
    return part


def _router_kernels(spread: Spread) -> bool:
    """Whether the device has router kernels that compute in fp32 from 16-bit weights (router/gate_linear.py force_fp32_compute)."""
    return spread.capability == 90 or spread.capability // 10 == 10


def _unsplit_gates(model: Model, part: WeightPart) -> bool:
    """The decay and step projections of Qwen3.5's linear attention, too narrow for the kernels of AWQ and GPTQ checkpoints when split.

    Source: layers/mamba/gdn/qwen_gdn_linear_attn.py maybe_disable_tp.
    """
    narrow = part.module.endswith((".in_proj_b", ".in_proj_a"))
    return (
        narrow
        and model.family.startswith("qwen3_5")
        and model.published.method in ("awq", "gptq", "auto-round", "auto_round", "inc")
    )
