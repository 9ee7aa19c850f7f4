"""Recurrent and hybrid families: published parameter counts, which layers keep what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gpufit.errors import ConfigError
from gpufit.formats.cache import BF16
from gpufit.layers.state import State
from gpufit.model import Model, Role
from gpufit.quantity import NUMBER, Q, fact
from gpufit.sources.read import read_model

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936, "intermediate_size": 5120,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "bfloat16", "max_position_embeddings": 262144,
}  # fmt: skip
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "vocab_size": 131072, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "n_routed_experts": 128,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "intermediate_size": 1856,
}  # fmt: skip
LFM2: dict[str, Any] = {
    "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 65536, "block_ff_dim": 12288, "conv_L_cache": 3,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_attention_heads": 32, "num_key_value_heads": 8, "conv_dim": 2048,
}  # fmt: skip
QWEN3_5: dict[str, Any] = {
    "model_type": "qwen3_5", "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 3584, "vocab_size": 248320,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "linear_num_value_heads": 16,
        "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "tie_word_embeddings": True,
    },
    "vision_config": {
        "depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12, "out_hidden_size": 1024, "patch_size": 16,
        "num_position_embeddings": 2304, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
    },
}  # fmt: skip

JAMBA: dict[str, Any] = {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
MAMBA2: dict[str, Any] = {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128}
KIMI_LINEAR: dict[str, Any] = {"model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "num_attention_heads": 32}
BAILING_HYBRID: dict[str, Any] = {
    "model_type": "bailing_hybrid",
    "hidden_size": 2560,
    "num_hidden_layers": 42,
    "num_attention_heads": 32,
}
OLMO_HYBRID: dict[str, Any] = {"model_type": "olmo_hybrid", "hidden_size": 3840, "num_hidden_layers": 32, "num_attention_heads": 30}
XLSTM: dict[str, Any] = {"model_type": "xlstm", "hidden_size": 4096, "num_hidden_layers": 32, "num_heads": 8}
ZAMBA2: dict[str, Any] = {"model_type": "zamba2", "hidden_size": 2560, "num_hidden_layers": 54, "num_attention_heads": 32}
FALCON_H1: dict[str, Any] = {"model_type": "falcon_h1", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
RECURRENT_GEMMA: dict[str, Any] = {
    "model_type": "recurrent_gemma",
    "hidden_size": 2560,
    "num_hidden_layers": 26,
    "num_attention_heads": 10,
}
BAMBA: dict[str, Any] = {"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}


def model(config: dict[str, Any], **changes: Any) -> Model:
    return read_model({**config, **changes}, id="test/model")


def one(number: int) -> Q:
    return fact(number, NUMBER, symbol="t", name="GPUs", origin="this test")


def states(read: Model) -> list[int]:
    """Bytes of the state of one layer on one GPU, for each group of recurrent layers."""
    return [int(g.kind.fixed_bytes(one(1), BF16)) for g in read.layers if isinstance(g.kind, State)]


# Totals as the published implementations instantiate these models (transformers 5.24.0); those of Qwen3-Next, Nemotron 3 Nano, Jamba,
# LFM2, Mamba-Codestral, Kimi-Linear and xLSTM are their published checkpoints'.
COUNTS = [
    pytest.param(QWEN3_NEXT, 79_674_391_296, 3_874_929_408, id="Qwen3-Next 80B"),
    pytest.param(QWEN3_5, 852_985_920, 852_985_920, id="Qwen3.5 0.8B"),
    pytest.param(NEMOTRON, 31_577_937_344, 3_580_073_408, id="Nemotron 3 Nano"),
    pytest.param(JAMBA, 51_570_323_328, 12_110_311_296, id="Jamba"),
    pytest.param(LFM2, 1_170_340_608, 1_170_340_608, id="LFM2 1.2B"),
    pytest.param(MAMBA2, 7_285_403_648, 7_285_403_648, id="Mamba-Codestral 7B"),
    pytest.param(KIMI_LINEAR, 49_133_074_464, 3_494_852_640, id="Kimi-Linear 48B"),
    pytest.param(BAILING_HYBRID, 124_414_191_072, 5_505_672_672, id="Ling 3.0 Flash"),
    pytest.param(OLMO_HYBRID, 7_430_870_688, 7_430_870_688, id="Olmo Hybrid 7B"),
    pytest.param(XLSTM, 6_865_424_896, 6_865_424_896, id="xLSTM 7B"),
    pytest.param(ZAMBA2, 2_481_848_336, 2_481_848_336, id="Zamba2 class defaults"),
    pytest.param(FALCON_H1, 8_514_961_408, 8_514_961_408, id="Falcon-H1 class defaults"),
    pytest.param(RECURRENT_GEMMA, 2_010_263_040, 2_010_263_040, id="RecurrentGemma class defaults"),
    pytest.param(BAMBA, 9_992_765_440, 9_992_765_440, id="Bamba class defaults"),
]


@pytest.mark.parametrize(("config", "total", "active"), COUNTS)
def test_parameters_are_exact(config: dict[str, Any], total: int, active: int) -> None:
    """The parts add up to the count of the published implementation to the last parameter, and so do those that one token uses."""
    read = model(config)
    assert int(read.total_params) == total
    assert read.active_params is not None
    assert int(read.active_params) == active


def test_a_full_layer_closes_each_interval() -> None:
    """Without a list of layer types every fourth layer of Qwen3-Next attends in full, and the others keep a state."""
    full, linear = model(QWEN3_NEXT).layers
    assert full.indices == tuple(range(3, 48, 4))
    assert set(full.indices) | set(linear.indices) == set(range(48))
    assert states(model(QWEN3_NEXT)) == [1_097_728]


def test_the_config_decides_the_dtype_of_a_recurrent_state() -> None:
    """Qwen3.5 asks for float32 in mamba_ssm_dtype; without the field the model's own 16 bits hold."""
    text = QWEN3_5["text_config"]
    # 3 * (2*16*128 + 16*128) * 2 + 16*128*128 * 4
    assert states(model(QWEN3_5)) == [36_864 + 1_048_576]
    plain = {k: v for k, v in text.items() if k != "mamba_ssm_dtype"}
    assert states(model(QWEN3_5, text_config=plain)) == [36_864 + 524_288]
    with pytest.raises(ConfigError, match="int7"):
        model(QWEN3_5, text_config={**text, "mamba_ssm_dtype": "int7"})


