"""What checkpoints declare about their own format: where it stands, what it leaves out, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_checkpoint import AWQ, CT, FP8, GPTQ, KEPT, LINEARS, LLAMA, WIDE, H, L, V, gptq_bytes, group, matrices, model, size
from support import calculate, shared

from gpufit.derivation import steps
from gpufit.errors import ConfigError
from gpufit.sources.quantization import methods
from gpufit.sources.read import read_model


def test_an_unquantised_checkpoint_has_its_dtype() -> None:
    """Without a declaration the format is the dtype and no recipe is needed."""
    assert (model(None).published.format, model(None).published.recipe) == ("bf16", None)
    assert model(None, torch_dtype="float32").published.format == "fp32"


def test_mlx_quantises_embedding_and_head_too() -> None:
    """MLX names no method: its `quantization` holds bits and group, and every matrix counts but one set to false."""
    each = 2 * V * H + sum(n * k for n, k in LINEARS) * L
    norms = 2 * (L * 2 * H + H)
    m = model({"group_size": 64, "bits": 4}, key="quantization", quantization_config={"group_size": 64, "bits": 4})
    assert (m.published.format, int(size(m))) == ("int4", norms + each // 2 + 4 * each // 64)
    mixed = model(
        {"group_size": 64, "bits": 4, "lm_head": False, "model.embed_tokens": {"group_size": 64, "bits": 8}}, key="quantization"
    )
    less = each - 2 * V * H
    assert int(size(mixed)) == norms + 2 * V * H + V * H + 4 * V * H // 64 + less // 2 + 4 * less // 64


def test_the_lists_of_exceptions_are_honoured_layer_by_layer() -> None:
    """A module that a list names keeps 16 bit in that layer alone."""
    listed = FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.1.mlp.down_proj", "model.layers.0.input_layernorm"]}
    kept = H * WIDE
    assert int(size(model(listed))) == int(size(model(FP8))) + 2 * kept - kept - 4 * 2 * 4


def test_gptq_overrides_by_expression() -> None:
    """GPTQModel's `dynamic` map skips modules with "-:" and changes bits or group with "+:"."""
    dynamic = GPTQ | {"dynamic": {r"-:.*\.layers\.0\..*": {}, r"+:.*\.mlp\..*": {"bits": 8, "group_size": 64}}}
    layer0 = 2 * sum(n * k for n, k in LINEARS)
    layer1 = sum(gptq_bytes(4, 128)(n, k) for n, k in LINEARS[:4]) + sum(gptq_bytes(8, 64)(n, k) for n, k in LINEARS[4:])
    assert int(size(model(dynamic))) == KEPT + layer0 + layer1


def test_gptq_reaches_the_head_only_when_asked() -> None:
    """`lm_head: true` quantises the output head as well."""
    assert int(size(model(GPTQ | {"lm_head": True}))) == int(size(model(GPTQ))) - 2 * V * H + gptq_bytes(4, 128)(V, H)


