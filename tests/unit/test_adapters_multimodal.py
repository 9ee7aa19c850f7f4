"""Multimodal and audio families: published parameter counts, which layers keep what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gpufit.errors import ConfigError
from gpufit.formats.cache import BF16
from gpufit.layers.cross import Cross
from gpufit.layers.none import Shared
from gpufit.model import TOWERS, Model, Role
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sources.read import read_model

SIGLIP = {
    "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
PIXTRAL = {"head_dim": 64, "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral", "num_hidden_layers": 24}
GEMMA3_4B: dict[str, Any] = {
    "model_type": "gemma3", "vision_config": SIGLIP,
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024
    },
}  # fmt: skip
GEMMA3N: dict[str, Any] = {
    "model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}, "audio_config": {"model_type": "gemma3n_audio"},
    "vision_config": {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc"},
}  # fmt: skip
GEMMA4_E2B: dict[str, Any] = {
    "model_type": "gemma4", "vision_config": {"model_type": "gemma4_vision"}, "audio_config": {"model_type": "gemma4_audio"},
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 1, "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    },
}  # fmt: skip
MISTRAL_SMALL: dict[str, Any] = {
    "model_type": "mistral3", "spatial_merge_size": 2, "vision_config": PIXTRAL | {"patch_size": 14, "image_size": 1540},
    "text_config": {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
        "vocab_size": 131072, "sliding_window": None, "max_position_embeddings": 131072,
    },
}  # fmt: skip
MLLAMA_11B: dict[str, Any] = {
    "model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}, "vision_config": {"image_size": 560}
}  # fmt: skip
LLAVA: dict[str, Any] = {
    "model_type": "llava", "vision_feature_layer": -2, "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {
        "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model", "num_hidden_layers": 24,
        "patch_size": 14,
    },
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
    "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128, "vocab_size": 51866,
}  # fmt: skip
QWEN2_5_VL: dict[str, Any] = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "sliding_window": 32768, "use_sliding_window": False,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
}  # fmt: skip
QWEN3_VL: dict[str, Any] = {
    "model_type": "qwen3_vl", "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8,
    },
    "vision_config": {
        "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17]
    },
}  # fmt: skip
PALIGEMMA: dict[str, Any] = {
    "model_type": "paligemma", "vision_config": SIGLIP | {"image_size": 224},
    "text_config": {
        "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18,
        "num_key_value_heads": 1, "vocab_size": 257216, "use_bidirectional_attention": True,
    },
}  # fmt: skip
SMOLVLM: dict[str, Any] = {
    "model_type": "smolvlm", "scale_factor": 4,
    "text_config": {
        "model_type": "llama", "hidden_size": 960, "intermediate_size": 2560, "num_attention_heads": 15, "num_hidden_layers": 32,
        "num_key_value_heads": 5, "head_dim": 64, "vocab_size": 49280, "use_resampler": False,
    },
    "vision_config": {"hidden_size": 768, "image_size": 512, "patch_size": 16},
}  # fmt: skip
MINICPMV: dict[str, Any] = {
    "model_type": "minicpmv", "architectures": ["MiniCPMV"], "version": "2.5", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "query_num": 96,
    "tie_word_embeddings": False, "vision_config": SIGLIP | {"image_size": 980, "model_type": "idefics2"},
}  # fmt: skip
PHI3_V: dict[str, Any] = {
    "model_type": "phi3_v", "architectures": ["Phi3VForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 32064, "tie_word_embeddings": False,
    "embd_layer": {"projection_cls": "mlp"}, "img_processor": {"model_name": "openai/clip-vit-large-patch14-336"},
}  # fmt: skip
QWEN_VL: dict[str, Any] = {
    "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128, "num_attention_heads": 32,
    "num_hidden_layers": 32, "vocab_size": 151936, "tie_word_embeddings": False,
    "visual": {"layers": 48, "mlp_ratio": 4.9231, "output_dim": 4096, "patch_size": 14, "width": 1664},
}  # fmt: skip
NV_EMBED: dict[str, Any] = {
    "model_type": "nvembed", "latent_attention_config": {"model_type": "latent_attention"},
    "text_config": {
        "model_type": "bidir_mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096,
    },
}  # fmt: skip
MOLMO: dict[str, Any] = {
    "model_type": "molmo", "hidden_size": 3584, "intermediate_size": 37888, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "embedding_size": 152064, "qkv_bias": True, "layer_norm_type": "rms",
}  # fmt: skip


def read(config: dict[str, Any]) -> Model:
    return read_model(config, id="test")


def one(value: int) -> Q:
    return fact(value, NUMBER, symbol="x", name="x", origin="test")


def kinds(model: Model) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in model.layers:
        found[group.kind.kind] = found.get(group.kind.kind, 0) + len(group.indices)
    return found


@pytest.mark.parametrize(
    ("config", "published"),
    [
        pytest.param(GEMMA3_4B, 4_300_079_472, id="gemma-3-4b-it"),
        # The file holds 31,461,120 more: key and value projections of the 15 sharing layers (7,849,978,192 in all).
        pytest.param(GEMMA3N, 7_849_978_192 - 15 * (2 * 512 * 2048 + 256), id="gemma-3n-E4B-it"),
        pytest.param(GEMMA4_E2B, 5_104_297_504, id="gemma-4-E2B-it"),
        pytest.param(MISTRAL_SMALL, 24_011_361_280, id="Mistral-Small-3.1-24B"),
        pytest.param(MLLAMA_11B, 10_670_220_835, id="Llama-3.2-11B-Vision"),
        pytest.param(LLAVA, 7_063_427_072, id="llava-1.5-7b-hf"),
        pytest.param(WHISPER, 1_543_490_560, id="whisper-large-v3"),
        pytest.param(QWEN2_5_VL, 8_292_166_656, id="Qwen2.5-VL-7B-Instruct"),
        pytest.param(QWEN3_VL, 2_127_532_032, id="Qwen3-VL-2B-Instruct"),
        pytest.param(PALIGEMMA, 2_923_466_480, id="paligemma-3b-pt-224"),
        pytest.param(SMOLVLM, 507_482_304, id="SmolVLM2-500M-Video-Instruct"),
        pytest.param(MINICPMV, 34_148_369_344 // 4, id="MiniCPM-Llama3-V-2_5, its fp32 index"),
        pytest.param(PHI3_V, 4_146_621_440, id="Phi-3.5-vision-instruct"),
        pytest.param(QWEN_VL, 9_656_935_168, id="Qwen-VL-Chat"),
        pytest.param(NV_EMBED, 15_702_032_384 // 2, id="NV-Embed-v2, its fp16 index"),
        pytest.param(MOLMO, 8_021_025_280, id="Molmo-7B-D-0924"),
    ],
)
def test_published_counts(config: dict[str, Any], published: int) -> None:
    """Towers, projectors and text model together have the published number of parameters, to the last one."""
    assert int(read(config).total_params) == published


def test_absent_nested_fields_are_class_defaults() -> None:
    """A nested config is published as its difference from the class: what it leaves out is the class's value, and says so."""
    model = read(GEMMA3_4B)
    assert model.attention_heads is not None
    assert int(model.attention_heads) == 8
    assert "Gemma3TextConfig" in model.attention_heads.origin
    assert kinds(model) == {"sliding": 29, "full": 5}


