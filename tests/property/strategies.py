"""What the properties are tried on: models of many families, GPUs, placements, formats and whole questions.

Models are built by the same reader that reads a published config.json, from small configs with the fields of their family, so that a
property holds for what the readers make and not for hand-built trees. Sizes are small and uneven on purpose: odd vocabularies, single
layers, one KV head, heads that do not divide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st

from gpufit.engines.arithmetic import Arithmetic
from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.policy import Vllm
from gpufit.engines.vllm.settings import vllm_settings
from gpufit.formats.cache import CACHE_FORMATS
from gpufit.formats.weights import WEIGHT_FORMATS
from gpufit.hardware import Gpu, Hardware
from gpufit.model import Model
from gpufit.placement import legal_tensor_degrees
from gpufit.quantity import BYTE, NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sizing.question import Question
from gpufit.sizing.weights import published_weights
from gpufit.sources.catalogue import find_model
from gpufit.sources.engine_constants import engine_rows
from gpufit.sources.gpus import find_gpu
from gpufit.sources.gpuspec import parse_spec
from gpufit.sources.read import read_model
from gpufit.workload import Workload

QUICK = settings(max_examples=40, deadline=None)
"""Enough to find what is wrong often, few enough for a suite that runs in minutes."""

Config = dict[str, Any]

# -- models ---------------------------------------------------------------------------------------------------------------------


@st.composite
def _common(draw: st.DrawFn) -> Config:
    """The fields that nearly every family has."""
    kv = draw(st.sampled_from([1, 2, 3, 4, 8]))
    heads = kv * draw(st.sampled_from([1, 2, 4, 6]))
    return {
        "vocab_size": draw(st.integers(16, 3000)),
        "hidden_size": 16 * draw(st.integers(1, 24)),
        "intermediate_size": 16 * draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(1, 9)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": draw(st.sampled_from([8, 16, 64, 128])),
        "max_position_embeddings": draw(st.integers(256, 40_000)),
        "tie_word_embeddings": draw(st.booleans()),
    }


WINDOWS = st.sampled_from([16, 128, 500, 1024, 4096])


def _llama(draw: st.DrawFn, c: Config) -> Config:
    return c | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def _mistral(draw: st.DrawFn, c: Config) -> Config:
    window = draw(st.none() | WINDOWS)
    return c | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": window}


def _gpt_oss(draw: st.DrawFn, c: Config) -> Config:
    turn = st.sampled_from(["sliding_attention", "full_attention"])
    types = draw(st.lists(turn, min_size=c["num_hidden_layers"], max_size=c["num_hidden_layers"]))
    return c | _experts(draw, "num_local_experts") | {
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "layer_types": types, "sliding_window": draw(WINDOWS),
    }  # fmt: skip


def _gemma3(draw: st.DrawFn, c: Config) -> Config:
    pattern, window = draw(st.integers(1, 6)), draw(WINDOWS)
    return c | {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": window, "sliding_window_pattern": pattern,
    }  # fmt: skip


def _llama4(draw: st.DrawFn, c: Config) -> Config:
    turn = st.sampled_from(["chunked_attention", "full_attention"])
    types = draw(st.lists(turn, min_size=c["num_hidden_layers"], max_size=c["num_hidden_layers"]))
    return c | _experts(draw, "num_local_experts") | {
        "model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "layer_types": types, "intermediate_size_mlp": 64,
        "no_rope_layer_interval": 4, "attention_chunk_size": draw(WINDOWS), "interleave_moe_layer_step": draw(st.integers(1, 2)),
    }  # fmt: skip


def _mixtral(draw: st.DrawFn, c: Config) -> Config:
    return c | _experts(draw, "num_local_experts") | {
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "sliding_window": draw(st.none() | WINDOWS),
    }  # fmt: skip


def _deepseek(draw: st.DrawFn, c: Config) -> Config:
    latent = {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "n_shared_experts": draw(st.integers(0, 2)),
        "kv_lora_rank": draw(st.sampled_from([32, 512])), "q_lora_rank": draw(st.none() | st.sampled_from([32, 96])),
        "qk_rope_head_dim": draw(st.sampled_from([16, 64])), "qk_nope_head_dim": 32, "v_head_dim": 32, "moe_intermediate_size": 32,
        "first_k_dense_replace": draw(st.integers(0, c["num_hidden_layers"])), "num_nextn_predict_layers": draw(st.integers(0, 1)),
    }  # fmt: skip
    return {k: v for k, v in c.items() if k != "head_dim"} | _experts(draw, "n_routed_experts") | latent


def _deepseek_v32(draw: st.DrawFn, c: Config) -> Config:
    sparse = {
        "model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"], "q_lora_rank": 48,
        "index_topk": 64, "index_head_dim": draw(st.sampled_from([32, 128])), "index_n_heads": 4,
    }  # fmt: skip
    return _deepseek(draw, c) | sparse


def _qwen3_next(draw: st.DrawFn, c: Config) -> Config:
    heads = draw(st.sampled_from([1, 2, 4, 6]))
    return c | _experts(draw, "num_experts") | {
        "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "full_attention_interval": draw(st.integers(1, 4)),
        "linear_num_key_heads": heads, "linear_num_value_heads": heads * draw(st.integers(1, 2)), "linear_key_head_dim": 16,
        "linear_value_head_dim": draw(st.sampled_from([16, 32])), "linear_conv_kernel_dim": 4, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "decoder_sparse_step": draw(st.integers(1, 2)),
    }  # fmt: skip


def _falcon_h1(draw: st.DrawFn, c: Config) -> Config:
    heads = draw(st.sampled_from([2, 4, 8]))
    return c | {
        "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "mamba_d_ssm": heads * 16, "mamba_n_heads": heads,
        "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": draw(st.booleans()),
        "mamba_d_head": 16, "mamba_n_groups": draw(st.sampled_from([1, 2])), "mamba_d_state": 16,
    }  # fmt: skip


def _mamba2(draw: st.DrawFn, c: Config) -> Config:
    heads = draw(st.sampled_from([2, 4, 8]))
    kept = {k: c[k] for k in ("vocab_size", "num_hidden_layers", "tie_word_embeddings")}
    return kept | {
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": heads * 16, "num_heads": heads, "head_dim": 32,
        "expand": 2, "conv_kernel": 4, "use_conv_bias": True, "state_size": draw(st.sampled_from([16, 64])), "n_groups": 1,
    }  # fmt: skip


def _bert(draw: st.DrawFn, c: Config) -> Config:
    heads = draw(st.sampled_from([1, 2, 4, 12]))
    kept = {k: c[k] for k in ("vocab_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings")}
    return kept | {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": heads * 16, "num_attention_heads": heads, "type_vocab_size": 2,
    }  # fmt: skip


def _experts(draw: st.DrawFn, name: str) -> Config:
    count = draw(st.integers(1, 8))
    return {name: count, "num_experts_per_tok": draw(st.integers(1, count))}


FAMILIES: dict[str, Callable[[st.DrawFn, Config], Config]] = {
    "llama": _llama, "mistral": _mistral, "gpt_oss": _gpt_oss, "gemma3": _gemma3, "llama4": _llama4, "mixtral": _mixtral,
    "deepseek": _deepseek, "deepseek_v32": _deepseek_v32, "qwen3_next": _qwen3_next, "falcon_h1": _falcon_h1, "mamba2": _mamba2,
    "bert": _bert,
}  # fmt: skip
"""Dense, windowed, chunked, mixtures, latent, latent with an indexer, two hybrids of attention and states, states alone, and no cache."""

KV_FAMILIES = tuple(f for f in FAMILIES if f not in ("mamba2", "bert"))
"""Families whose cache depends on the length of the sequence."""
GROWING = ("llama", "deepseek", "deepseek_v32")
"""Families of which every layer keeps every token."""


@st.composite
def configs(draw: st.DrawFn, *families: str) -> Config:
    """The content of a config.json of one of these families, or of any."""
    family = draw(st.sampled_from(families or tuple(FAMILIES)))
    return {"torch_dtype": "bfloat16"} | FAMILIES[family](draw, draw(_common()))


@st.composite
def models(draw: st.DrawFn, *families: str) -> Model:
    """A model of one of these families, or of any."""
    return read_model(draw(configs(*families)), id="test/generated")


@cache
def known_model(slug: str) -> Model:
    """A model of the built-in catalogue."""
    found = find_model(slug)
    assert found is not None, slug
    return found


PUBLISHED = st.sampled_from(
    ["llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b", "gpt-oss-20b", "gemma-3-27b", "deepseek-v3", "mixtral-8x7b"]
)
"""Catalogue models: dense with three head counts, windowed in two ways, latent in fp8, a mixture, a published 4-bit format."""

# -- formats --------------------------------------------------------------------------------------------------------------------

CACHES = tuple(sorted(CACHE_FORMATS, key=lambda name: CACHE_FORMATS[name].bytes_per_element.value))
"""Cache dtypes from the smallest element to the largest."""
WEIGHTS = tuple(sorted(WEIGHT_FORMATS, key=lambda name: Fraction(WEIGHT_FORMATS[name].bits_per_param().value)))
"""Weight formats from the fewest bits to the most."""
ANY_WEIGHTS = st.sampled_from(["auto", "published", *WEIGHTS])
ANY_CACHE = st.none() | st.sampled_from(CACHES)
SHARES = st.none() | st.integers(500, 1000).map(lambda n: "1" if n == 1000 else f"0.{n:03d}")

# -- GPUs and placements --------------------------------------------------------------------------------------------------------

PARTS = ("h100-sxm", "h200-sxm", "a100-sxm-80gb", "l4", "rtx-4090", "b200", "t4")


def gpu_of(size: int, part: str | None = None) -> Gpu:
    """A GPU of exactly `size` bytes: one whose size alone is known, or a catalogue part with that memory."""
    memory = fact(size, BYTE, symbol="M", name="memory of one GPU", origin="--gpu of this test")
    made = parse_spec("80GiB").gpu if part is None else find_gpu(part)
    return replace(made, id="own-size" if part is None else made.id, memory=memory, allocator_total=None)


def hardware(size: int, count: int = 1, *, part: str | None = None, node: int = 8) -> Hardware:
    """A number of GPUs of exactly `size` bytes."""
    return Hardware(gpu=gpu_of(size, part), count=count, gpus_per_node=node)


@st.composite
def sizes_for(draw: st.DrawFn, model: Model) -> int:
    """Bytes of a GPU in the neighbourhood of this model: from a tenth of its weights to many times them."""
    weights = int(published_weights(model).bytes)
    return max(4096, weights * draw(st.integers(1, 12)) // 10 + draw(st.sampled_from([0, 10**5, 10**7, 10**8, 10**9])))


COUNTS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24])
PUBLISHED_HARDWARE = st.builds(lambda part, count: parse_spec(f"{part}:{count}"), st.sampled_from(PARTS), COUNTS)


@st.composite
def degrees(draw: st.DrawFn, model: Model, at: Hardware) -> tuple[int, int]:
    """A legal (tensor, pipeline) parallel pair that this hardware can hold."""
    tp = draw(st.sampled_from(legal_tensor_degrees(model, min(at.count, at.gpus_per_node))))
    return tp, draw(st.integers(1, min(int(model.num_layers), at.count // tp, 4)))


# -- questions ------------------------------------------------------------------------------------------------------------------


def tokens(count: int) -> Q:
    """A context length in tokens."""
    return fact(count, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="--context of this test")


def share(text: str) -> Q:
    """A utilisation by its decimal text."""
    return fact(text, NUMBER, symbol="u", name="share of memory that may be used", origin="--gpu-memory-utilization of this test")


def contexts(model: Model) -> st.SearchStrategy[int]:
    """Context lengths up to the model's limit."""
    return st.integers(1, min(40_000, int(model.max_context) if model.max_context is not None else 40_000))


