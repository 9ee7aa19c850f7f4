"""DeepSeek-V2 and V2-Lite: the first models with latent attention."""

from __future__ import annotations

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.grouped_moe import grouped_mixture
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("DeepseekV2ForCausalLM",)
DEFAULTS = class_defaults(
    "DeepseekV2Config (transformers 5.24.0)",
    vocab_size=102400,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    intermediate_size=11008,
    moe_intermediate_size=1407,
    n_shared_experts=2,
    n_routed_experts=64,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    first_k_dense_replace=0,
    max_position_embeddings=2048,
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """As DeepSeek-V3 without a score correction, unless `topk_method` asks for one.

    The text models of DeepSeek-VL2-Tiny and DeepSeek-OCR have no latent: `use_mla` is false, or both key widths are 0.
    """
    widths = [config.raw(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if not config.flag("use_mla", default=True) or widths == [0, 0]:
        config.ignore("kv_lora_rank", "q_lora_rank", "v_head_dim", "rm_head", "lm_head")
        bias = config.flag("attention_bias")
        return grouped_mixture(config, bias=bias, out_bias=bias, score_correction=False)
    return deepseek(config, score_correction=config.text("topk_method") == "noaux_tc")
