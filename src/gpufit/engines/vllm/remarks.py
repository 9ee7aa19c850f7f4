"""What an answer of this engine has to say beside its figures: warnings that hold for many models, remarks with figures of one."""

from __future__ import annotations

from fractions import Fraction

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.formats import DS_MLA, KNOWN, PER_TOKEN_HEAD, TURBOQUANT, head_bytes
from gpufit.engines.vllm.overhead import Overhead
from gpufit.engines.vllm.plan import CachePlan
from gpufit.engines.vllm.specs import WINDOWED, SpecKind
from gpufit.engines.vllm.traits import device_of
from gpufit.formats.cache import CacheFormat
from gpufit.hardware import Gpu
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.model import Model
from gpufit.quantity import Q

_FOUR_BIT = ("nvfp4", "mxfp4")
_UNQUANTISED = ("bf16", "fp16", "fp32")
_AMPERE = (8, 0)
"""The first compute capability of vLLM's Marlin kernels (quantization/utils/marlin_utils.py)."""


def warnings(gpu: Gpu, plan: CachePlan, overhead: Overhead, weights: str, cache: CacheFormat) -> tuple[str, ...]:
    """What holds on this GPU, or for these formats, whichever model is asked for. `weights` is the format of the weights."""
    said = list(plan.notes)
    if gpu.allocator_total is None:
        said.append(_allocator(gpu))
    device = device_of(gpu)
    if weights in _FOUR_BIT and gpu.fp4 is False:
        # Weight-only kernels (Marlin, Triton) run them from Ampere on; elsewhere nothing is known.
        doubt = "" if device is not None and device.capability >= _AMPERE else ", if they load them at all"
        said.append(f"{gpu.name} has no fp4 hardware: engines keep {weights} weights but compute in 16 bit{doubt}")
    if device is not None and device.capability < _AMPERE and weights not in _UNQUANTISED:
        said.append(
            f"{gpu.name} has compute capability {device.major}.{device.minor}: "
            f"vLLM's kernels for {weights} weights may refuse it below 8.0"
        )
    if device is None and weights == "mxfp4":
        said.append(f"how vLLM's kernels pad mxfp4 experts on {gpu.name} is not known: Hopper's padding is taken")
    if _scales_apart(plan.cache_dtype, cache):
        said.append(f"what a sequence needs in {plan.cache_dtype} is without scales; what vLLM reserves has them")
    if not overhead.stated:
        said.append("overhead beside weights and cache is modelled, not exact: --overhead-gib replaces it")
    return tuple(said)


def _allocator(gpu: Gpu) -> str:
    """What is used in place of the allocator's total, in the words of the device's own tool."""
    if gpu.vendor in ("nvidia", None):
        return f"what CUDA reports as the total of {gpu.name} was not seen: nvidia-smi's is used, vLLM's own is 0.3 to 3% lower"
    runtime = "what HIP reports as the total" if gpu.vendor == "amd" else "the total that an allocator sees"
    return f"{runtime} of {gpu.name} was not seen: {gpu.memory_basis} is used, and vLLM's own may be lower"


def overhead_remarks(overhead: Overhead, *, fits: bool, fits_low: bool, fits_high: bool) -> tuple[str, ...]:
    """The range of a modelled overhead, and whether the answer turns within it. `fits` is the answer at the likely figure."""
    if overhead.stated:
        return ()
    low, likely, high = (int(o) / 2**30 for o in (overhead.low, overhead.likely, overhead.high))
    said = [f"overhead {likely:.1f} GiB, between {low:.1f} and {high:.1f}"]
    if fits and not fits_high:
        said.append(f"does not fit at the high end of the modelled overhead ({high:.1f} GiB)")
    elif fits_low and not fits:
        said.append(f"would fit at the low end of the modelled overhead ({low:.1f} GiB)")
    return tuple(said)


def remarks(
    model: Model, plan: CachePlan, needed: Q, reserved: Q, sequences: Q, cache: CacheFormat, constants: Constants
) -> tuple[str, ...]:
    """Figures of this one model: what is reserved beyond need, what the scheduler caps."""
    said = []
    like = int(needed) * _scale_share(model, plan.cache_dtype, cache, constants)
    if int(reserved) > like * Fraction(105, 100):
        said.append(f"vLLM reserves {int(reserved) / max(1, int(needed)):.1f} times what a sequence needs{_cure(plan)}")
    if int(sequences) > int(plan.batch.sequences):
        said.append(f"the scheduler runs at most {int(plan.batch.sequences):,} sequences at once: --max-num-seqs raises it")
    return tuple(said)


def _cure(plan: CachePlan) -> str:
    kinds = {s.kind for g in plan.groups for s in g.specs}
    for found, word in ((kinds & set(WINDOWED), "window"), (kinds & {SpecKind.CHUNKED}, "chunk")):
        if found:
            return f": tokens in flight count for every {word}, --max-num-batched-tokens closes the gap"
    return ": the layers at either end stay at 16 bit" if plan.cache_dtype in TURBOQUANT else ""


def _scales_apart(dtype: str, cache: CacheFormat) -> bool:
    """Whether the elements' own format leaves out what vLLM stores beside them, since that depends on the width of a head."""
    return dtype in KNOWN and dtype in (*PER_TOKEN_HEAD, *TURBOQUANT, *DS_MLA) and cache.lossy


def _scale_share(model: Model, dtype: str, cache: CacheFormat, constants: Constants) -> Fraction:
    """How many times the bare elements a cached token takes with its scales, in the layers where that is most."""
    if not _scales_apart(dtype, cache):
        return Fraction(1)
    each = Fraction(cache.bytes_per_element.value)
    shares = [Fraction(1)]
    for kind in (g.kind for g in model.layers):
        if isinstance(kind, Latent) and dtype in DS_MLA:
            shares.append(Fraction(constants.number(dtype).value) / (int(kind.latent_rank) + int(kind.rope_dim)) / each)
        elif isinstance(kind, Full) and dtype not in DS_MLA:
            elements = int(kind.head_dim) + int(kind.value_dim or kind.head_dim)
            shares.append(Fraction(head_bytes(kind.head_dim, kind.value_dim, dtype, constants).value) / elements / each)
    return max(shares)