@st.composite
def questions(
    draw: st.DrawFn,
    *families: str,
    fixed: bool = False,
    weights: st.SearchStrategy[str] = ANY_WEIGHTS,
    cache: st.SearchStrategy[str | None] = ANY_CACHE,
    short: bool = False,
) -> Question:
    """A question about a generated model on GPUs near its size, or (one in five) about a catalogue model on catalogue GPUs.

    `fixed` names both degrees; without it the placement rule chooses. `short` asks of generated models what mostly does not fit, for a
    little more memory, a shorter context or a few more GPUs.
    """
    if short:
        model = draw(models(*families))
        room = int(published_weights(model).bytes) * draw(st.integers(1, 20)) // 20
        node = draw(st.sampled_from([1, 4, 8]))
        at = hardware(max(4096, room), draw(st.integers(1, 3)), part=draw(st.none() | st.sampled_from(PARTS)), node=node)
    elif not families and draw(st.integers(0, 4)) == 0:
        model, at = known_model(draw(PUBLISHED)), draw(PUBLISHED_HARDWARE)
    else:
        model = draw(models(*families))
        part = draw(st.none() | st.sampled_from(PARTS))
        at = hardware(draw(sizes_for(model)), draw(COUNTS), part=part, node=draw(st.sampled_from([1, 4, 8])))
    utilization = draw(SHARES)
    tp, pp = draw(degrees(model, at)) if fixed else (None, None)
    return Question(
        model=model,
        hardware=(at,),
        workload=Workload(
            context=tokens(draw(contexts(model))),
            kv_cache_dtype=draw(cache),
            utilization=None if utilization is None else share(utilization),
            min_concurrency=draw(st.sampled_from([1, 2, 8])),
        ),
        engine=Arithmetic(),
        weights=draw(weights),
        tensor_parallel=tp,
        pipeline_parallel=pp,
    )


