"""openPangu Ultra MoE: DeepSeek's latent attention and mixture, with norms before and after each branch."""

from __future__ import annotations

from collections.abc import Iterable

from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.drafts import draft_layers, drafting
from gpufit.sources.mla import deepseek

ARCHITECTURES = ("PanguUltraMoEForCausalLM",)
RENAMED = {
    "num_dense_layers": "first_k_dense_replace",
    "num_routed_experts": "n_routed_experts",
    "attention_kv_lora_dim": "kv_lora_rank",
    "attention_q_lora_dim": "q_lora_rank",
    "attention_qk_dim": "qk_nope_head_dim",
    "attention_qk_rope_dim": "qk_rope_head_dim",
    "attention_v_dim": "v_head_dim",
}
"""Names of the first files to those that the class reads in vLLM 0.33.0 (openpangu.py)."""


def read(config: Config) -> Decoder:
    """The published class is the repository's own and its configs are complete: only switches have defaults."""
    config.ignore(*RENAMED)
    config.data = {**{RENAMED[name]: value for name, value in config.data.items() if name in RENAMED}, **config.data}
    d = deepseek(config, score_correction=config.flag("router_enable_expert_bias"))
    if config.flag("sandwich_norm"):
        sandwich(d, d.all)
        with drafting(d):
            sandwich(d, draft_layers(d, "num_nextn_predict_layers", "num_mtp_layers"))
    return d


def sandwich(d: Decoder, layers: Iterable[int]) -> None:
    """The norms around the MLP, beside those around attention."""
    at = tuple(layers)
    if at:
        d.norm("pre-MLP norm", "layers.{i}.pre_mlp_layernorm", layers=at)
        d.norm("post-MLP norm", "layers.{i}.post_mlp_layernorm", layers=at)
