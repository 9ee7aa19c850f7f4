"""Which weight parts a pipeline stage holds, and in how many layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufit.engines.vllm.class_facts import class_parts, has_output_head
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.model import TOWERS, Model, Role, WeightPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: the decoder layers it runs, and whether it is the first (embedding, towers) or the last (norm, head).

    `towers` False leaves towers and projectors out (--language-model-only).
    """

    layers: range
    first: bool = True
    last: bool = True
    towers: bool = True

    @property
    def whole(self) -> bool:
        """Whether there is no other stage."""
        return self.first and self.last


def held(model: Model, stage: Stage, spread: Spread) -> Iterator[tuple[WeightPart, tuple[int, ...]]]:
    """The parts on a stage with the layers in which they stand there; no layers for a part that stands once.

    Towers are loaded on the first stage. An embedding that is also the output head has a copy on a last stage of its own.
    Source: vLLM 0.33.0, the classes' own get_pp_group() conditions, as its planner's weights per stage show them.
    """
    for part in class_parts(model, spread):
        if part.role in TOWERS:
            if stage.first and stage.towers:
                yield part, part.layers
        elif part.layers:
            here = part.layers if stage.whole else tuple(i for i in part.layers if i in stage.layers)
            if here:
                yield part, here
        elif _stands_here(model, part, stage):
            yield part, ()


_ALL_EVERYWHERE = frozenset([
    "qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe", "jamba", "olmo_hybrid", "gpt_oss", "nemotron_h", "mixtral",
    "mamba", "mamba2", "falcon_mamba", "dbrx", "falcon", "bloom", "gpt2", "gptj", "orion", "stablelm", "minicpm", "minicpm3",
    "phimoe", "granitemoe", "granitemoehybrid", "granitemoeshared", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n",
    "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified", "paligemma", "molmo", "zamba2", "olmoe", "opt", "internlm2",
    "cohere", "cohere2", "chatglm",
])  # fmt: skip
"""Families whose class makes embedding, last norm and output head on every stage, whatever stage uses them."""

_EMBEDDING_EVERYWHERE = frozenset([
    "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "lfm2", "lfm2_moe", "lfm2_vl",
])  # fmt: skip
"""Families that make the embedding on every stage, the last norm on the last."""

_HEAD_EVERYWHERE = frozenset(["qwen3_next"])


def _stands_here(model: Model, part: WeightPart, stage: Stage) -> bool:
    """Whether a part outside the layers is made on a stage: embeddings come first, norms and heads last, unless the class differs."""
    if stage.whole or model.family in _ALL_EVERYWHERE or "hc_head" in part.module:
        return True
    if part.role is Role.EMBEDDING:
        shared = stage.last and has_output_head(model) and _is_table(part, model)
        return stage.first or shared or model.family in _EMBEDDING_EVERYWHERE
    return stage.last or (part.role is Role.HEAD and model.family in _HEAD_EVERYWHERE)


def _is_table(part: WeightPart, model: Model) -> bool:
    """Whether this is the token embedding itself, which the output head shares."""
    return model.vocab_size is not None and int(part.rows) == int(model.vocab_size) and part.columns is not None
