"""The method in general, as a page: what is counted, and the questions people ask. Its example figures are worked out, not typed."""

from __future__ import annotations

from gpufit.engines.arithmetic import Arithmetic
from gpufit.quantity import TOKEN_PER_SEQUENCE, fact
from gpufit.report.units import kib, memory, params
from gpufit.sizing.cost import CacheCost, cache_cost
from gpufit.sizing.question import Answer, Question
from gpufit.sizing.search import answer
from gpufit.sources.catalogue import model_of
from gpufit.sources.gpuspec import parse_specs
from gpufit.workload import Workload


def _cost(slug: str, *, dtype: str = "bf16", tp: int = 1) -> CacheCost:
    tokens = fact(8192, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="the method page's example")
    return cache_cost(model_of(slug), dtype=dtype, tp=tp, contexts=(tokens,))


def _fit(slug: str, gpu: str, *, cache: str | None, tp: int, context: int = 8192) -> Answer:
    tokens = fact(context, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin="the method page's example")
    return answer(
        Question(
            model=model_of(slug),
            hardware=parse_specs([gpu]),
            workload=Workload(context=tokens, kv_cache_dtype=cache),
            engine=Arithmetic(),
            weights="published",
            tensor_parallel=tp,
        )
    )


def method_text() -> str:
    """The page."""
    llama, qwen = _cost("llama-3.1-8b"), _cost("qwen2.5-7b")
    deepseek, deepseek8 = _cost("deepseek-v3"), _cost("deepseek-v3", tp=8)
    moe = model_of("qwen3-30b-a3b")
    wide, narrow = (_fit("llama-3.3-70b", "h100-sxm:4", cache=c, tp=4) for c in ("bf16", "fp8"))
    small = _fit("llama-3.1-8b", "h100-sxm", cache="bf16", tp=1)
    heads = llama.model
    assert small.capacity is not None
    assert heads.attention_heads is not None and heads.kv_heads is not None and heads.head_dim is not None
    assert qwen.model.kv_heads is not None and moe.active_params is not None
    as_attention = int(heads.attention_heads) // int(heads.kv_heads)
    return f"""
# What is counted

A GPU has the memory that nvidia-smi reports. A share of it (90% by default) may be used. Weights take their part; what is left holds
the KV cache; divided by the cache of one sequence at full length it gives the sequences that fit at once:

  usable on one GPU   = floor(memory * utilisation)
  weights on one GPU  = weights / (tensor parallel * pipeline parallel)
  pool on one GPU     = usable - weights
  sequences at once   = floor(pool / cache of one sequence on one GPU)

Everything is worked out per GPU, never on a pooled sum: eight GPUs are not one large one. To see it for one model:
gpufit explain llama-3.1-8b --gpu h100-sxm --context 8k

# Why KV heads and not attention heads?

Attention stores a key and a value per token and KV head. In grouped-query attention several attention heads share one KV head.
{heads.name} has {int(heads.attention_heads)} attention heads but {int(heads.kv_heads)} KV heads of {int(heads.head_dim)}: counting attention heads would be {as_attention} times too much.
head_dim is a field of its own; hidden size / heads is only right where the config has none.

# What does the cache cost per token?

  full attention    2 * KV heads * head_dim * bytes, a layer, for every token
  sliding window    the same, but never for more tokens than the window
  latent (MLA)      (latent rank + rotary width) * bytes, on every GPU alike
  recurrent state   a fixed amount a sequence, whatever its length

At 16 bit {llama.model.name} costs {kib(llama.per_token)} KiB a token ({memory(llama.per_sequence[0][1])} at 8,192 tokens), {qwen.model.name} {kib(qwen.per_token)} KiB,
{deepseek.model.name} {kib(deepseek.per_token)} KiB on one GPU and {kib(deepseek8.per_token_on_gpu)} KiB on each of eight.
KV heads split over tensor-parallel GPUs until there is one on each; past that they are copied.

# How are mixture-of-experts models sized?

All experts are resident: the router may pick any of them for the next token. {moe.name} has
{params(moe.total_params)} parameters in memory, of which {params(moe.active_params)} work on one token. The active ones matter for compute, not for memory.

# Which weights are in which format?

auto takes the format of the published checkpoint where it fits. Where it does not, the next lower one that does: 8 bit (fp8 where the
hardware has it, else int8), then int4. Such a row is marked: somebody must have made that checkpoint. In formats other than the
published one embedding and output head stay at 16 bit, as quantisers leave them, and scales are counted. gpufit catalogue formats
lists the bits.

# Does an fp8 cache double concurrency?

It halves the cache of a sequence, so the same pool holds twice as many, less what rounding takes:
{wide.question.model.name} on 4 x H100 (tensor parallel 4) holds
{wide.total_sequences} sequences of 8,192 tokens with a 16-bit cache and {narrow.total_sequences} with fp8. The placement rule may then choose fewer GPUs
for each replica, which holds fewer in all: --tp fixes the degree. Weights do not move, latents halve too, recurrent states do not.
It changes attention numerics, and hardware before Ada and Hopper has no fp8 units.

# Why is concurrency not users?

It counts sequences whose whole cache fits at the full context. Real requests are mostly shorter, share prefixes, and come and go: a
server with
{int(small.capacity.per_replica)} full-length places may serve hundreds of users, or be slow with ten. It is a floor for real traffic, and the point at
which a server must begin to queue or preempt if everybody fills the context.

# Why is there no tokens-per-second figure?

Memory is arithmetic: the same numbers in give the same number out, on every machine. Throughput depends on kernels, batching,
traffic and clocks; a formula for it would be a guess printed like a fact. Measure it on the hardware, once gpufit says that it fits.

# What is exact, modelled and left out?

Exact: parameter counts, the cache of a sequence, the memory a GPU reports. Modelled: weights split evenly over GPUs (engines copy
some parts and pad others), formats that nobody has published yet. Left out: the engine's own needs (activations, CUDA graphs,
communication buffers), LoRA adapters, speculative decoding, encoder activations of vision towers, throughput.
"""
