"""MiMo 7B: Qwen2's shape with multi-token-prediction layers beside it."""

from __future__ import annotations

from gpufit.model import Role, Shard
from gpufit.sources.adapters.qwen2 import FIELDS, late_windows
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import PRE_NORMS, basics, llama_shape, width
from gpufit.sources.drafts import draft_layers, drafting

CLASS = "MiMoConfig, a Qwen2Config (transformers 5.24.0)"


def read(config: Config) -> Decoder:
    """A draft layer joins embedding and state, then is one more decoder layer with a norm of its own behind it."""
    d = basics(config, CLASS, tie=False, **FIELDS)
    late_windows(d)
    bias = config.flag("attention_bias", default=True)
    llama_shape(d, bias=bias)
    extra = draft_layers(d, "num_nextn_predict_layers")
    if not extra:
        return d
    with drafting(d):
        at = "mtp_layers.{i}"
        d.full(extra)
        d.part("joining projection", Role.DRAFT, f"{at}.input_proj", d.hidden, 2 * d.hidden, layers=extra, shard=Shard.REPLICATED)
        d.attention(extra, bias=bias, module=f"{at}.self_attn")
        d.mlp(extra, width(d), module=f"{at}.mlp")
        for name, path in (
            *PRE_NORMS,
            ("embedding norm", "token_layernorm"),
            ("state norm", "hidden_layernorm"),
            ("draft norm", "final_layernorm"),
        ):
            d.norm(name, f"{at}.{path}", layers=extra)
    return d