def test_null_is_not_absent() -> None:
    """Mistral's absent window is the class's 4,096 tokens; a null one is full attention."""
    text = {k: v for k, v in MISTRAL_SMALL["text_config"].items() if k != "sliding_window"}
    assert kinds(read(MISTRAL_SMALL)) == {"full": 40}
    assert kinds(read(MISTRAL_SMALL | {"text_config": text})) == {"sliding": 40}


def test_untied_heads_are_stated() -> None:
    """Mistral Small's file says nothing of its head: it is counted apart, as published, and the answer says so."""
    model = read(MISTRAL_SMALL)
    assert any("output head" in sentence for sentence in model.assumptions)
    tied = read(MISTRAL_SMALL | {"tie_word_embeddings": True})
    assert int(model.total_params) - int(tied.total_params) == 131072 * 5120
    assert not any("output head" in sentence for sentence in tied.assumptions)


def test_cross_attention_is_fixed() -> None:
    """Whisper large keeps 1,500 encoder positions in each of 32 layers: 245,760,000 B at 16 bit, whatever the text's length."""
    model = read(WHISPER)
    cross = next(g for g in model.layers if isinstance(g.kind, Cross))
    for context in (1, 448):
        tokens = fact(context, TOKEN_PER_SEQUENCE, symbol="n", name="n", origin="test")
        assert len(cross.indices) * int(cross.kind.sequence_bytes(tokens, one(1), BF16) or 0) == 1500 * 32 * 2 * 1280 * 2
    assert cross.kind.bytes_per_token(one(1), BF16) is None
    assert kinds(model) == {"full": 32, "cross": 32}


