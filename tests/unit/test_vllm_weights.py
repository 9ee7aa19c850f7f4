"""Weights that vLLM creates per rank: figures of its own planner (vLLM 0.33.0) and of the published shapes, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import calculate, shared

from gpufit.derivation import steps
from gpufit.engines.vllm.stage_parts import Stage
from gpufit.engines.vllm.weight_shards import Spread
from gpufit.engines.vllm.weights import draft_weights_on_rank, weights_on_rank
from gpufit.errors import GpufitError, UsageError
from gpufit.model import Model
from gpufit.placement import stages
from gpufit.quantity import NUMBER, Q, fact
from gpufit.sources.catalogue import model_of
from gpufit.sources.read import read_model


def degree(value: int) -> Q:
    return fact(value, NUMBER, symbol="n", name="degree", origin="test")


def spread(tp: int = 1, dp: int = 1, *, experts: bool = False, capability: int = 90) -> Spread:
    return Spread(tp=degree(tp), dp=degree(dp), expert_parallel=experts, capability=capability)


def created(model: Model, over: Spread, pp: int = 1) -> list[int]:
    parts = stages(int(model.num_layers), pp)
    return [
        int(weights_on_rank(model, model.published.recipe, over, Stage(layers=p, first=i == 0, last=i == pp - 1)).created)
        for i, p in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("slug", "tp", "expected"),
    [
        ("llama-3.1-8b", 1, 16_060_522_496),
        ("deepseek-v3", 8, 85_140_130_848),
        ("gpt-oss-120b", 1, 65_248_815_744),
        ("gpt-oss-120b", 8, 8_711_167_680),
        ("gemma-3-27b", 1, 54_864_813_280),
        ("qwen3-next-80b-a3b", 4, 39_925_738_176),
        ("qwen3-235b-a22b-fp8", 4, 59_186_486_512),
        ("qwen3-235b-a22b-fp8", 8, 29_713_411_312),
        ("llama-4-scout", 1, 217_283_587_072),
        ("llama-4-scout", 8, 27_170_135_488),
    ],
)
def test_examples_at_default_settings(slug: str, tp: int, expected: int) -> None:
    """The models that the method page works out have exactly the weights per rank that vLLM's classes create."""
    assert created(model_of(slug), spread(tp)) == [expected]


LLAMA_70B_FP8 = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
FP8_FILE = {
    "producer": {"name": "modelopt"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
}


@pytest.mark.parametrize(
    ("tp", "linears", "table"),
    [
        (1, 68_451_041_280, 2_101_346_304),
        (2, 34_225_520_640, 1_050_673_152),
        (8, 8_556_380_160, 262_668_288),
        (16, 4_362_076_160, 131_334_144),
    ],
)
def test_fp8_per_tensor_with_heads_copied_past_their_number(tp: int, linears: int, table: int) -> None:
    """A 70B FP8 file: linears at a byte a weight, 14 scales a layer, four cache scales, and KV heads copied at 16 ranks."""
    model = read_model(LLAMA_70B_FP8, id="org/llama-70b-fp8", hf_quant=FP8_FILE)
    assert created(model, spread(tp)) == [linears + 2 * table + 2_637_824 + 4_480 + 640]


MIXTRAL_AWQ = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
    "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "sliding_window": None,
    "quantization_config": {
        "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm", "modules_to_not_convert": ["gate"],
    },
}  # fmt: skip


def test_awq_mixture_counts_words_scales_and_zero_points() -> None:
    """Mixtral in AWQ: packed words, fp16 scales and packed zero points of experts and attention; router and tables at 16 bit."""
    assert created(read_model(MIXTRAL_AWQ, id="org/mixtral-awq"), spread()) == [24_653_602_816]


@pytest.mark.parametrize(
    ("slug", "tp", "pp", "expected"),
    [
        ("deepseek-v3", 8, 2, [41_243_924_832, 43_896_206_016]),
        ("deepseek-v3", 8, 4, [17_956_179_808, 21_832_260_960, 23_287_745_024, 22_063_945_056]),
        ("llama-3.1-8b", 1, 2, [8_030_257_152, 8_030_265_344]),
        ("gemma-3-27b", 1, 2, [29_265_102_560, 28_418_981_888]),
        ("qwen3-30b-a3b", 1, 4, [16_199_559_168] * 4),
        ("qwen3.5-27b", 1, 2, [27_817_455_840, 29_438_802_688]),
    ],
)
def test_pipeline_stages_hold_what_their_class_makes(slug: str, tp: int, pp: int, expected: list[int]) -> None:
    """Stages: embedding first, norm and head last, towers first, and whatever a family's class makes on every stage."""
    assert created(model_of(slug), spread(tp), pp) == expected


@pytest.mark.parametrize(
    ("slug", "tp", "dp", "expected"),
    [
        ("deepseek-v3", 1, 8, 100_840_747_360),
        ("deepseek-v3", 2, 4, 93_146_443_872),
        ("deepseek-v3.2", 2, 4, 94_676_842_336),
        ("glm-4.5-air", 2, 4, 32_180_931_072),
        ("gpt-oss-20b", 8, 1, 1_724_398_080),
        ("qwen3-235b-a22b-fp8", 8, 1, 29_692_620_016),
    ],
)
def test_expert_parallel_keeps_experts_whole(slug: str, tp: int, dp: int, expected: int) -> None:
    """Expert parallelism deals out whole experts, without padding or refined scales; some families then keep shared experts whole."""
    assert created(model_of(slug), spread(tp, dp, experts=True)) == [expected]


