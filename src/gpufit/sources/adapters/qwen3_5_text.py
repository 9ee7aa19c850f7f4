"""The text models of Qwen3.5, 3.6 and 3.8: Qwen3-Next's mixers, with a dense MLP or with experts, and a state kept at fp32."""

from __future__ import annotations

from gpufit.sources.adapters.qwen3_next import MIXER, close_draft, dense_mlp, experts, mixers, open_draft, open_hybrid
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.states import class_defaults, recurrent_bytes, say_defaults

MODEL_TYPES = ("qwen3_5_text", "qwen3_5_moe_text")

DENSE = MIXER | {
    "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
SPARSE = MIXER | {
    "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """The text model as published alone."""
    return read_text(config)


def read_text(config: Config, *, tie_from: Config | None = None, prefix: str = "model.", sparse: bool | None = None) -> Decoder:
    """The text model, below `prefix`; `sparse` says which class reads it where `model_type` does not.

    `mamba_ssm_dtype` is the dtype of its recurrent state, else it has the model's own. Where the config counts draft layers
    (`mtp_num_hidden_layers`) they are layers of gated attention with the model's own MLP or experts.
    """
    if sparse is None:
        sparse = config.text("model_type") == "qwen3_5_moe_text"
    class_defaults(config, f"Qwen3_5{'Moe' if sparse else ''}TextConfig (transformers 5.24.0)", SPARSE if sparse else DENSE)
    d, types = open_hybrid(config, tie_from=tie_from, prefix=prefix)
    mixers(d, types, fused=False, state=recurrent_bytes(config, "mamba_ssm_dtype"))
    feed_forward = experts if sparse else dense_mlp
    feed_forward(d, d.all)
    if config.has("mtp_num_hidden_layers"):
        draft = open_draft(d, "mtp_num_hidden_layers")
        feed_forward(draft, draft.all)
        close_draft(d, draft)
    say_defaults(d)
    return d
