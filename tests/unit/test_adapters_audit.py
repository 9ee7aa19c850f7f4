"""What no config.json may do: contradict itself unseen, hide a field that shapes the cache, or end in a traceback."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufit.errors import ConfigError, GpufitError
from gpufit.model import Model
from gpufit.sources.assume import dense_model
from gpufit.sources.read import read_model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "head_dim": 32,
}  # fmt: skip
JINA = {
    "model_type": "xlm-roberta", "position_embedding_type": "rotary", "hidden_size": 1024, "intermediate_size": 4096,
    "num_attention_heads": 16, "num_hidden_layers": 24, "max_position_embeddings": 8194, "type_vocab_size": 1, "vocab_size": 250002,
    "torch_dtype": "bfloat16", "use_flash_attn": True, "lora_rank": 4,
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
    "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522, "torch_dtype": "float32",
}  # fmt: skip
NOMIC = {
    "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "gelu", "n_embd": 768, "n_head": 12,
    "n_inner": 3072, "n_layer": 12, "n_positions": 2048, "vocab_size": 250048, "type_vocab_size": 1, "mlp_fc1_bias": True,
    "mlp_fc2_bias": True, "qkv_proj_bias": True, "moe_every_n_layers": 2, "moe_top_k": 2, "num_experts": 8, "num_shared_experts": 0,
    "expert_choice_router": False, "moe_impl": "megablocks", "torch_dtype": "float32",
}  # fmt: skip
OLMO = {
    "architectures": ["OLMoForCausalLM"], "model_type": "hf_olmo", "activation_type": "swiglu", "block_type": "sequential",
    "d_model": 2048, "embedding_size": 50304, "n_heads": 16, "n_layers": 16, "mlp_ratio": 8, "mlp_hidden_size": None,
    "max_sequence_length": 2048, "vocab_size": 50280, "weight_tying": True, "layer_norm_type": "default", "torch_dtype": "float32",
}  # fmt: skip
OCR_TEXT = {
    "hidden_size": 1280, "intermediate_size": 6848, "num_hidden_layers": 12, "num_attention_heads": 10, "num_key_value_heads": 10,
    "first_k_dense_replace": 1, "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "n_group": 1, "topk_group": 1, "topk_method": "greedy", "kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False, "vocab_size": 129280, "max_position_embeddings": 8192, "lm_head": True,
    "rm_head": False,
}  # fmt: skip
OCR = OCR_TEXT | {
    "architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2", "torch_dtype": "bfloat16", "tile_tag": "2D",
    "global_view_pos": "head", "candidate_resolutions": [[1024, 1024]], "language_config": OCR_TEXT,
    "projector_config": {"input_dim": 2048, "model_type": "mlp_projector", "n_embed": 1280, "projector_type": "linear"},
    "vision_config": {
        "image_size": 1024, "mlp_ratio": 3.7362, "model_name": "deeplip_b_l", "model_type": "vision",
        "width": {
            "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024},
            "sam_vit_b": {
                "downsample_channels": [512, 1024], "global_attn_indexes": [2, 5, 8, 11], "heads": 12, "layers": 12, "width": 768,
            },
        },
    },
}  # fmt: skip
NANO = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "attention_head_dim": 128, "head_dim": 128,
    "hidden_size": 4480, "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "intermediate_size": 15680, "mamba_head_dim": 80, "mamba_num_heads": 128, "n_groups": 8, "conv_kernel": 4, "ssm_state_size": 128,
    "num_attention_heads": 40, "num_hidden_layers": 56, "num_key_value_heads": 8, "use_bias": False, "use_conv_bias": True,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 131072, "max_position_embeddings": 131072,
}  # fmt: skip
STEP3 = {
    "architectures": ["Step3TextForCausalLM"], "model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432,
    "num_attention_heads": 64, "num_attention_groups": 1, "num_hidden_layers": 61, "max_seq_len": 65536, "vocab_size": 128815,
    "moe_intermediate_size": 5120, "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048,
    "head_dim": 256, "moe_layers_enum": ",".join(map(str, range(4, 60))), "torch_dtype": "bfloat16",
}  # fmt: skip
ERNIE_VL = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_moe_vl", "hidden_size": 2560,
    "intermediate_size": 12288, "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 103424,
    "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_bias": False, "moe_k": 6,
    "moe_intermediate_size": [1536, 512], "moe_num_experts": [64, 64], "moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1],
    "moe_layer_end_index": [29, 28], "moe_layer_interval": 1, "pixel_hidden_size": 1280, "spatial_conv_size": 2,
    "temporal_conv_size": 2,
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "hidden_size": 1280, "in_channels": 3, "mlp_ratio": 4, "num_heads": 16, "patch_size": 14,
        "spatial_merge_size": 2,
    },
}  # fmt: skip


def read(config: dict[str, Any], **changed: Any) -> Model:
    return read_model({**config, **changed}, id="x/y")


def refusal(config: dict[str, Any], **changed: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(config, **changed)
    return caught.value.message


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (JINA | {"architectures": ["XLMRobertaModel"], "lora_adaptations": ["a", "b", "c", "d", "e"]}, 572_310_396),
        (BERT | {"architectures": ["HF_ColBERT"]}, 109_580_544),
        (
            BERT | {"architectures": ["JinaBertForMaskedLM"], "position_embedding_type": "alibi", "feed_forward_type": "geglu",
                    "vocab_size": 30528, "max_position_embeddings": 8192},
            137_368_320,
        ),
        (NOMIC, 475_292_928),
        (OLMO, 1_176_764_416),
        (OCR, 3_336_106_240),
        (NANO, 8_888_227_328),
        (ERNIE_VL, 29_399_294_336),
    ],
    ids=["jina-embeddings-v3", "colbertv2.0", "jina-v2-base-en", "nomic-v2-moe", "OLMo-1B", "DeepSeek-OCR", "Nano-9B-v2", "ERNIE-VL"],
)  # fmt: skip
def test_published_counts(config: dict[str, Any], published: int) -> None:
    """Families with shapes of their own count what the Hub publishes for them (ERNIE and Nano: transformers 5.24.0, meta device)."""
    assert int(read(config).total_params) == published


def test_one_key_head_for_all_queries() -> None:
    """Step 3 keeps one key and one value of 256 in each layer: 1,024 bytes at 16 bit, whatever its 64 query heads are."""
    [group] = read(STEP3).layers
    assert (int(group.kind.kv_heads), int(group.kind.head_dim), len(group.indices)) == (1, 256, 61)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changed",
    [
        {"n_layer": 4}, {"n_head": 4}, {"n_embd": 128}, {"num_kv_heads": 4}, {"attention_head_dim": 64, "head_dim": 32},
        {"num_key_value_heads": 3}, {"num_key_value_heads": 0}, {"layer_types": ["full_attention"] * 5},
        {"layer_types": ["sliding_attention"] * 6}, {"layer_types": ["linear_attention"] * 6}, {"layer_types": ["odd"] * 6},
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(changed: dict[str, Any]) -> None:
    """Two names of one number, heads that cannot be shared and layer types of other layers are named, never resolved in silence."""
    assert next(iter(changed)) in refusal(LLAMA, **changed)


def test_repetitions_that_agree_are_read() -> None:
    """The same number under an older name, and a list of the layer kinds that there are, change nothing."""
    plain = read(LLAMA)
    again = read(LLAMA, n_layer=6, n_head=8, layer_types=["full_attention"] * 6, use_sliding_window=False, max_window_layers=6)
    assert str(again.layers) == str(plain.layers)
    assert int(again.total_params) == int(plain.total_params)
    assert not again.assumptions


def test_a_window_that_the_class_does_not_read_is_said() -> None:
    """Llama's class has no window: the number in its file is an assumption of the answer; switched off it is nothing."""
    [said] = read(LLAMA, sliding_window=1024).assumptions
    assert "sliding_window is 1024" in said
    assert not read(LLAMA, sliding_window=1024, use_sliding_window=False).assumptions
    layers = read(LLAMA, sliding_window=1024, layer_types=["sliding_attention", "full_attention"] * 3).layers
    assert {g.kind.kind: g.indices for g in layers} == {"full": (1, 3, 5), "sliding": (0, 2, 4)}