def on(question: Question, at: Hardware) -> Question:
    """The same question on other hardware."""
    return replace(question, hardware=(at,))


def larger(question: Question, more: int) -> Question:
    """The same question on GPUs with `more` bytes more."""
    at = question.hardware[0]
    memory = replace_value(at.gpu.memory, int(at.gpu.memory) + more)
    total = at.gpu.allocator_total
    gpu = replace(at.gpu, memory=memory, allocator_total=None if total is None else replace_value(total, int(total) + more))
    return on(question, replace(at, gpu=gpu))


def replace_value(value: Q, to: int) -> Q:
    """The same fact with another value."""
    return fact(to, value.unit, symbol=value.symbol, name=value.name, origin=value.origin)


def working(question: Question, **changes: Any) -> Question:
    """The same question with another workload."""
    return replace(question, workload=replace(question.workload, **changes))


# -- vLLM -----------------------------------------------------------------------------------------------------------------------

VERSIONS = ("0.11", "0.19", "0.26", "0.33")


def vllm(version: str = "0.33", *, batches: bool = True, cache_bytes: int | None = None) -> Vllm:
    """vLLM's policy with batches and an overhead of 1 MiB held fixed: its own defaults of both depend on the GPU's size."""
    tokens, sequences = (512, 64) if batches else (None, None)
    held = vllm_settings(max_num_batched_tokens=tokens, max_num_seqs=sequences, kv_cache_memory=cache_bytes)
    stated = fact(1 << 20, BYTE, symbol="O", name="overhead", origin="--overhead-gib of this test")
    return Vllm(constants=Constants(version=version, rows=engine_rows("vllm")), flags=held, overhead=stated)


