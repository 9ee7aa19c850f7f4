"""Readers of mixtures, latent and sparse attention: published counts and hand-checked shapes from small configs."""

from __future__ import annotations

from typing import Any

import pytest

from gpufit.errors import ConfigError
from gpufit.formats.cache import BF16, FP8
from gpufit.layers.compressed import Compressed
from gpufit.model import Model, Role
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, fact
from gpufit.sources.read import read_model

ONE = fact(1, NUMBER, symbol="tp", name="GPUs", origin="test")
EIGHT = fact(8, NUMBER, symbol="tp", name="GPUs", origin="test")

MIXTRAL = {
    "model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32, "vocab_size": 201088, "hidden_size": 2880,
    "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
    "num_experts_per_tok": 4, "attention_bias": True,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    "intermediate_size": 6144,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "first_k_dense_replace": 3, "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
}  # fmt: skip
V2_LITE = {
    "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 27, "num_attention_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64, "num_experts_per_tok": 6,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "first_k_dense_replace": 1,
}  # fmt: skip
V4_FLASH = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "head_dim": 512,
    "vocab_size": 129280, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "num_hash_layers": 3, "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "index_head_dim": 128, "index_n_heads": 64,
    "sliding_window": 128, "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0], "num_nextn_predict_layers": 1, "hc_mult": 4,
}  # fmt: skip
SCOUT_TEXT = {
    "model_type": "llama4_text", "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16,
    "attention_chunk_size": 8192, "no_rope_layers": [],
}  # fmt: skip


GLM_5 = {"model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64}
MIMO_V2 = {"model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64}
LONGCAT = {"model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64}
MINIMAX_M3 = {"model_type": "minimax_m3", "hidden_size": 6144, "num_hidden_layers": 3, "num_attention_heads": 64}
MINIMAX_M2 = {"model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48}


def read(config: dict[str, Any], **changes: Any) -> Model:
    return read_model({**config, **changes}, id="test")


def layers(model: Model) -> dict[str, int]:
    """How many layers stand in groups of each kind."""
    found: dict[str, int] = {}
    for group in model.layers:
        found[group.kind.kind] = found.get(group.kind.kind, 0) + len(group.indices)
    return found


def token_bytes(model: Model, tp: Q = ONE, cache: Any = BF16) -> int:
    """Bytes of one token in all layers."""
    return sum(len(g.indices) * int(g.kind.bytes_per_token(tp, cache) or 0) for g in model.layers)


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (MIXTRAL, 46_702_792_704),
        (GPT_OSS, 20_914_757_184),
        (GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128}, 116_829_156_672),
        (QWEN3, 30_532_122_624),
        (DEEPSEEK_V3, 671_026_404_352),
        (V2_LITE, 15_706_484_224),
        (SCOUT_TEXT, 107_769_861_120),
        (V4_FLASH, 284_332_230_231),
    ],
    ids=["mixtral-8x7b", "gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b", "deepseek-v3", "v2-lite", "scout-text", "v4-flash"],
)
def test_published_parameter_counts(config: dict[str, Any], total: int) -> None:
    """The parts of a mixture add up to its published number of parameters, to the last one."""
    assert int(read(config).total_params) == total


def test_active_parameters_follow_the_routed_share() -> None:
    """Qwen3-30B-A3B uses 8 of 128 experts for a token and all of the rest: 3,353,032,704 parameters."""
    assert int(read(QWEN3).active_params or 0) == 3_353_032_704


def test_gpt_oss_layers_alternate_from_a_window() -> None:
    """Without `layer_types` gpt-oss begins with a window of 128 and every second layer is full; sinks keep no cache."""
    model = read(GPT_OSS)
    assert layers(model) == {"full": 12, "sliding": 12}
    assert next(g for g in model.layers if g.kind.kind == "sliding").indices[:2] == (0, 2)
    assert token_bytes(model) == 24 * 2 * 8 * 64 * 2


def test_latent_cache_is_not_divided() -> None:
    """DeepSeek-V3 keeps (512 + 64) * 2 bytes in each of 61 layers, on one GPU as on eight."""
    model = read(DEEPSEEK_V3)
    assert token_bytes(model) == token_bytes(model, EIGHT) == 70_272


def test_null_query_rank_differs_from_an_absent_one() -> None:
    """A null `q_lora_rank` means uncompressed queries; an absent one is the class default of 1536."""
    null = {p.name for p in read(V2_LITE).parts}
    absent = {p.name for p in read({k: v for k, v in V2_LITE.items() if k != "q_lora_rank"}).parts}
    assert "q_proj" in null
    assert "q_a_proj" not in null
    assert "q_a_proj" in absent


def test_draft_layers_stay_out_of_the_counts() -> None:
    """A multi-token-prediction layer goes to the draft: a mixture layer, two norms, a joining projection and a last norm."""
    model = read(DEEPSEEK_V3)
    assert all(i < 61 for g in model.layers for i in g.indices)
    assert [g.indices for g in model.draft_layers] == [(61,)]
    joining = next(p for p in model.draft_parts if p.role is Role.DRAFT)
    assert (int(joining.rows), int(joining.columns or 0)) == (7168, 14336)
    assert not read(DEEPSEEK_V3, num_nextn_predict_layers=0).draft_parts


def test_indexers_add_fp8_keys_with_scales() -> None:
    """DeepSeek-V3.2 adds 128 + 4 bytes a token and layer whatever the cache dtype: 61 * (1152 + 132) = 78,324 at 16 bit."""
    model = read(DEEPSEEK_V3, model_type="deepseek_v32", index_topk=2048, index_head_dim=128, index_n_heads=64)
    assert int(model.total_params) == 671_877_929_216
    assert token_bytes(model) == 78_324
    assert token_bytes(model, cache=FP8) == 61 * (576 + 132)


def test_shared_selections_own_no_index_keys() -> None:
    """In GLM-5.2 every fourth layer after the third owns an indexer: 21 of 78 add index keys."""
    model = read(GLM_5, index_topk=2048, index_topk_freq=4, index_skip_topk_offset=3, num_nextn_predict_layers=1)
    assert int(model.total_params) == 743_377_000_704
    assert token_bytes(model) == 78 * 1152 + 21 * 132
    assert int(read(GLM_5).total_params) == 743_911_199_232


def test_compressed_layers_keep_window_entries_and_state() -> None:
    """DeepSeek-V4-Flash: 43 windows of 128, entries for 4 tokens in 21 layers and for 128 in 20, states of 8 and 128 tokens."""
    model = read(V4_FLASH)
    assert layers(model) == {"sliding_latent": 43, "compressed": 41}
    context = fact(32768, TOKEN_PER_SEQUENCE, symbol="n", name="context", origin="test")
    by_ratio = {int(g.kind.ratio): g.kind for g in model.layers if isinstance(g.kind, Compressed)}
    four, many = by_ratio[4], by_ratio[128]
    assert int(four.fixed_bytes(ONE, BF16) or 0) == 8 * (2048 + 512) * 4
    assert int(many.fixed_bytes(ONE, BF16) or 0) == 128 * 1024 * 4
    assert int(four.sequence_bytes(context, ONE, BF16) or 0) == 32768 // 4 * (1024 + 132) + 81_920
    assert int(many.sequence_bytes(context, ONE, BF16) or 0) == 32768 // 128 * 1024 + 524_288
    window = next(g.kind for g in model.layers if g.kind.kind == "sliding_latent")
    assert int(window.sequence_bytes(context, EIGHT, BF16) or 0) == 128 * 1024


def test_llama4_rotates_in_chunks() -> None:
    """Every fourth layer of Llama 4 has no positions and attends fully; the others keep one chunk."""
    model = read(SCOUT_TEXT)
    assert layers(model) == {"full": 12, "chunked": 36}
    assert next(g for g in model.layers if g.kind.kind == "full").indices[:2] == (3, 7)
    assert layers(read(SCOUT_TEXT, attention_chunk_size=None)) == {"full": 48}


def test_minimax_m3_index_keys_are_16_bit() -> None:
    """MiniMax-M3 keeps 256 bytes of index key beside the keys and values of 4 heads in its sparse layers."""
    sparse = {
        "use_sparse_attention": True,
        "sparse_index_dim": 128,
        "sparse_num_index_heads": 4,
        "sparse_attention_freq": [0, 1, 1],
    }
    model = read(MINIMAX_M3, moe_layer_freq=[0, 1, 1], sparse_attention_config=sparse)
    assert layers(model) == {"full": 1, "sparse_full": 2}
    assert token_bytes(model) == 3 * 2048 + 2 * 256
    assert token_bytes(model, EIGHT) == 3 * 512 + 2 * 256


def test_hunyuan_layers_share_caches() -> None:
    """With `use_cla` and a factor of 2 every second layer attends over the cache of the one before and projects no keys."""
    config = {
        "model_type": "hunyuan", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "attention_head_dim": 16, "num_experts": 4, "moe_topk": [2, 2, 2, 2],
        "num_shared_expert": [1, 1, 1, 1], "cla_share_factor": 2, "use_cla": True,
    }  # fmt: skip
    model = read(config)
    assert layers(model) == {"full": 2, "shared": 2}
    assert token_bytes(model) == 2 * 2 * 2 * 16 * 2
    assert next(p for p in model.parts if p.name == "k_proj").layers == (0, 2)
    assert layers(read(config, use_cla=False)) == {"full": 4}


def test_laguna_heads_differ_by_layer() -> None:
    """Laguna's sliding layers may have more attention heads than its full ones; KV heads stay."""
    config = {
        "model_type": "laguna", "hidden_size": 2048, "num_attention_heads": 48, "num_hidden_layers": 4,
        "num_attention_heads_per_layer": [48, 72, 72, 72],
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
    }  # fmt: skip
    rows = {p.layers: int(p.rows) for p in read(config).parts if p.name == "q_proj"}
    assert rows == {(0,): 48 * 128, (1, 2, 3): 72 * 128}


def test_mimo_keys_are_wider_than_values() -> None:
    """MiMo-V2-Flash keeps 192 + 128 elements a KV head: 4 heads in 9 full layers, 8 in 39 sliding ones."""
    model = read(MIMO_V2)
    assert layers(model) == {"full": 9, "sliding": 39}
    assert token_bytes(model) == (9 * 4 + 39 * 8) * 320 * 2


def test_longcat_layers_keep_two_latents() -> None:
    """Each of LongCat-Flash's 28 layers has two attentions, and experts that compute nothing have no weights: 560.7 billion in all."""
    model = read(LONGCAT)
    assert layers(model) == {"latent": 56}
    assert int(model.num_layers) == 28
    assert int(model.total_params) == 560_664_958_976


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (GPT_OSS | {"layer_types": ["full_attention"]}, "layer_types"),
        (GPT_OSS | {"layer_types": ["linear_attention"] * 24}, "layer_types[0]"),
        (V4_FLASH | {"compress_ratios": [0, 4]}, "compress_ratios"),
        (V4_FLASH | {"compress_ratios": [16] * 44}, "compress_ratios[0]"),
        (DEEPSEEK_V3 | {"num_expert_caches": 4}, "num_expert_caches"),
        (MINIMAX_M2 | {"attn_type_list": [0] * 62}, "attn_type_list[0]"),
        (MIXTRAL | {"hidden_size": "wide"}, "hidden_size"),
        ({k: v for k, v in MIXTRAL.items() if k != "num_hidden_layers"}, "num_hidden_layers"),
        (GPT_OSS | {"layer_types": ["sliding_attention"] * 24, "sliding_window": None}, "layer_types"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    """A list of the wrong length, an unknown word, or an unread field that hints at the cache is an error that names the field."""
    with pytest.raises(ConfigError) as caught:
        read(config)
    assert named in caught.value.message


def test_class_defaults_are_owned_up_to() -> None:
    """An absent field takes the published class's value, and the answer says so."""
    without = {k: v for k, v in GPT_OSS.items() if k != "sliding_window"}
    assert any("sliding_window" in sentence and "GptOssConfig" in sentence for sentence in read(without).assumptions)
    assert not any("sliding_window" in sentence for sentence in read(GPT_OSS).assumptions)


def test_classification_models_have_no_output_head() -> None:
    """A sequence classifier has a row for each label where a language model has the vocabulary."""
    model = read(MIXTRAL, architectures=["MixtralForSequenceClassification"], num_labels=3)
    assert int(model.total_params) == 46_702_792_704 - 32000 * 4096 + 3 * 4096
