"""The options that every sizing command shares, once: a dataclass whose fields become options of each command that asks for it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gpufit.cli import options as o
from gpufit.errors import UsageError

if TYPE_CHECKING:
    from gpufit.engines.base import EnginePolicy
    from gpufit.hardware import Hardware
    from gpufit.model import Model
    from gpufit.sizing.question import Question
    from gpufit.workload import Workload

VLLM = "vLLM"


def _flag(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def _value(text: str, metavar: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text)


@dataclass(kw_only=True)
class Asked:
    """What a sizing command was asked, as typed. Names follow vLLM's flags; `typed` names the options that stood on the command line."""

    gpu: o.Gpus = None
    context: o.Context = None
    weights: o.Weights = "auto"
    kv_cache_dtype: o.CacheDtype = "auto"
    gpu_memory_utilization: o.Utilization = None
    tensor_parallel_size: o.TensorParallel = None
    pipeline_parallel_size: o.PipelineParallel = None
    min_concurrency: o.MinConcurrency = 8
    engine: Annotated[str, _value("arithmetic, vllm or vllm@VERSION (0.11 to 0.33).", "ENGINE", "--engine")] = "arithmetic"
    data_parallel_size: Annotated[
        int | None, _value("vLLM: data parallel ranks of a replica.", "N", "--data-parallel-size", "--dp")
    ] = None
    enable_expert_parallel: Annotated[
        bool, _flag("vLLM: keep experts whole, dealt out over ranks.", "--enable-expert-parallel")
    ] = False
    decode_context_parallel_size: Annotated[
        int | None, _value("vLLM: split the tokens of the cache over ranks.", "N", "--decode-context-parallel-size", "--dcp")
    ] = None
    max_num_batched_tokens: Annotated[int | None, _value("vLLM: tokens in one batch.", "N", "--max-num-batched-tokens")] = None
    max_num_seqs: Annotated[int | None, _value("vLLM: sequences in one batch.", "N", "--max-num-seqs")] = None
    block_size: Annotated[int | None, _value("vLLM: tokens in one block.", "N", "--block-size")] = None
    kv_cache_memory_bytes: Annotated[
        int | None, _value("vLLM: bytes of cache, not a share.", "BYTES", "--kv-cache-memory-bytes")
    ] = None
    enforce_eager: Annotated[bool, _flag("vLLM: no CUDA graphs.", "--enforce-eager")] = False
    no_enable_prefix_caching: Annotated[bool, _flag("vLLM: no prefix caching.", "--no-enable-prefix-caching")] = False
    speculative_config: Annotated[
        str | None, _value("vLLM: speculative decoding, as its JSON.", "JSON", "--speculative-config")
    ] = None
    max_loras: Annotated[int | None, _value("vLLM: LoRA adapters held at once.", "N", "--max-loras")] = None
    max_lora_rank: Annotated[int | None, _value("vLLM: largest LoRA rank.", "N", "--max-lora-rank")] = None
    no_enable_chunked_prefill: Annotated[
        bool, _flag("vLLM: prompts are never split over batches.", "--no-enable-chunked-prefill")
    ] = False
    disable_hybrid_kv_cache_manager: Annotated[
        bool, _flag("vLLM: one group of layers, all kept at full length.", "--disable-hybrid-kv-cache-manager")
    ] = False
    async_scheduling: Annotated[
        bool | None, _flag("vLLM: schedule one batch ahead, or not.", "--async-scheduling/--no-async-scheduling")
    ] = None
    mamba_cache_dtype: Annotated[
        str | None, _value("vLLM: dtype of recurrent states: auto, float32, float16, bfloat16.", "DTYPE", "--mamba-cache-dtype")
    ] = None
    mamba_ssm_cache_dtype: Annotated[
        str | None, _value("vLLM: the same, without the convolution's.", "DTYPE", "--mamba-ssm-cache-dtype")
    ] = None
    language_model_only: Annotated[bool, _flag("vLLM: do not load vision and audio towers.", "--language-model-only")] = False
    overhead_gib: Annotated[
        str | None, _value("vLLM: activations, graphs and runner state in GiB, in place of the estimate.", "GIB", "--overhead-gib")
    ] = None
    as_json: o.Json = False
    format: o.OutputFormat = o.Format.TABLE
    offline: o.Offline = False
    assume_dense: o.AssumeDense = False
    exact: o.Exact = False
    typed: frozenset[str] = dataclasses.field(default=frozenset())

    def output(self) -> o.Format:
        """How the answer is written."""
        return o.output_format(self.format, self.as_json)

    def hardware(self) -> tuple[Hardware, ...]:
        """The hardware named, else this machine's."""
        from gpufit.sources.gpuspec import parse_specs

        named = parse_specs(self.gpu or ["local"])
        ids = [(h.gpu.id, h.instance) for h in named]
        twice = next((i for i in ids if ids.count(i) > 1), None)
        if twice is not None:
            together = sum(h.count for h in named if (h.gpu.id, h.instance) == twice)
            hint = f"one --gpu with all of them, as in {twice[0]}:{together}"
            raise UsageError(f"{twice[1] or twice[0]} is named twice with --gpu", hint=hint)
        return named

    def workload(self) -> Workload:
        """The workload, checked."""
        from gpufit.workload import Workload

        return Workload(
            context=o.context_fact(self.context),
            context_is_default=self.context is None,
            kv_cache_dtype=self.policy_dtype(),
            utilization=o.utilization_fact(self.gpu_memory_utilization),
            min_concurrency=o.positive(self.min_concurrency, "--min-concurrency") or 1,
        )

    def policy_dtype(self) -> str | None:
        """The cache dtype by the name the engine knows; None for `auto`."""
        if self.engine.partition("@")[0] == "vllm":
            from gpufit.cli.vllm_engine import cache_dtype

            return cache_dtype(self.kv_cache_dtype)
        return o.cache_dtype(self.kv_cache_dtype)

    def policy(self) -> EnginePolicy:
        """The engine whose rules are asked for; a flag of another engine's is a usage error, never dropped."""
        name, _, version = self.engine.partition("@")
        if name == "arithmetic" and not version:
            given = self.engine_options()
            if given:
                raise UsageError(f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} vLLM's", hint="add --engine vllm")
            from gpufit.engines.arithmetic import Arithmetic

            return Arithmetic()
        if name == "vllm":
            from gpufit.cli.vllm_engine import vllm_policy

            return vllm_policy(self, version or None)
        raise UsageError(f"unknown engine {self.engine!r}", hint="one of arithmetic, vllm, vllm@VERSION")

    def engine_options(self) -> list[str]:
        """The options given that only a serving engine has."""
        only = [f for f in dataclasses.fields(self) if f.name not in _SHARED]
        return ["--" + f.name.replace("_", "-") for f in only if getattr(self, f.name) != f.default]

    def question(self, model: Model, hardware: tuple[Hardware, ...], workload: Workload, policy: EnginePolicy) -> Question:
        """The question about one model."""
        from gpufit.sizing.question import Question

        return Question(
            model=model,
            hardware=hardware,
            workload=workload,
            engine=policy,
            weights=o.weight_format(self.weights),
            tensor_parallel=o.positive(self.tensor_parallel_size, "--tensor-parallel-size"),
            pipeline_parallel=o.positive(self.pipeline_parallel_size, "--pipeline-parallel-size"),
            data_parallel=o.positive(self.data_parallel_size, "--data-parallel-size"),
        )


_SHARED = frozenset(
    """
    gpu context weights kv_cache_dtype gpu_memory_utilization tensor_parallel_size pipeline_parallel_size min_concurrency engine
    as_json format offline assume_dense exact typed
    """.split()
)
"""Options that mean something under every engine."""


def asks(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command whose parameter `asked: Asked` becomes one option for each field of `Asked`."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "asked"]
    hints = get_type_hints(Asked, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(Asked)
        if f.name != "typed"
    ]
    names = [p.name for p in options]

    @wraps(command)
    def wrapped(**given: Any) -> int | None:
        context = given.pop("context_of_command")
        sources = {n: context.get_parameter_source(n) for n in names}
        typed = frozenset(n for n, source in sources.items() if source is not None and source.name == "COMMANDLINE")
        asked = Asked(**{n: given.pop(n) for n in names}, typed=typed)
        return command(asked=asked, **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own[:1]] + options
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own[1:]]
    parameters.append(inspect.Parameter("context_of_command", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped
