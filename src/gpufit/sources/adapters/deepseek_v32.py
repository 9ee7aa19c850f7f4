"""DeepSeek-V3.2: DeepSeek-V3 with a lightning indexer in every layer."""

from __future__ import annotations

from gpufit.sources.adapters.deepseek_v3 import DEFAULTS as V3
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.mla import deepseek
from gpufit.sources.patterns import class_defaults
from gpufit.sources.stated import with_defaults

ARCHITECTURES = ("DeepseekV32ForCausalLM",)
DEFAULTS = V3 | class_defaults(
    "DeepseekV32Config (transformers 5.24.0)", max_position_embeddings=163840, index_topk=2048, index_head_dim=128, index_n_heads=64
)


@with_defaults(DEFAULTS)
def read(config: Config) -> Decoder:
    """Latent attention over the tokens that each layer's indexer selects; all tokens stay in the cache."""
    return deepseek(config, score_correction=config.text("topk_method") in (None, "noaux_tc"))
