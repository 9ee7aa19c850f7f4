"""A small Llama whose checkpoints are worked out by hand, and the declarations that several tests start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufit.formats.checkpoint import checkpoint_bytes
from gpufit.model import Model
from gpufit.quantity import Q
from gpufit.sources.read import read_model

H, WIDE, V, L, KV = 256, 512, 1000, 2, 128
"""Width, MLP width, vocabulary, layers, and rows of the key projection of the small model below."""
LINEARS = [(H, H), (KV, H), (KV, H), (H, H), (WIDE, H), (WIDE, H), (H, WIDE)]
"""Output and input features of a layer's seven matrices."""
KEPT = 2 * (2 * V * H + L * 2 * H + H)
"""Bytes of embedding, head and norms at 16 bit."""

LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": H, "intermediate_size": WIDE, "vocab_size": V,
    "num_hidden_layers": L, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip


def model(quant: Mapping[str, Any] | None, *, key: str = "quantization_config", hf_quant: Any = None, **more: Any) -> Model:
    data = LLAMA | more
    if quant is not None:
        data = data | {key: dict(quant)}
    return read_model(data, id="test/small", hf_quant=hf_quant)


def size(m: Model) -> Q:
    assert m.published.recipe is not None, m.published.detail
    return checkpoint_bytes(m, m.published.recipe, with_draft=False)


def matrices(each: Any) -> int:
    """The bytes of all quantised matrices, from a rule for one of n x k."""
    return L * sum(int(each(n, k)) for n, k in LINEARS)


def up(a: int, b: int) -> int:
    return -(-a // b)


CT = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "kv_cache_scheme": None, "quantization_status": "compressed"}


def group(form: str, weights: Mapping[str, Any], inputs: Any = None, targets: tuple[str, ...] = ("Linear",)) -> dict[str, Any]:
    plain = {"dynamic": False, "symmetric": True, "group_size": None, "block_structure": None, "actorder": None}
    return CT | {
        "format": form,
        "config_groups": {"group_0": {"targets": list(targets), "weights": plain | dict(weights), "input_activations": inputs}},
    }


GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 128,
    "desc_act": False,
    "sym": True,
    "damp_percent": 0.01,
    "true_sequential": True,
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
BNB = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "load_in_8bit": False,
    "bnb_4bit_quant_type": "nf4",
    "llm_int8_skip_modules": None,
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}


def gptq_bytes(bits: int, g: int) -> Any:
    return lambda n, k: n * k * bits // 8 + up(k, g) * (2 * n + n * bits // 8) + 4 * k