def test_draft_layers_are_kept_apart() -> None:
    """A multi-token-prediction layer stands in the draft: its weights are not counted and its cache is not the model's."""
    read = model(QWEN3_5)
    assert [len(g.indices) for g in read.draft_layers] == [1]
    # fc 2*1024*1024; attention 1024*(2*8+2*2)*256 + 8*256*1024 + 2*256; MLP 3*1024*3584; norms 5*1024
    expected = 2_097_152 + 5_242_880 + 2_097_152 + 512 + 11_010_048 + 5_120
    assert sum(int(p.elements()) for p in read.draft_parts) == expected
    assert not any(p.module.startswith("mtp.") for p in read.parts)


def test_multimodal_parts_have_their_published_paths() -> None:
    """Quantisers name modules with the prefix of the multimodal checkpoint, so the parts carry it."""
    modules = {p.module for p in model(QWEN3_5).parts}
    assert "model.language_model.layers.{i}.linear_attn.in_proj_qkv" in modules
    assert "model.visual.blocks.{e}.attn.qkv" in modules


def test_a_pattern_counts_the_layers() -> None:
    """Nemotron's signs say what each layer is; a layer count that contradicts them is stated as an assumption, not followed."""
    read = model(NEMOTRON)
    assert {g.kind.kind: len(g.indices) for g in read.layers} == {"mamba2": 23, "full": 6, "none": 23}
    words = {"M": "mamba", "*": "attention", "E": "moe"}
    listed = [words[sign] for sign in NEMOTRON["hybrid_override_pattern"]]
    renamed = {k: v for k, v in NEMOTRON.items() if k not in ("hybrid_override_pattern", "num_hidden_layers")}
    assert int(model(renamed, layers_block_type=listed).total_params) == 31_577_937_344
    contradicted = model(NEMOTRON, num_hidden_layers=60)
    assert int(contradicted.num_layers) == 52
    assert "60" in contradicted.assumptions[0]


def test_class_defaults_are_said() -> None:
    """A field that a whole config leaves to its class is named in the answer, with the class; one that it states is not."""
    [said] = [a for a in model(JAMBA).assumptions if "defaults" in a]
    assert "mamba_d_state" in said
    assert "JambaConfig (transformers 5.24.0)" in said
    assert not model(QWEN3_NEXT, tie_word_embeddings=False).assumptions


def test_a_classifier_has_no_output_head() -> None:
    """The vocabulary head of a causal model is replaced by one row a label where the architecture classifies."""
    read = model(JAMBA, architectures=["JambaForSequenceClassification"], num_labels=3)
    heads = {p.name: int(p.elements()) for p in read.parts if p.role is Role.HEAD}
    assert heads == {"classification head": 3 * 4096}


