"""Every quantisation method on a small model, with bytes worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from small_checkpoint import AWQ, BNB, FP8, GPTQ, KEPT, gptq_bytes, group, matrices, model, size, up

METHODS: list[tuple[str, dict[str, Any], str, int]] = [
    ("fp8 blocks", FP8, "fp8", KEPT + matrices(lambda n, k: n * k + 4 * up(n, 128) * up(k, 128))),
    (
        "fp8 per tensor, static",
        FP8 | {"weight_block_size": None, "activation_scheme": "static"},
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 8),
    ),
    (
        "fbgemm",
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": []},
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 4 * n),
    ),
    ("gptq", GPTQ, "int4", KEPT + matrices(gptq_bytes(4, 128))),
    ("gptq, 8 bits, one group", GPTQ | {"bits": 8, "group_size": -1}, "int8", KEPT + matrices(gptq_bytes(8, 10**9))),
    ("awq", AWQ, "int4", KEPT + matrices(lambda n, k: n * k // 2 + up(k, 128) * (2 * n + n // 2))),
    ("nf4", BNB, "nf4", KEPT + matrices(lambda n, k: n * k // 2 + n * k // 16 + 64)),
    ("llm.int8", BNB | {"load_in_4bit": False, "load_in_8bit": True}, "int8", KEPT + matrices(lambda n, k: n * k + 4 * n + 1)),
    (
        "ct pack-quantized",
        group("pack-quantized", {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32}),
        "int4",
        KEPT + matrices(lambda n, k: n * k // 2 + 2 * n * k // 32 + 16),
    ),
    (
        "ct pack-quantized, zero points and order",
        group(
            "pack-quantized",
            {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": False, "actorder": "group"},
        ),
        "int4",
        KEPT + matrices(lambda n, k: n * k // 2 + up(k, 128) * (2 * n + n // 2) + 4 * k + 16),
    ),
    (
        "ct int8 channel",
        group("int-quantized", {"type": "int", "num_bits": 8, "strategy": "channel"}, {"dynamic": True}),
        "int8",
        KEPT + matrices(lambda n, k: n * k + 2 * n),
    ),
    (
        "ct fp8 tensor, static",
        group("float-quantized", {"type": "float", "num_bits": 8, "strategy": "tensor"}, {"dynamic": False}),
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 4),
    ),
    (
        "ct fp8 blocks",
        group(
            "float-quantized",
            {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128]},
            {"dynamic": True},
        ),
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 2 * up(n, 128) * up(k, 128)),
    ),
    (
        "ct nvfp4",
        group(
            "nvfp4-pack-quantized",
            {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
            {"dynamic": "local"},
        ),
        "nvfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 16 + 8),
    ),
    (
        "ct nvfp4, weights only",
        group("nvfp4-pack-quantized", {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16}),
        "nvfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 16 + 4),
    ),
    (
        "ct mxfp4",
        group(
            "mxfp4-pack-quantized",
            {"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
        ),
        "mxfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 32),
    ),
    (
        "modelopt fp8",
        {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 8),
    ),
    (
        "modelopt nvfp4",
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
        "nvfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 16 + 8),
    ),
    (
        "modelopt w4a16 nvfp4",
        {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "exclude_modules": ["lm_head"]},
        "nvfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 16 + 4),
    ),
    (
        "modelopt mxfp8",
        {"quant_method": "modelopt", "quant_algo": "MXFP8", "exclude_modules": ["lm_head"]},
        "mxfp8",
        KEPT + matrices(lambda n, k: n * k + n * k // 32),
    ),
    (
        "quark fp8",
        {
            "quant_method": "quark",
            "exclude": ["lm_head"],
            "layer_quant_config": {},
            "export": {"kv_cache_group": []},
            "global_quant_config": {
                "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
                "input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": False},
            },
        },
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 8),
    ),
    (
        "quark mxfp4",
        {
            "quant_method": "quark",
            "exclude": ["lm_head"],
            "layer_quant_config": {},
            "export": {},
            "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}},
        },
        "mxfp4",
        KEPT + matrices(lambda n, k: n * k // 2 + n * k // 32),
    ),
    (
        "torchao int4",
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}},
            "modules_to_not_convert": [],
        },
        "int4",
        KEPT + matrices(lambda n, k: n * k // 2 + 4 * n * up(k, 128)),
    ),
    (
        "torchao fp8 rows",
        {
            "quant_method": "torchao",
            "quant_type": {
                "default": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {"granularity": [{"_type": "PerRow"}]}}
            },
        },
        "fp8",
        KEPT + matrices(lambda n, k: n * k + 4 * n),
    ),
    (
        "hqq",
        {
            "quant_method": "hqq",
            "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}},
            "skip_modules": ["lm_head"],
        },
        "int4",
        KEPT + matrices(lambda n, k: n * k // 2 + 4 * n * k // 64),
    ),
    ("eetq", {"quant_method": "eetq", "weights": "int8"}, "int8", KEPT + matrices(lambda n, k: n * k + 2 * n)),
    (
        "auto-round",
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "sym": True,
            "data_type": "int",
            "packing_format": "auto_round:auto_gptq",
        },
        "int4",
        KEPT + matrices(lambda n, k: gptq_bytes(4, 128)(n, k) - 4 * k),
    ),
    (
        "aqlm",
        {
            "quant_method": "aqlm",
            "in_group_size": 8,
            "out_group_size": 1,
            "nbits_per_codebook": 16,
            "num_codebooks": 1,
            "linear_weights_not_to_quantize": ["lm_head"],
        },
        "aqlm",
        KEPT + matrices(lambda n, k: n * k // 4 + 2**20 + 2 * n),
    ),
]


@pytest.mark.parametrize(("quant", "word", "expected"), [m[1:] for m in METHODS], ids=[m[0] for m in METHODS])
def test_bytes_of_each_method(quant: dict[str, Any], word: str, expected: int) -> None:
    """Every method gives its short word and the bytes of its files, and leaves embedding, head and norms at 16 bit."""
    m = model(quant)
    assert m.published.format == word
    assert int(size(m)) == expected
