"""What vLLM refuses before it plans a cache: degrees that do not divide, features that do not meet."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.formats import FP8, KNOWN, NVFP4
from gpufit.engines.vllm.settings import VllmSettings
from gpufit.engines.vllm.traits import Traits
from gpufit.layers.compressed import SlidingLatent
from gpufit.layers.full import Full
from gpufit.layers.none import Shared
from gpufit.layers.sliding import Sliding
from gpufit.model import TOWERS, Model, Role, Shard
from gpufit.placement import stages, tensor_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One reason why vLLM would not start so; `option` is the option that would have to change, `hint` what would work."""

    reason: str
    option: str = ""
    hint: str = ""


def refusals(model: Model, settings: VllmSettings, constants: Constants, traits: Traits) -> tuple[Refused, ...]:
    """Every refusal that the model and the settings alone tell; backends add theirs."""
    found = [
        *_tensor(model, settings, constants, traits),
        *_pipeline(model, settings, constants),
        *_context(model, settings, traits),
        *_cache(model, settings, traits),
        *_speculation(model, settings, constants),
    ]
    if settings.hybrid_manager is False and any(isinstance(g.kind, SlidingLatent) for g in model.layers):
        found.append(Refused(reason="DeepSeek-V4 needs the hybrid KV cache manager", option="--disable-hybrid-kv-cache-manager"))
    if traits.stateful and settings.prefix_caching is not False and settings.chunked_prefill is False:
        found.append(Refused(reason="prefix caching beside state layers needs chunked prefill", option="--enable-chunked-prefill"))
    return tuple(found)


def batch_refusals(tokens: int, sequences: int, context: int, *, chunked: bool) -> tuple[Refused, ...]:
    """Batches that the scheduler refuses (config/scheduler.py verify_max_model_len): each sequence needs a token, a whole prompt all."""
    option = "--max-num-batched-tokens"
    found = []
    if tokens < sequences:
        found.append(Refused(reason=f"{tokens:,} tokens in one batch are fewer than its {sequences:,} sequences", option=option))
    if not chunked and tokens < context:
        reason = f"{tokens:,} tokens in one batch are fewer than the {context:,} of a sequence without chunked prefill"
        found.append(Refused(reason=reason, option=option))
    return tuple(found)


def _tensor(model: Model, settings: VllmSettings, constants: Constants, traits: Traits) -> list[Refused]:
    tp = int(settings.tp)
    option = "--tensor-parallel-size"
    heads = traits.attention_heads
    if heads is not None and heads % tp:
        return [Refused(reason=f"{heads} attention heads do not divide by {tp}", option=option)]
    reason = tensor_reason(model, tp)
    if reason:
        return [Refused(reason=reason, option=option)]
    if constants.listed("whole_kv_heads_families", model.family) and model.kv_heads is not None and tp > int(model.kv_heads):
        return [
            Refused(
                reason=f"this family keeps whole KV heads: {int(model.kv_heads)} of them are fewer than {tp} GPUs", option=option
            )
        ]
    return _shards(model, settings, tp)


def _shards(model: Model, settings: VllmSettings, tp: int) -> list[Refused]:
    """Matrices whose split side is no multiple of the degree, experts apart: those are padded (distributed/utils.py divide)."""
    for part in model.parts:
        if part.role is Role.ROUTED_EXPERTS or (settings.language_model_only and part.role in TOWERS):
            continue
        side = part.rows if part.shard is Shard.COLUMN else part.columns if part.shard is Shard.ROW else None
        if side is not None and int(side) % tp:
            reason = f"{part.name} is {int(side)} wide, which does not divide by {tp}"
            return [Refused(reason=reason, option="--tensor-parallel-size")]
    return []


def gguf_refusal(constants: Constants) -> Refused:
    """Why GGUF weights are not sized for vLLM: versions from 0.24 do not load them, and of older ones the layout is not known here."""
    if constants.listed("unserved_methods", "gguf"):
        return Refused(reason=f"vLLM {constants.version} does not load GGUF files (0.23 was the last to list the format)")
    return Refused(reason=f"how vLLM {constants.version} lays out GGUF weights is not known here: the default engine sizes them")


