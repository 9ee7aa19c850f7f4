"""vLLM as an engine policy: its budget, its weights per rank, its cache plan, and what of it is modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpufit.engines.arithmetic import WHOLE, sequence_bytes
from gpufit.engines.base import Capacity, LedgerLine, WeightChoice
from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.gpu_weights import Checkpoint, GpuWeights, checkpoint_seen, gpu_weights, loading_remarks
from gpufit.engines.vllm.lora import Loras
from gpufit.engines.vllm.overhead import Overhead, estimated, stated
from gpufit.engines.vllm.plan import CachePlan, Holds, NoPlan, holds, plan_cache
from gpufit.engines.vllm.refusals import Refused, checkpoint_refusals, gguf_refusal
from gpufit.engines.vllm.remarks import overhead_remarks, remarks, warnings
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.engines.vllm.weights import recognised
from gpufit.errors import GpufitError
from gpufit.formats.cache import CACHE_FORMATS, CacheFormat, engine_format
from gpufit.hardware import Gpu
from gpufit.model import Model
from gpufit.placement import Placement, Refusal, stages
from gpufit.quantity import BYTE, NUMBER, SEQUENCE, Q, ceil, ceil_div, fact, floor
from gpufit.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """The rules of one vLLM version under some settings.

    `overhead` replaces the modelled estimate (B). `loras` are adapter slots. `flags` are settings already fixed by the user; degrees
    and context come with each question.
    """

    constants: Constants
    flags: VllmSettings = field(default_factory=VllmSettings)
    overhead: Q | None = None
    eager: bool = False
    loras: Loras | None = None
    name: str = "vllm"

    @property
    def version(self) -> str | None:
        """The version whose rules these are."""
        return self.constants.version

    def utilization(self) -> Q:
        """The default share: 0.9 before 0.20, 0.92 since."""
        return self.constants.number("utilization")

    def serve_flags(self) -> tuple[str, ...]:
        """What the user fixed, by vLLM's names."""
        f, said = self.flags, []
        numbers = {
            "--decode-context-parallel-size": f.decode_context_parallel,
            "--block-size": f.block_size,
            "--kv-cache-memory-bytes": f.kv_cache_memory,
        }
        said += [f"{flag} {int(value)}" for flag, value in numbers.items() if value is not None]
        if f.expert_parallel:
            said.append("--enable-expert-parallel")
        if self.eager:
            said.append("--enforce-eager")
        if f.prefix_caching is False:
            said.append("--no-enable-prefix-caching")
        if f.chunked_prefill is False:
            said.append("--no-enable-chunked-prefill")
        if f.hybrid_manager is False:
            said.append("--disable-hybrid-kv-cache-manager")
        if f.async_scheduling is not None:
            said.append("--async-scheduling" if f.async_scheduling else "--no-async-scheduling")
        states = {"--mamba-cache-dtype": f.mamba_cache_dtype, "--mamba-ssm-cache-dtype": f.mamba_ssm_cache_dtype}
        said += [f"{flag} {dtype}" for flag, dtype in states.items() if dtype is not None]
        if f.speculative_method and f.speculative_tokens is not None:
            draft = f'{{"method": "{f.speculative_method}", "num_speculative_tokens": {int(f.speculative_tokens)}}}'
            said.append(f"--speculative-config '{draft}'")
        if self.loras is not None:
            said.append(f"--enable-lora --max-loras {int(self.loras.slots)} --max-lora-rank {int(self.loras.rank)}")
        if f.language_model_only:
            said.append("--language-model-only")
        return tuple(said)

    def cache_format(self, model: Model, asked: str | None) -> CacheFormat:
        """What a sequence's own elements take in this dtype; what the engine reserves comes from its plan."""
        declared = model.published.kv_cache_dtype if recognised(model) else None
        chosen = asked or (declared if declared not in (None, "auto") else None)
        if chosen is None or self.constants.listed("plain_cache_families", model.family):
            return CACHE_FORMATS["fp16" if model.dtype == "fp16" else "bf16"]
        return engine_format(chosen)

    def outweighed(self, gpu: Gpu, count: int, workload: Workload, weights: WeightChoice) -> bool:
        """Never certain from bytes alone: towers that are not loaded and formats that are laid out anew weigh less on a rank."""
        return False

    def capacity(
        self,
        model: Model,
        gpu: Gpu,
        placement: Placement,
        workload: Workload,
        weights: WeightChoice,
        context: Q,
        cache: CacheFormat,
    ) -> Capacity | Refusal:
        """requested - weights - overhead on each stage's GPU, cut into blocks; concurrency as the server's log prints it."""
        settings = replace(
            self.flags,
            max_model_len=context,
            tensor_parallel=placement.tensor_parallel,
            pipeline_parallel=placement.pipeline_parallel,
            data_parallel=placement.data_parallel,
            kv_cache_dtype=workload.kv_cache_dtype,
        )
        if weights.gguf:
            return Refusal(reason=gguf_refusal(self.constants).reason)
        if weights.published:
            refused = checkpoint_refusals(model, self.constants)
            if refused:
                return _refusal(refused)
        try:
            return self._sized(model, gpu, placement, workload, weights, context, cache, settings)
        except GpufitError as error:
            return Refusal(reason=error.message)

    def _sized(
        self,
        model: Model,
        gpu: Gpu,
        placement: Placement,
        workload: Workload,
        weights: WeightChoice,
        context: Q,
        cache: CacheFormat,
        settings: VllmSettings,
    ) -> Capacity | Refusal:
        share = workload.utilization or self.utilization()
        memory = gpu.allocator_total or gpu.memory
        requested = ceil(memory * share).as_step("M_r", "memory that vLLM requests on one GPU")
        spread = Spread(
            tp=placement.tensor_parallel,
            dp=placement.data_parallel or _ONE_RANK,
            expert_parallel=settings.expert_parallel,
            capability=int((gpu.compute_capability or "9.0").replace(".", "")),
        )
        seen = checkpoint_seen(model, weights)
        model = seen.model
        loaded = tuple(gpu_weights(seen, spread, stage, settings, self.loras, self.constants) for stage in _stages(model, settings))
        held = tuple(one.held for one in loaded)
        # The plan is made twice: batches and groups, which the overhead needs, do not depend on the memory left.
        draft = plan_cache(model, gpu, settings, requested, constants=self.constants)
        if isinstance(draft, NoPlan):
            return _refusal(draft.refusals)
        overhead = self._overhead(model, draft, placement.tensor_parallel)
        if settings.kv_cache_memory is not None:
            left = tuple(settings.kv_cache_memory for _ in held)
            over = [tuple(memory - h - end - settings.kv_cache_memory for h in held) for end in (overhead.low, overhead.high)]
            ends = tuple(beyond if min(map(int, beyond)) < 0 else left for beyond in over)
            taken = max(int(h) for h in held) + int(overhead.likely) + int(settings.kv_cache_memory)
            if taken > int(memory):
                return Refusal(reason=f"weights, overhead and the cache asked for are {taken:,} B on a GPU of {int(memory):,} B")
        else:
            left = tuple((requested - h - overhead.likely).as_step("P", "what is left for the cache on one GPU") for h in held)
            ends = tuple(tuple(requested - h - end for h in held) for end in (overhead.low, overhead.high))
        if min(int(p) for p in left) < 0:
            plan, blocks = draft, None
        else:
            made = plan_cache(model, gpu, settings, left if len(left) > 1 else left[0], constants=self.constants)
            if isinstance(made, NoPlan):
                return _refusal(made.refusals)
            plan, blocks = made, made.num_blocks
        tightest = _tightest(plan, left, blocks)
        return self._capacity(
            seen,
            gpu,
            context,
            cache,
            plan,
            blocks,
            requested,
            loaded[tightest],
            overhead,
            left[tightest],
            spread,
            settings,
            None if len(left) == 1 else stages(int(model.num_layers), len(left))[tightest],
            tuple(holds(plan, end) for end in ends),
        )

    def _overhead(self, model: Model, plan: CachePlan, tp: Q) -> Overhead:
        if self.overhead is not None:
            return stated(self.overhead)
        return estimated(model, plan, tp, eager=self.eager, graphs_counted=self.constants.flag("graphs_counted"))

    def _capacity(
        self,
        seen: Checkpoint,
        gpu: Gpu,
        context: Q,
        cache: CacheFormat,
        plan: CachePlan,
        blocks: Q | None,
        requested: Q,
        loaded: GpuWeights,
        overhead: Overhead,
        left: Q,
        spread: Spread,
        settings: VllmSettings,
        layers: range | None,
        ends: tuple[Holds, ...],
    ) -> Capacity:
        model, weights, held = seen.model, seen.weights, loaded.held
        low, high = ends
        needed = sequence_bytes(model, _context_here(context, settings), spread.tp, cache, layers)
        reserved = (plan.blocks_per_request * plan.bytes_per_block).as_step(
            "S_v", "cache that vLLM reserves for one sequence on one GPU"
        )
        if blocks is None:
            concurrency, tokens, usable = (
                fact(0, SEQUENCE, symbol="C_v", name="sequences at once", origin="no memory is left"),
                0,
                _NONE,
            )
        else:
            concurrency, tokens, usable = (
                plan.max_concurrency,
                int(plan.tokens),
                (blocks * plan.bytes_per_block).as_step("K_c", "cache"),
            )
        whole = (
            floor(concurrency).as_step("C_w", "whole sequences at once on one rank")
            if blocks is not None and plan.fits
            else _NO_SEQUENCE
        )
        each = whole if int(spread.dp) == 1 else (spread.dp * whole).as_step("C_r", "whole sequences at once in one replica")
        details: Mapping[str, Q | float | str | None] = {
            "name": self.name,
            "version": self.constants.version,
            "requested_bytes": requested,
            "weights_created_bytes": loaded.created,
            "overhead_bytes": overhead.likely,
            "overhead_low_bytes": overhead.low,
            "overhead_high_bytes": overhead.high,
            "kv_cache_bytes": usable,
            "block_size": plan.block_size,
            "block_bytes": plan.bytes_per_block,
            "blocks": 0 if blocks is None else blocks,
            "blocks_per_request": plan.blocks_per_request,
            "kv_cache_tokens": tokens,
            "max_concurrency": float(concurrency),
            "max_concurrency_low_overhead": low.concurrency,
            "max_concurrency_high_overhead": high.concurrency,
            "needed_bytes_per_sequence_per_gpu": needed,
            "reserved_bytes_per_sequence_per_gpu": reserved,
            "kv_cache_dtype": plan.cache_dtype,
            "max_num_batched_tokens": plan.batch.tokens,
            "max_num_seqs": plan.batch.sequences,
        }
        fits = int(each) >= 1 or (blocks is not None and int(plan.blocks_per_request) == 0)
        return Capacity(
            weights=weights,
            weights_per_gpu=held,
            budget=requested,
            pool=left,
            context=context,
            cache=cache,
            sequence_bytes=sequence_bytes(model, context, WHOLE, cache),
            sequence_bytes_per_gpu=reserved,
            per_replica=each,
            ledger=(
                LedgerLine(name="weights", bytes=held),
                LedgerLine(name="overhead (modelled)" if not overhead.stated else "overhead (given)", bytes=overhead.likely),
                LedgerLine(name="KV cache", bytes=usable),
                LedgerLine(name="left in the pool", bytes=requested - held - overhead.likely - usable),
                LedgerLine(name="outside the budget", bytes=gpu.memory - requested),
            ),
            details=details,
            warnings=warnings(gpu, plan, overhead, weights.format, cache),
            remarks=(
                *loading_remarks(loaded, seen, settings),
                *overhead_remarks(overhead, fits=fits, fits_low=low.fits, fits_high=high.fits),
                *remarks(model, plan, needed, reserved, each, cache, self.constants),
            ),
        )