@pytest.mark.parametrize(
    "changed",
    [
        {"use_mla": True}, {"use_cla": True}, {"yoco": True}, {"num_loops": 2}, {"num_meta_tokens": 128}, {"key_length": 64},
        {"qk_dim": 64}, {"span": [128] * 6}, {"topology": {"a": 1}, "spam": 1}, {"layout": {"a": 1}}, {"arch_type": "hybrid"},
        {"extra_bias": True}, {"is_encoder_decoder": True}, {"add_cross_attention": True}, {"pruned_heads": {"1": [0]}},
        {"per_layer_config": {"1": {"num_attention_heads": 4}}},
        {"pairs": [[1, 2], [3, 4]]},
        {"plan": [{"a": 1}]},
    ],
)  # fmt: skip
def test_a_field_that_may_shape_the_model_is_never_passed_over(changed: dict[str, Any]) -> None:
    """Names, values and lists that hint at another shape refuse the file by name."""
    assert next(iter(changed)) in refusal(LLAMA, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"_attn_implementation_autoset": True}, {"_flash_attn_2_enabled": True}, {"attn_softcap": 30.0}, {"mixer_rms_eps": 1e-6},
        {"encoder_no_repeat_ngram_size": 3}, {"id2label": {"0": "a"}}, {"suppress_tokens": [1, 2, 3, 4, 5, 6]}, {"use_mla": False},
        {"sliding_window": None}, {"custom_pipelines": {"text": {"impl": "x"}}}, {"rotary_dim": 32}, {"logit_scale": 0.1},
    ],
)  # fmt: skip
def test_numerics_and_bookkeeping_are_passed(changed: dict[str, Any]) -> None:
    """Fields of published files that change no byte do not refuse a file."""
    assert int(read(LLAMA, **changed).total_params) == int(read(LLAMA).total_params)