def test_groups_of_one_checkpoint_may_differ() -> None:
    """compressed-tensors with two groups: each module has the format of the group that names it; the bulk gives the word."""
    fp8 = {"type": "float", "num_bits": 8, "strategy": "channel", "symmetric": True, "dynamic": False}
    fp4 = {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16, "symmetric": True, "dynamic": False}
    quant = CT | {"format": "mixed-precision", "config_groups": {
        "a": {"format": "float-quantized", "targets": ["re:.*self_attn.*"], "weights": fp8, "input_activations": {"dynamic": True}},
        "b": {"format": "nvfp4-pack-quantized", "targets": ["Linear"], "weights": fp4, "input_activations": {"dynamic": "local"}},
    }}  # fmt: skip
    m = model(quant)
    attention, mlp = LINEARS[:4], LINEARS[4:]
    expected = KEPT + L * (sum(n * k + 2 * n for n, k in attention) + sum(n * k // 2 + n * k // 16 + 8 for n, k in mlp))
    assert (m.published.format, int(size(m))) == ("nvfp4", expected)
    assert "fp8 per channel" in m.published.detail


def test_modelopt_maps_modules_to_algorithms() -> None:
    """MIXED_PRECISION quantises only what its map names, each module by its own algorithm, the output head too."""
    layers = {
        f"model.layers.{i}.mlp.{x}_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        for i in range(L)
        for x in ("gate", "up", "down")
    }
    layers |= {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    inside = {
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": "FP8",
        "quantized_layers": layers,
        "exclude_modules": ["mtp*"],
    }
    m = model(None, hf_quant={"producer": {"name": "modelopt"}, "quantization": inside})

    def four(n: int, k: int) -> int:
        return n * k // 2 + n * k // 16 + 4

    plain = 2 * (L * sum(n * k for n, k in LINEARS[:4]) - H * H) + KEPT - 2 * V * H
    assert int(size(m)) == plain + L * sum(four(n, k) for n, k in LINEARS[4:]) + four(V, H) + H * H + 8
    assert (m.published.format, m.published.kv_cache_dtype) == ("nvfp4", "fp8")


def test_the_cache_dtype_is_told_with_its_place() -> None:
    """A checkpoint may ask for an FP8 or NVFP4 cache, in config.json or in hf_quant_config.json."""
    hf = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    m = model(None, hf_quant=hf)
    assert m.published.kv_cache_dtype == "fp8"
    assert m.published.kv_cache_origin == "hf_quant_config.json: quantization.kv_cache_quant_algo"
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    asked = model(group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel"}) | {"kv_cache_scheme": scheme})
    assert (asked.published.kv_cache_dtype, asked.published.kv_cache_origin) == (
        "fp8",
        "config.json: quantization_config.kv_cache_scheme",
    )
    four = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4", "exclude_modules": []}}
    assert model(None, hf_quant=four).published.kv_cache_dtype == "nvfp4"
    assert model(FP8).published.kv_cache_dtype is None


def test_config_json_comes_before_the_file_beside_it() -> None:
    """hf_quant_config.json speaks only where config.json declares nothing."""
    hf = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    assert (model(FP8, hf_quant=hf).published.format, model(FP8, hf_quant=hf).published.kv_cache_dtype) == ("fp8", None)


def test_a_declaration_without_a_method_is_told_by_its_keys() -> None:
    """Two published files name no quant_method: one is modelopt's, one MLX's."""
    m = model(
        {
            "quant_algo": "FP8",
            "kv_cache_scheme": "FP8",
            "ignore": ["lm_head"],
            "config_groups": {},
            "producer": {"name": "modelopt"},
        }
    )
    assert (m.published.method, m.published.kv_cache_dtype) == ("modelopt", "fp8")
    assert int(size(m)) == KEPT + matrices(lambda n, k: n * k + 8)
    assert model({"group_size": 64, "bits": 4}).published.method == "mlx"
    assert not m.published.signed
    assert model(FP8).published.signed


def test_a_file_beside_the_config_is_known_by_its_maker() -> None:
    """hf_quant_config.json has no quant_method; engines know it by its producer."""
    inner = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    assert model(None, hf_quant={"producer": {"name": "modelopt"}, "quantization": inner}).published.signed
    assert not model(None, hf_quant={"quantization": inner}).published.signed


def test_exclusions_that_are_not_listed_leave_the_bytes_unknown() -> None:
    """A modelopt file without any list of exclusions tells the cache dtype but not the bytes: neither is guessed."""
    m = model(None, hf_quant={"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}})
    assert (m.published.format, m.published.kv_cache_dtype, m.published.recipe) == ("nvfp4", "fp8", None)
    assert "no exclude_modules" in m.published.detail
    exl = model({"quant_method": "exl2", "bits": 4.5, "head_bits": 6})
    assert exl.published.recipe is None
    assert "4.5 bits" in exl.published.detail


@pytest.mark.parametrize(
    ("quant", "words"),
    [
        ({"quant_method": "newquant", "bits": 4}, "newquant"),
        ({"who": 1}, "quant_method is absent"),
        (FP8 | {"expert_scale_layout": "x"}, "expert_scale_layout"),
        (FP8 | {"fmt": "int7"}, "int7"),
        (FP8 | {"weight_block_size": [128]}, "weight_block_size"),
        (GPTQ | {"checkpoint_format": "marlin"}, "marlin"),
        (GPTQ | {"bits": 12}, "12"),
        (GPTQ | {"dynamic": {"+:x": {"rank": 8}}}, "rank"),
        (AWQ | {"version": "zigzag"}, "zigzag"),
        (group("sparse-24", {"type": "int", "num_bits": 8, "strategy": "channel"}), "sparse-24"),
        (group("float-quantized", {"type": "float", "num_bits": 6, "strategy": "channel"}), "6-bit float"),
        (group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel", "twist": 1}), "twist"),
        (group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel"}, targets=("Conv9d",)), "Conv9d"),
        (
            group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel"})
            | {"transform_config": {"config_groups": {"r": 1}}},
            "transform_config",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP3", "exclude_modules": []}, "FP3"),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "exclude_modules": [],
                "kv_cache_scheme": {"num_bits": 3, "type": "int"},
            },
            "3 bits",
        ),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Foo", "_data": {}}}}, "Foo"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 5, "group_size": 64}}}, "5"),
        ("fp8", "expected an object"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(quant: Any, words: str) -> None:
    """An unknown method, key or value that could change the bytes is an error naming it."""
    with pytest.raises(ConfigError, match=words) as refused:
        read_model(LLAMA | {"quantization_config": quant}, id="test/small")
    assert refused.value.hint


def test_declarations_inside_declarations_are_found() -> None:
    """modelopt's file copied whole into config.json, and compressed-tensors' older layout, are read as what they hold."""
    inner = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    m = model({"producer": {"name": "modelopt"}, "quantization": inner})
    assert (m.published.method, m.published.kv_cache_dtype, m.published.signed) == ("modelopt", "fp8", True)
    channel = group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel"})
    old = model({"quantization_config": channel, "sparsity_config": {"format": "dense"}}, key="compression_config")
    assert int(size(old)) == KEPT + matrices(lambda n, k: n * k + 2 * n)


def test_a_dense_sparsity_config_is_no_sparsity() -> None:
    """Notes on how sparse a dense checkpoint happens to be change nothing; weights stored sparse are refused."""
    channel = group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "channel"})
    noted = channel | {"sparsity_config": {"format": "dense", "global_sparsity": 0.14, "sparsity_structure": "unstructured"}}
    assert int(size(model(noted))) == int(size(model(channel)))
    with pytest.raises(ConfigError, match="sparse-bitmask"):
        model(channel | {"sparsity_config": {"format": "sparse-bitmask"}})


def test_keys_that_change_no_byte_are_let_pass() -> None:
    """Notes on how a checkpoint was made are no reason to refuse it."""
    made = GPTQ | {
        "cache_block_outputs": True,
        "exllama_config": {"version": 1},
        "model_seqlen": 2048,
        "use_exllama": True,
        "batch_size": 1,
    }
    assert int(size(model(made))) == int(size(model(GPTQ)))


def test_every_line_of_a_checkpoint_re_evaluates() -> None:
    """The derivation of a mixed checkpoint is short, one line for a part and format, and its lines give their values."""
    listed = FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.1.mlp.down_proj"]}
    drawn = steps(size(model(listed)))
    for step in drawn:
        if step.substitution:
            assert calculate(step.substitution) == step.value, step
    assert sum(s.name.startswith("down_proj") for s in drawn) == 2
    assert len(drawn) < 40


LLAMA_70B = LLAMA | {
    "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880, "vocab_size": 201088,
    "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
    "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128, "attention_bias": True, "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
}  # fmt: skip
MIXTRAL = LLAMA | {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": None, "quantization_config": AWQ | {"modules_to_not_convert": ["gate"]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "hf_quant", "expected"),
    [
        # nvidia/Llama-3.1-70B-Instruct-FP8: 68,451,041,280 bytes of FP8, 4,205,330,432 at 16 bit, 560 x 2 FP32 scales.
        (LLAMA_70B, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, 72_656_376_192),
        # openai/gpt-oss-20b: total_size of its model.safetensors.index.json.
        (GPT_OSS_20B, None, 13_761_264_768),
        # TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ: what vLLM 0.33 creates for it.
        (MIXTRAL, None, 24_653_602_816),
    ],
    ids=["Llama 70B FP8", "gpt-oss-20b", "Mixtral AWQ"],
)  # fmt: skip
def test_published_checkpoints_to_the_byte(config: dict[str, Any], hf_quant: Any, expected: int) -> None:
    """Checkpoints whose bytes are published come out exactly."""
    assert int(size(read_model(config, id="test/published", hf_quant=hf_quant))) == expected


def test_kimi_keeps_its_declaration_inside_the_text_config() -> None:
    """A quantization_config within text_config counts as the checkpoint's own."""
    from gpufit.sources.config import Config
    from gpufit.sources.quantization import published

    outer = Config({"text_config": {"quantization_config": FP8}})
    inner = outer.sub("text_config")
    assert inner is not None
    found = published(outer, inner, None, "bf16")
    assert (found.format, found.origin) == ("fp8", "config.json: text_config.quantization_config.quant_method")


def test_every_method_is_listed() -> None:
    """The methods that published files use are all recognised."""
    known = set(methods())
    assert {"fp8", "fbgemm_fp8", "gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4", "modelopt", "quark", "torchao", "hqq",
            "mlx", "eetq", "aqlm", "exl2", "auto-round"} <= known  # fmt: skip


def _collected() -> list[tuple[str, int]]:
    """Quantised models that vLLM 0.33 was asked to build with one GPU, and the bytes it created; nothing in a clone without them."""
    place = shared()
    if place is None:
        return []
    rows = [json.loads(line) for line in (place / "oracle" / "weights_oracle.jsonl").read_text().splitlines()]
    return [(r["model"], r["bytes_per_rank"]) for r in rows if r["tp"] == 1 and r["quantization"]]


CREATED_ELSE = {
    "granite-3.3-8b-instruct-FP8": "scales created as FP32, stored at 16 bit",
    "Llama-4-Maverick-17B-128E-Instruct-FP8": "scales created as FP32, stored at 16 bit",
    "Laguna-S-2.1-FP8": "scales created as FP32, stored at 16 bit",
    "Devstral-Small-2-24B-Instruct-2512": "the vision tower is created as FP8: its name in the list does not match vLLM's",
    "DeepSeek-V4-Flash-NVFP4-FP8": "experts are created at 16 bit: vLLM's names for them match no target",
    "Qwen2.5-32B-Instruct-GPTQ-Int4": "vLLM creates no g_idx",
    "Gemma-4-31B-IT-NVFP4": "a value projection is created where K serves as V",
    "Gemma-4-26B-A4B-NVFP4": "a value projection is created where K serves as V",
}
"""Models whose created tensors are not the stored ones, and why."""


@pytest.mark.parametrize(("name", "created"), _collected())
def test_stored_bytes_are_those_that_vllm_creates(name: str, created: int) -> None:
    """Where vLLM creates the tensors that the files hold, the bytes agree to one part in ten thousand: cache scales make the rest."""
    place = shared()
    assert place is not None
    folder = place / "configs" / name
    beside = folder / "hf_quant_config.json"
    hf_quant = json.loads(beside.read_text()) if beside.exists() else None
    try:
        m = read_model(json.loads((folder / "config.json").read_text()), id=name, hf_quant=hf_quant)
    except ConfigError:
        return  # refused with a reason: the table of families counts it
    if name.partition("--")[2] not in CREATED_ELSE:
        assert abs(int(size(m)) - created) <= created * 1e-4