def checkpoint_refusals(model: Model, constants: Constants) -> tuple[Refused, ...]:
    """Why the published checkpoint's own quantisation is not served, where its weights are to be used as they are."""
    method = model.published.method
    if method and constants.listed("unserved_methods", method):
        return (Refused(reason=f"vLLM {constants.version} does not load {method} checkpoints", option="--quantization"),)
    if method and constants.listed("deprecated_methods", method):
        reason = f"{method} is deprecated: it starts only with --allow-deprecated-quantization"
        return (Refused(reason=reason, option="--quantization", hint="--allow-deprecated-quantization"),)
    return ()


def _pipeline(model: Model, settings: VllmSettings, constants: Constants) -> list[Refused]:
    pp = int(settings.pp)
    if pp == 1:
        return []
    option = "--pipeline-parallel-size"
    if constants.listed("no_pipeline_architectures", model.architecture):
        return [Refused(reason=f"{model.architecture} does not run in pipeline stages", option=option)]
    if pp > int(model.num_layers):
        return [Refused(reason=f"{int(model.num_layers)} layers are fewer than {pp} stages", option=option)]
    ranges = stages(int(model.num_layers), pp)
    for group in model.layers:
        if isinstance(group.kind, Shared):
            for layer in group.indices:
                stage = next(r for r in ranges if layer in r)
                if group.kind.target not in stage:
                    return [
                        Refused(
                            reason=f"layer {layer} shares the cache of layer {group.kind.target}, which is on another stage",
                            option=option,
                        )
                    ]
    return []


def _context(model: Model, settings: VllmSettings, traits: Traits) -> list[Refused]:
    if settings.decode_context_parallel is None or int(settings.decode_context_parallel) == 1:
        return []
    dcp, tp = int(settings.decode_context_parallel), int(settings.tp)
    option = "--decode-context-parallel-size"
    if tp % dcp:
        return [Refused(reason=f"tensor parallel degree {tp} does not divide by {dcp}", option=option)]
    if any(isinstance(g.kind, (Sliding, SlidingLatent)) for g in model.layers):
        return [Refused(reason="sliding-window caches are not split over context-parallel ranks", option=option, hint="1")]
    if traits.latent or model.kv_heads is None or model.attention_heads is None:
        return []
    kv, heads = int(model.kv_heads), int(model.attention_heads)
    if tp <= kv:
        return [Refused(reason=f"{kv} KV heads on {tp} GPUs leave no copies to split: tp must be greater", option=option, hint="1")]
    if dcp > tp // kv:
        return [
            Refused(
                reason=f"{dcp} is more than the {tp // kv} copies of each KV head (tp {tp}, {kv} KV heads)",
                option=option,
                hint=str(tp // kv),
            )
        ]
    if heads // kv % dcp:
        return [Refused(reason=f"{heads // kv} query heads per KV head do not divide by {dcp}", option=option)]
    return []


def _cache(model: Model, settings: VllmSettings, traits: Traits) -> list[Refused]:
    dtype = settings.kv_cache_dtype
    option = "--kv-cache-dtype"
    if dtype is None or dtype in ("bf16", "fp16"):
        return []
    if dtype not in KNOWN:
        return [Refused(reason=f"{dtype} is no cache dtype of vLLM", option=option, hint=", ".join(KNOWN))]
    if dtype in NVFP4 and (traits.latent or any(isinstance(g.kind, SlidingLatent) for g in model.layers)):
        return [Refused(reason=f"latent attention does not take a {dtype} cache", option=option, hint="fp8, auto")]
    if dtype == FP8[-1] and _scaled_checkpoint(model) and any(isinstance(g.kind, Full) for g in model.layers):
        return [Refused(reason="fp8 checkpoints do not take an fp8_e5m2 cache", option=option, hint="fp8")]
    return []


def _scaled_checkpoint(model: Model) -> bool:
    """Whether the checkpoint's quantiser brings cache scales: fp8 and modelopt always, other kinds where they ask for a quantised cache."""
    known = model.published
    if not known.signed:
        return False
    asks = known.kv_cache_dtype is not None and known.method in ("compressed-tensors", "modelopt_mixed", "quark")
    return known.method in ("fp8", "modelopt") or asks


def _speculation(model: Model, settings: VllmSettings, constants: Constants) -> list[Refused]:
    method = settings.speculative_method
    option = "--speculative-config"
    if method is None or method == "ngram":
        return []
    if method != "mtp":
        return [
            Refused(
                reason=f"the layers of a {method} draft are another model's, which is not known here",
                option=option,
                hint="mtp, ngram",
            )
        ]
    if not model.draft_layers or constants.listed("no_mtp_families", model.family):
        return [Refused(reason="vLLM has no draft layers for this model", option=option)]
    return []