VLLM_FAMILIES = ("llama", "mistral", "gpt_oss", "gemma3", "mixtral", "deepseek", "qwen3_next")


@st.composite
def vllm_questions(draw: st.DrawFn, *families: str, fixed: bool = True, version: str | None = None) -> Question:
    """A question to vLLM, with published weights, one of its own cache dtypes, and everything that it would choose held fixed.

    Head dimensions are those that its attention kernels take; GPUs are NVIDIA parts, so that their compute capability is known.
    """
    config = draw(configs(*(families or VLLM_FAMILIES)))
    if "head_dim" in config:
        config["head_dim"] = draw(st.sampled_from([64, 128]))
    if "kv_lora_rank" in config:
        config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    model = read_model(config, id="test/generated")
    part = draw(st.sampled_from(["h100-sxm", "a100-sxm-80gb", "rtx-4090", "b200"]))
    size = draw(sizes_for(model)) + (2 << 20)
    at = hardware(size, draw(st.sampled_from([1, 2, 4, 8])), part=part)
    tp, pp = draw(degrees(model, at)) if fixed else (None, None)
    assume(tp is None or pp is None or tp * pp <= at.count)
    return Question(
        model=model,
        hardware=(at,),
        workload=Workload(
            context=tokens(draw(contexts(model))),
            kv_cache_dtype=draw(st.sampled_from([None, "bfloat16", "fp8"])),
            utilization=share("1") if draw(st.booleans()) else None,
            min_concurrency=draw(st.sampled_from([1, 8])),
        ),
        engine=vllm(version or draw(st.sampled_from(VERSIONS))),
        weights="published",
        tensor_parallel=tp,
        pipeline_parallel=pp,
    )