def test_image_tokens_of_cross_layers() -> None:
    """Llama 3.2 Vision keeps four tiles of 1,601 tokens in its cross layers and the text in the others, and states the one image."""
    model = read(MLLAMA_11B)
    cross = next(g for g in model.layers if isinstance(g.kind, Cross))
    assert isinstance(cross.kind, Cross)
    assert int(cross.kind.encoder_tokens) == 4 * 1601
    assert cross.indices == (3, 8, 13, 18, 23, 28, 33, 38)
    assert kinds(model) == {"full": 32, "cross": 8}
    assert any("one image" in sentence for sentence in model.assumptions)


def test_sharing_layers_name_their_target() -> None:
    """Gemma 4 E2B: 15 of 35 layers own a cache; the rest read the last earlier layer of their kind, 13 sliding and 14 full."""
    model = read(GEMMA4_E2B)
    assert kinds(model) == {"sliding": 12, "full": 3, "shared": 20}
    targets = {g.kind.target: len(g.indices) for g in model.layers if isinstance(g.kind, Shared)}
    assert targets == {13: 16, 14: 4}


def test_sharing_without_a_source_is_refused() -> None:
    """A Gemma whose full layers would all share has no full cache to share: refused with the field."""
    text = GEMMA4_E2B["text_config"] | {"num_kv_shared_layers": 31}
    with pytest.raises(ConfigError, match="num_kv_shared_layers"):
        read(GEMMA4_E2B | {"text_config": text})


def test_full_layers_have_their_own_heads() -> None:
    """Gemma 4's full layers have global_head_dim and, where values reuse keys, their own KV heads, by either way of writing it."""
    text = {
        "model_type": "gemma4_text",
        "hidden_size": 2816,
        "attention_k_eq_v": True,
        "num_key_value_heads": 8,
        "num_hidden_layers": 6,
    }
    old = read({"model_type": "gemma4", "text_config": text | {"num_global_key_value_heads": 2, "global_head_dim": 512}})
    new = read(
        {"model_type": "gemma4", "text_config": text | {"per_layer_config": {"05": {"head_dim": 512, "num_key_value_heads": 2}}}}
    )
    for model in (old, new):
        full = next(g.kind for g in model.layers if g.kind.kind == "full")
        assert int(full.bytes_per_token(one(1), BF16) or 0) == 2 * 2 * 512 * 2
    assert int(old.total_params) == int(new.total_params)


def test_flat_and_nested_files_agree() -> None:
    """Qwen2.5-VL wrote its text fields at the top level, later ones into text_config: the model is the same."""
    outer = {"model_type", "vision_config"}
    text = {k: v for k, v in QWEN2_5_VL.items() if k not in outer}
    nested = {k: QWEN2_5_VL[k] for k in outer} | {"text_config": text, "tie_word_embeddings": False}
    assert int(read(nested).total_params) == int(read(QWEN2_5_VL).total_params)


def test_towers_have_roles() -> None:
    """Qwen3-VL's tower and its four mergers are counted apart from the text: 406,957,056 of the parameters."""
    model = read(QWEN3_VL)
    assert sum(int(p.elements()) for p in model.parts if p.role in TOWERS) == 406_957_056 == int(model.vision_params or 0)
    assert sum(int(p.elements()) for p in model.parts if p.role is Role.HEAD) == 0


def test_embedders_keep_no_cache() -> None:
    """NV-Embed attends in both directions: no layer keeps anything, and the answer says why."""
    model = read(NV_EMBED)
    assert model.layers == ()
    assert any("no KV cache" in note for note in model.notes)


def test_prefix_models_keep_a_cache() -> None:
    """PaliGemma's text config may say that it attends in both directions; it does so over the prompt only, and keeps a cache."""
    assert kinds(read(PALIGEMMA)) == {"full": 18}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        pytest.param(
            {"model_type": "ultravox", "text_model_id": "somebody/Llama-3.1-8B-Tuned"},
            "somebody/Llama-3.1-8B-Tuned",
            id="elsewhere",
        ),
        pytest.param(PHI3_V | {"img_processor": {"model_name": "other"}}, "other", id="tower by name"),
        pytest.param(MINICPMV | {"version": "9.9"}, "9.9", id="version"),
        pytest.param(LLAVA | {"vision_config": {"model_type": "other"}}, "other", id="tower by type"),
        pytest.param(
            QWEN3_VL | {"text_config": QWEN3_VL["text_config"] | {"attn_window_ratio": 2}}, "attn_window_ratio", id="field"
        ),
    ],
)
def test_refusals_name_what_is_not_understood(config: dict[str, Any], named: str) -> None:
    """A text model in another repository, an unknown tower, version or cache field: refused by name, never guessed."""
    with pytest.raises(ConfigError) as refused:
        read(config)
    assert named in refused.value.message + (refused.value.hint or "")
