"""Grouped-query attention under mixtures of the DeepSeek kind: GLM-4.5, Solar Open, dots.llm1 and the first DeepSeekMoE."""

from __future__ import annotations

from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.drafts import draft_joint, draft_layers, drafting
from gpufit.sources.mla import EXPERT_COUNTS, UNUSED, mixture, mixture_layers
from gpufit.sources.patterns import attend, pre_norms, without


def grouped_mixture(
    config: Config,
    *,
    bias: bool,
    out_bias: bool = False,
    qk_norm: str = "",
    score_correction: bool,
    router_dtype: str | None = None,
    sliding: tuple[int, ...] = (),
    window: Q | None = None,
) -> Decoder:
    """A decoder with standard attention, dense layers first and mixtures after them; layers in `sliding` keep `window` tokens."""
    d = open_decoder(config, tie_default=False)
    attend(d, full=without(d.all, sliding), sliding=sliding, window=window)
    output(d)
    d.attention(d.all, bias=bias, out_bias=out_bias, qk_norm=qk_norm)
    sparse = mixture_layers(d)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, config.count("intermediate_size", symbol="I", label="MLP width"))
    mixture(d, sparse, score_correction=score_correction, router_dtype=router_dtype)
    config.ignore(*UNUSED, *EXPERT_COUNTS)
    pre_norms(d)
    draft = draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers")
    if draft:
        with drafting(d):
            d.full(draft)
            d.attention(draft, bias=bias, out_bias=out_bias, qk_norm=qk_norm)
            mixture(d, draft, score_correction=score_correction, router_dtype=router_dtype)
            pre_norms(d, draft)
            draft_joint(d, draft)
    return d