_ONE_RANK = fact(1, NUMBER, symbol="dp", name="data parallel degree", origin="default of --data-parallel-size")
_NONE = Q(0, BYTE, "const").as_step("K_c", "cache")
_NO_SEQUENCE = fact(0, SEQUENCE, symbol="C_w", name="whole sequences at once on one rank", origin="one request does not fit")


def _context_here(context: Q, settings: VllmSettings) -> Q:
    """The tokens of a sequence that one rank holds: its share under decode context parallelism."""
    degree = settings.decode_context_parallel
    if degree is None or int(degree) == 1:
        return context
    return ceil_div(context, degree).as_step("n_dcp", "tokens of a sequence on one GPU")


def _refusal(refused: tuple[Refused, ...]) -> Refusal:
    return Refusal(reason="vLLM refuses: " + "; ".join(r.reason + (f" ({r.option})" if r.option else "") for r in refused))


def _stages(model: Model, settings: VllmSettings) -> tuple[Stage, ...]:
    parts = stages(int(model.num_layers), int(settings.pp))
    towers = not settings.language_model_only
    return tuple(Stage(layers=part, first=i == 0, last=i == len(parts) - 1, towers=towers) for i, part in enumerate(parts))


def _tightest(plan: CachePlan, left: tuple[Q, ...], blocks: Q | None) -> int:
    """The stage that decides: the one with the fewest blocks, or the least memory where none is left."""
    if blocks is None or len(left) == 1:
        return min(range(len(left)), key=lambda i: int(left[i]))
    return min(range(len(left)), key=lambda i: int(plan.stages[i].num_blocks))
