"""What vLLM takes by default where the user says nothing: batches, cache dtype, prefix caching, the hybrid manager."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.traits import Device, Traits
from gpufit.hardware import Gpu
from gpufit.layers.chunked import Chunked
from gpufit.model import Model
from gpufit.quantity import SEQUENCE, Q, fact, largest, least, unit

PER_SEQUENCE = unit(sequence=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch: its `tokens`, its `sequences`, and the tokens `in_flight` of one sequence over all concurrent batches."""

    tokens: Q
    sequences: Q
    in_flight: Q


def batch_defaults(gpu: Gpu, settings: VllmSettings, constants: Constants) -> tuple[Q, Q]:
    """Default tokens and sequences in one batch, by the device (engine/arg_utils.py get_batch_defaults).

    The device's total here is the driver's (nvidia-smi), not the allocator's.
    """
    a100 = "a100" in gpu.id.lower() or "a100" in gpu.name.lower()
    small_blackwell = gpu.compute_capability == "12.1"
    kind = "llm" if settings.usage == "llm" else "server"
    if gpu.memory >= constants.number("largest_memory") and not small_blackwell:
        size, sequences = "largest", "sequences_large"
    elif gpu.memory >= constants.number("large_memory") and not a100 and not small_blackwell:
        size, sequences = "large", "sequences_large"
    else:
        size, sequences = "small", "sequences_small"
    return constants.number(f"tokens_{size}_{kind}"), constants.number(sequences)


def batch(model: Model, gpu: Gpu, settings: VllmSettings, constants: Constants, traits: Traits, context: Q) -> Batch:
    """The batch that the server would run (engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args)."""
    default_tokens, default_sequences = batch_defaults(gpu, settings, constants)
    sequences = settings.max_num_seqs or default_sequences
    tokens = settings.max_num_batched_tokens
    if tokens is None:
        tokens = default_tokens
        if settings.chunked_prefill is False or any(g.kind.kind == "cross" for g in model.layers):
            tokens = largest(context * _ONE_SEQUENCE, tokens).because(
                "without chunked prefill a batch holds the longest sequence whole"
            )
        if traits.prefix_lm and constants.listed("prefix_lm_flagged", traits.family):
            tokens = largest(tokens, constants.number("gemma4_item_tokens"))
        tokens = least(sequences * context, tokens).as_step("T_b", "tokens in one batch")
    if settings.max_num_seqs is None and int(tokens) < int(sequences):
        sequences = least(sequences, tokens * _SEQUENCE_PER_TOKEN).because("never more sequences than tokens in a batch")
    in_flight = (batches_in_flight(settings, constants, traits) * tokens).as_step(
        "T_f", "tokens in flight, whose old blocks are not yet free"
    )
    return Batch(tokens=tokens, sequences=sequences, in_flight=in_flight)


_ONE_SEQUENCE = fact(1, SEQUENCE, symbol="one", name="sequence", origin="a batch must hold one")
_SEQUENCE_PER_TOKEN = fact(
    1, unit(sequence=1, token=-1), symbol="each", name="sequence per token of a batch", origin="engine/arg_utils.py"
)


def batches_in_flight(settings: VllmSettings, constants: Constants, traits: Traits) -> Q:
    """Batches that are scheduled at once (config/vllm.py max_concurrent_batches)."""
    stages = int(settings.pp)
    asynchronous = settings.async_scheduling
    if asynchronous is None:
        asynchronous = constants.flag("async_default") and not traits.pooling
    if not constants.flag("batches_counted"):
        count, why = 1, "one batch is counted before 0.26"
    elif asynchronous and (stages == 1 or constants.flag("pipeline_async")):
        count, why = stages + 1, "asynchronous scheduling: one batch more than pipeline stages"
    else:
        count, why = stages, "one batch for each pipeline stage"
    return fact(
        count, PER_SEQUENCE, symbol="c", name="batches in flight", origin=f"vLLM {constants.version}, max_concurrent_batches: {why}"
    )


def cache_dtype(model: Model, device: Device | None, settings: VllmSettings, constants: Constants) -> str:
    """The cache dtype that `auto` becomes: what the checkpoint asks for, or what its family takes on this device."""
    if constants.listed("plain_cache_families", model.family):
        return "auto"
    chosen = settings.kv_cache_dtype or "auto"
    if chosen in ("bf16", "fp16"):
        chosen = {"bf16": "bfloat16", "fp16": "float16"}[chosen]
    if chosen != "auto":
        return chosen
    asked = model.published.kv_cache_dtype if model.published.signed else None
    if asked is not None and asked not in ("auto", "bf16", "fp16", "bfloat16", "float16"):
        return "fp8_e4m3" if asked == "fp8" else asked
    if device is not None and device.major == 10 and constants.listed("blackwell_fp8_families", model.family):
        return "fp8_e4m3"
    return "auto"


def prefix_caching(model: Model, settings: VllmSettings, constants: Constants, traits: Traits) -> bool:
    """Whether prefix caching is on, which decides how many states a sequence holds (config/model.py)."""
    if settings.prefix_caching is not None:
        return settings.prefix_caching
    attention = any(g.kind.grows or g.kind.kind in ("sliding", "chunked") for g in model.layers)
    if traits.stateful and not attention:
        return False
    if any(g.kind.kind == "cross" for g in model.layers):
        return False
    return not traits.stateful or constants.flag("state_caching_default")


def hybrid_manager(model: Model, settings: VllmSettings, constants: Constants) -> bool:
    """Whether layer kinds get groups of their own (config/vllm.py, hybrid KV cache manager rules)."""
    if settings.hybrid_manager is not None:
        return settings.hybrid_manager
    if not any(isinstance(g.kind, Chunked) for g in model.layers):
        return True
    return settings.speculative_method != "mtp" and constants.flag("chunked_hybrid_default")