def test_a_parallel_mixer_stands_in_two_groups() -> None:
    """Each layer of Falcon-H1 attends and keeps a state at once, so its index is in both groups."""
    full, mixer = model(FALCON_H1).layers
    assert (full.kind.kind, mixer.kind.kind) == ("full", "mamba2")
    assert full.indices == mixer.indices == tuple(range(32))


def test_shared_blocks_are_stored_once_and_cached_each_time() -> None:
    """Zamba2 keeps one copy of its shared block and a KV cache for each of the nine layers that use it."""
    read = model(ZAMBA2)
    caches = {g.kind.kind: len(g.indices) for g in read.layers}
    assert caches == {"full": 9, "mamba2": 54}
    [query] = [p for p in read.parts if p.name == "q_proj"]
    assert (int(query.elements()), query.layers) == (5120 * 5120, ())


def test_fp32_parts_are_marked() -> None:
    """What engines create at fp32 whatever the checkpoint's dtype is marked: 36 * 32 decays in Qwen3-Next, a few more in K3's mixers."""
    decays = [p for p in model(QWEN3_NEXT).parts if p.dtype == "fp32"]
    assert sum(int(p.elements()) for p in decays) == 36 * 32
    kda = [p for p in model(KIMI_LINEAR).parts if p.dtype == "fp32" and p.role is Role.STATE]
    assert {p.name for p in kda} == {"q_conv1d", "k_conv1d", "v_conv1d", "dt_bias", "A_log"}


def test_layer_numbers_from_one_name_each_layer_once() -> None:
    """Kimi's lists count layers from 1; a layer in neither list, or in both, is refused."""
    lists = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
    small = {**KIMI_LINEAR, "num_hidden_layers": 4, "num_experts": 8}
    read = model(small, linear_attn_config={**lists, "kda_layers": [1, 2, 3], "full_attn_layers": [4]})
    assert {g.kind.kind: g.indices for g in read.layers} == {"latent": (3,), "kda": (0, 1, 2)}
    with pytest.raises(ConfigError, match="each of the 4 layers once"):
        model(small, linear_attn_config={**lists, "kda_layers": [1, 2], "full_attn_layers": [4]})


def test_the_architecture_picks_the_mixer() -> None:
    """Ling 2.5 and 3.0 share a model_type: the first has Lightning attention at the model's dtype, the second delta attention at fp32."""
    small = {**BAILING_HYBRID, "num_hidden_layers": 6, "num_experts": 8}
    old = model(small, architectures=["BailingMoeV2_5ForCausalLM"])
    new = model(small, architectures=["BailingMoeV3ForCausalLM"])
    assert {g.kind.kind for g in old.layers} == {"latent", "linear"}
    assert {g.kind.kind for g in new.layers} == {"latent", "kda"}
    assert states(old) == [32 * 128 * 128 * 2]
    assert states(new) == [3 * 3 * 32 * 128 * 2 + 32 * 128 * 128 * 4]


REFUSED = [
    pytest.param({"model_type": "jamba"}, {}, "no hidden_size", id="a file that is not whole"),
    pytest.param(QWEN3_NEXT, {"layer_types": ["linear_attention"] * 47}, "47 layers", id="a list too short"),
    pytest.param(QWEN3_NEXT, {"layer_types": ["mystery"] + ["full_attention"] * 47}, "mystery", id="an unknown kind"),
    pytest.param(QWEN3_NEXT, {"full_attention_interval": 0}, "full_attention_interval", id="no interval"),
    pytest.param(QWEN3_NEXT, {"use_sliding_window": True, "sliding_window": 4096}, "sliding_window", id="a window nobody reads"),
    pytest.param(NEMOTRON, {"hybrid_override_pattern": "MX*"}, "'X'", id="an unknown sign"),
    pytest.param(LFM2, {"conv_dim": 1024}, "conv_dim", id="a convolution of another width"),
    pytest.param(MAMBA2, {"num_heads": 64}, "Mamba heads", id="heads that do not fill the mixer"),
    pytest.param(BAILING_HYBRID, {"no_kda_lora": False}, "no_kda_lora", id="a bottleneck nobody knows"),
]


@pytest.mark.parametrize(("config", "change", "said"), REFUSED)
def test_what_is_not_understood_is_refused(config: dict[str, Any], change: dict[str, Any], said: str) -> None:
    """A value that contradicts the family, or a field that could change the cache unread, is refused by name."""
    with pytest.raises(ConfigError, match=said):
        model(config, **change)