def test_both_ways_and_too_many_experts() -> None:
    """A mixture that says it is not causal, and one whose tokens visit more experts than there are, are refused."""
    assert "is_causal" in refusal(MOE, is_causal=False)
    assert "experts per token is 9" in refusal(MOE, num_experts_per_tok=9)


def test_the_dtype_is_known_or_said() -> None:
    """A dtype that no level names is an assumption; one that is unknown is refused, not taken for 16 bit."""
    absent = {k: v for k, v in LLAMA.items() if k != "torch_dtype"}
    assert any("no dtype" in said for said in read(absent).assumptions)
    assert "torch_dtype" in refusal(LLAMA, torch_dtype="abc")
    assert read(LLAMA, torch_dtype="torch.float16").dtype == "fp16"


def assumed(**changed: Any) -> Model:
    config = {**LLAMA, "model_type": "novel", "architectures": ["NovelForCausalLM"], **changed}
    config = {k: v for k, v in config.items() if v is not None}
    return dense_model(config, lambda c: read_model(c, id="x/y"), why=ConfigError("unknown family"), origin="config.json")


@pytest.mark.parametrize(
    "changed",
    [
        {"is_causal": False}, {"intermediate_size": None}, {"vocab_size": None}, {"n_inner": 4}, {"use_mla": True}, {"n_layer": 3},
        {"num_key_value_heads": 3}, {"sliding_window": 512}, {"span": [1] * 6}, {"architectures": ["NovelModel"]},
    ],
)  # fmt: skip
def test_assume_dense_is_as_strict(changed: dict[str, Any]) -> None:
    """An unknown family is sized as plain attention only where nothing denies it and nothing it needs is absent."""
    assert assumed().assumptions
    with pytest.raises(ConfigError):
        assumed(**changed)


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["abc", "", -1, 1.5, 10**30, 0, True, None, float("nan"), [], [1], ["x", None], [[1, 2], [3]], {}, {"a": 1}, [{}]]
)
FIELDS = [(config, name) for config in (LLAMA, MOE, NANO, OCR, ERNIE_VL, NOMIC, STEP3, JINA, OLMO) for name in config]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FIELDS), VALUES)
def test_no_value_ends_in_a_traceback(where: tuple[dict[str, Any], str], value: Any) -> None:
    """Whatever a field holds, a file is read or refused with a reason."""
    config, name = where
    with contextlib.suppress(GpufitError):
        assert int(read(config, **{name: value}).total_params) > 0


def test_a_text_model_that_is_only_named() -> None:
    """Ultravox files name their text model: one in the catalogue is read with that catalogue's shapes, and the answer says so."""
    named = {"model_type": "ultravox", "text_model_id": "meta-llama/Llama-3.1-8B-Instruct", "torch_dtype": "bfloat16",
             "audio_model_id": "openai/whisper-large-v3-turbo", "hidden_size": 4096, "projector_ln_mid": True}  # fmt: skip
    model = read(named)
    text = sum(int(p.elements()) for p in model.parts if p.module.startswith("language_model."))
    assert text == 8_030_261_248
    assert any("meta-llama/Llama-3.1-8B-Instruct" in said for said in model.assumptions)
