"""Scales of the KV cache that vLLM creates as parameters of attention layers when a checkpoint is quantised."""

from __future__ import annotations

from gpufit.engines.vllm.stage_parts import Stage
from gpufit.model import Model
from gpufit.quantity import BYTE, NUMBER, Q, fact

_ATTENTION = ("full", "sliding", "chunked", "cross", "shared", "sparse_full", "sparse_shared")
_LATENT = ("latent", "sparse_latent")
_UNTOLD = ("jamba", "lfm2", "lfm2_moe", "lfm2_vl", "bailing_moe", "step3_text")
"""Families whose classes do not tell their attention layers of the quantisation, so that these make no scales."""

_KV_SCALES = "vLLM 0.33.0, quantization/kv_cache.py: q, k, v and softmax scales in the activation dtype"
_CT_SCALES = "vLLM 0.33.0, compressed_tensors.py: q, k and v scales in fp32, their zero points in the activation dtype"


def cache_scale_bytes(model: Model, stage: Stage) -> list[Q]:
    """Bytes of the cache scales of all attention layers on a stage: none, or one term."""
    each, kinds = _each(model)
    if each is None or model.family in _UNTOLD:
        return []
    layers = {i for g in model.layers if g.kind.kind in kinds for i in g.indices if stage.whole or i in stage.layers}
    if not layers:
        return []
    count = fact(
        len(layers), NUMBER, symbol="L_a", name="attention layers with cache scales", origin=f"{model.slug}: kinds of its layers"
    )
    return [(count * each).as_step("W_k", "scales of the KV cache")]


def _each(model: Model) -> tuple[Q | None, tuple[str, ...]]:
    """Bytes of one layer's scales, and the kinds of layers that have them.

    Latent attention has them in modelopt checkpoints of one format; the mixed kind makes them only where the cache is quantised.
    """
    known = model.published
    match known.method:
        case "fp8":
            return _four(), _ATTENTION
        case "modelopt_mixed":
            return (_four() if known.kv_cache_dtype else None), _ATTENTION
        case "modelopt" | "modelopt_fp4":
            return _four(), _ATTENTION + _LATENT
        case "compressed-tensors":
            return fact(3 * 4 + 3 * 2, BYTE, symbol="z_k", name="cache scales of one layer", origin=_CT_SCALES), _ATTENTION
        case _:
            return None, ()


def _four() -> Q:
    return fact(4 * 2, BYTE, symbol="z_k", name="cache scales of one layer", origin=_KV_SCALES)