@pytest.mark.parametrize(
    ("slug", "tp", "capability", "expected"),
    [
        ("gpt-oss-20b", 1, 80, 14_679_227_520),
        ("gpt-oss-20b", 1, 100, 14_679_227_520),
        ("nemotron-3-nano-30b-a3b", 1, 80, 63_171_716_352),
        ("nemotron-3-nano-30b-a3b", 1, 100, 65_181_738_240),
        ("glm-4.5-air", 4, 100, 58_039_140_864),
    ],
)
def test_kernels_of_the_device_pad_experts(slug: str, tp: int, capability: int, expected: int) -> None:
    """The kernel that a device gets decides the padding of expert widths and the dtype of some routers."""
    assert created(model_of(slug), spread(tp, capability=capability)) == [expected]


def test_draft_layer_without_the_tables_it_shares() -> None:
    """DeepSeek-V3's multi-token-prediction layer at tp 8: its own tensors only, embedding and head being the model's."""
    model = model_of("deepseek-v3")
    assert int(draft_weights_on_rank(model, model.published.recipe, spread(8))) == 1_661_047_968


def test_no_draft_is_refused() -> None:
    """A model without draft layers has no draft weights to size."""
    with pytest.raises(UsageError, match="multi-token-prediction"):
        draft_weights_on_rank(model_of("llama-3.1-8b"), None, spread())


def test_shards_that_do_not_divide_are_refused() -> None:
    """An MLP that does not divide by the degree is refused with the size, as vLLM asserts."""
    with pytest.raises(UsageError, match="does not divide by 7"):
        created(model_of("llama-3.1-8b"), spread(7))


def test_shards_through_scale_blocks_are_refused() -> None:
    """A row shard that cuts a 128-wide scale block is refused: 4096 / 64 = 64 in the output projection of Qwen3-8B's FP8 file."""
    with pytest.raises(UsageError, match="64 input features"):
        created(model_of("qwen3-8b-fp8"), spread(64))


MLX = {**LLAMA_70B_FP8, "quantization": {"group_size": 64, "bits": 4}}


def test_declarations_that_vllm_does_not_see() -> None:
    """MLX files name no quantiser: vLLM makes room for 16-bit weights, whatever the file holds."""
    sixteen = created(read_model(LLAMA_70B_FP8, id="org/plain"), spread())
    assert created(read_model(MLX, id="org/mlx"), spread()) == sixteen == [141_107_412_992]


NF4 = {**LLAMA_70B_FP8, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}


def test_formats_without_a_loader_are_refused() -> None:
    """bitsandbytes left vLLM before 0.33: the format is named and the known ones are offered."""
    with pytest.raises(UsageError, match="does not load nf4") as caught:
        created(read_model(NF4, id="org/nf4"), spread())
    assert "GPTQ" in caught.value.hint


@pytest.mark.parametrize("slug", ["deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "gemma-3-27b"])
def test_every_line_of_the_derivation_re_evaluates(slug: str) -> None:
    """Each printed formula, with its numbers put in, gives the printed value, and the derivation stays short."""
    model = model_of(slug)
    stage = Stage(layers=range(int(model.num_layers)))
    lines = steps(weights_on_rank(model, model.published.recipe, spread(4), stage).created)
    for line in lines:
        assert line.is_fact or calculate(line.substitution) == line.value
    assert len(lines) < 150


def _records() -> list[dict[str, Any]]:
    folder = shared()
    if folder is None:
        return []
    with (folder / "oracle" / "weights_oracle.jsonl").open() as rows:
        return [r for r in map(json.loads, rows) if r["tp"] in (1, 8)]


ABRIDGED = {  # records made from configs that lack what the published file has
    "moonshotai--Kimi-K2-Thinking", "mistralai--Mistral-Small-3.1-24B-Instruct-2503", "RedHatAI--DeepSeek-V4-Flash-NVFP4-FP8",
    "zai-org--GLM-4.1V-9B-Thinking",
}  # fmt: skip


@pytest.mark.parametrize("row", [r for r in _records() if r["model"] not in ABRIDGED], ids=lambda r: f"{r['model']}-tp{r['tp']}")
def test_planner_records(row: dict[str, Any]) -> None:
    """Every record of vLLM's own classes at tp 1 and 8 is met to the byte."""
    folder = shared()
    assert folder is not None
    try:
        model = _read(folder / "configs" / row["model"])
    except GpufitError as error:
        raise AssertionError(f"{row['model']} is not read: {error.message}") from error
    assert created(model, spread(row["tp"])) == [row["bytes_per_rank"]]


def _read(folder: Path) -> Model:
    beside = folder / "hf_quant_config.json"
    hf_quant = json.loads(beside.read_text()) if beside.exists() else None
    return read_model(json.loads((folder / "config.json").read_text()), id=folder.name.replace("--", "/", 1), hf_quant=hf_quant)
