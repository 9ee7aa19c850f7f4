"""A GGUF header as the config.json that its family publishes, so that the one reader of configs reads GGUF files too.

Keys are llama.cpp's (gguf-py 0.19.0, constants.py: Keys); what they hold follows its converter (convert_hf_to_gguf.py). What the
metadata does not say is read off the tensors: tied heads, biases, the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpufit.errors import ConfigError
from gpufit.sources.gguf import GgufHeader, Passed

Fields = dict[str, Any]


class Keys:
    """A header's metadata under its architecture's prefix, and its tensors by name."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.arch = header.architecture
        self.tensors = {t.name: t for t in header.tensors}

    def raw(self, key: str) -> Any:
        """The value of `{architecture}.key`, or None."""
        return self.header.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str) -> int | None:
        """A whole number, or None when absent. A list whose entries agree counts as the number; one that differs is refused."""
        value = self.raw(key)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            value = value[0]
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(
                f"{self.header.where}: {self.arch}.{key} is {value!r}, expected a whole number",
                hint="models whose layers differ there are not read from GGUF; their config.json may be",
            )
        return value

    def need(self, key: str) -> int:
        """A positive number that must be there."""
        value = self.number(key)
        if value is None or value <= 0:
            has = "has no" if value is None else f"says {value} for"
            raise ConfigError(f"{self.header.where} {has} {self.arch}.{key}", hint="convert it anew with a current llama.cpp")
        return value

    def each(self, key: str, layers: int) -> list[int]:
        """One number for each layer."""
        value = self.raw(key)
        if isinstance(value, list):
            if len(value) < layers:
                raise ConfigError(
                    f"{self.header.where}: {self.arch}.{key} has {len(value)} entries for {layers} layers",
                    hint="the file is damaged",
                )
            return [int(v) for v in value[:layers]]
        return [self.need(key)] * layers

    def has(self, tensor: str) -> bool:
        """Whether a tensor stands in the first layer that could have it: `{i}` is any layer."""
        if "{i}" not in tensor:
            return tensor in self.tensors
        before, after = tensor.split("{i}")
        return any(name.startswith(before) and name.endswith(after) for name in self.tensors)

    @property
    def layers(self) -> int:
        """Decoder layers, draft layers left out."""
        return self.need("block_count") - (self.number("nextn_predict_layers") or 0)

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding: what is stored, padding included."""
        embedding = self.tensors.get("token_embd.weight")
        if embedding is not None and len(embedding.dims) == 2:
            return embedding.dims[1]
        tokens = self.header.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Passed):
            return tokens.length
        return len(tokens) if isinstance(tokens, list) else self.need("vocab_size")


def _basics(k: Keys) -> Fields:
    fields: Fields = {
        "hidden_size": k.need("embedding_length"),
        "num_hidden_layers": k.layers,
        "vocab_size": k.vocabulary,
        "tie_word_embeddings": not k.has("output.weight"),
        "torch_dtype": "float16",  # llama.cpp's cache default; the weights have their own types
    }
    if (limit := k.number("context_length")) is not None:
        fields["max_position_embeddings"] = limit
    return fields


def _heads(k: Keys) -> Fields:
    heads = k.need("attention.head_count")
    kv = k.number("attention.head_count_kv")
    dim = k.number("attention.key_length")
    fields: Fields = {"num_attention_heads": heads, "num_key_value_heads": kv if kv is not None else heads}
    fields["head_dim"] = dim if dim is not None else k.need("embedding_length") // heads
    value = k.number("attention.value_length")
    if value is not None and value != fields["head_dim"]:
        raise ConfigError(
            f"{k.header.where}: keys of {fields['head_dim']} and values of {value} in architecture {k.arch}",
            hint="this family's reader knows one width for both",
        )
    return fields


def _dense(k: Keys, model_type: str, *, width: str = "feed_forward_length", biases: bool = False) -> Fields:
    """The common fields; `biases` for families whose configs say whether they have any."""
    fields: Fields = {"model_type": model_type, **_basics(k), **_heads(k), "intermediate_size": k.need(width)}
    if biases:
        fields["attention_bias"] = k.has("blk.{i}.attn_q.bias") or k.has("blk.{i}.attn_qkv.bias")
        fields["mlp_bias"] = k.has("blk.{i}.ffn_up.bias")
    return fields


def _plain(model_type: str, *, biases: bool = False) -> Callable[[Keys], Fields]:
    """A family in which every layer is full attention with a dense MLP."""
    return lambda k: _dense(k, model_type, biases=biases)


def _llama(k: Keys) -> Fields:
    experts = k.number("expert_count")
    if experts:
        return {**_dense(k, "mixtral"), "num_local_experts": experts, "num_experts_per_tok": k.need("expert_used_count")}
    window = k.number("attention.sliding_window")
    return {**_dense(k, "mistral"), "sliding_window": window} if window else _dense(k, "llama", biases=True)


def _windows(k: Keys, period: int) -> Fields:
    """Every `period`-th layer is full and the others slide, unless the file says it otherwise."""
    pattern = k.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) < k.layers:
            raise ConfigError(
                f"{k.header.where}: its window pattern has {len(pattern)} entries for {k.layers} layers", hint="the file is damaged"
            )
        sliding = [bool(v) for v in pattern[: k.layers]]
    else:
        step = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) else period
        sliding = [step > 0 and bool((i + 1) % step) for i in range(k.layers)]
    return {
        "sliding_window": k.need("attention.sliding_window"),
        "layer_types": ["sliding_attention" if s else "full_attention" for s in sliding],
    }


def _windowed(model_type: str, period: int) -> Callable[[Keys], Fields]:
    """A dense family with sliding layers."""
    return lambda k: {**_dense(k, model_type), **_windows(k, period)}


def _phi3(k: Keys) -> Fields:
    """The converter writes 0 where the config has no window (Phi-4)."""
    return {**_dense(k, "phi3"), "sliding_window": k.number("attention.sliding_window") or None}


def _gpt_oss(k: Keys) -> Fields:
    fields = {**_dense(k, "gpt_oss", width="expert_feed_forward_length"), **_windows(k, 2), "attention_bias": True}
    return {**fields, "num_local_experts": k.need("expert_count"), "num_experts_per_tok": k.need("expert_used_count")}


def _qwen_experts(k: Keys) -> Fields:
    fields: Fields = {
        "num_experts": k.need("expert_count"),
        "num_experts_per_tok": k.need("expert_used_count"),
        "moe_intermediate_size": k.need("expert_feed_forward_length"),
    }
    if k.has("blk.{i}.ffn_up_shexp.weight"):
        fields["shared_expert_intermediate_size"] = k.number("expert_shared_feed_forward_length") or fields["moe_intermediate_size"]
    return fields


def _qwen_moe(model_type: str) -> Callable[[Keys], Fields]:
    def build(k: Keys) -> Fields:
        width = "feed_forward_length" if k.number("feed_forward_length") else "expert_feed_forward_length"
        return {**_dense(k, model_type, width=width), **_qwen_experts(k)}

    return build


def _qwen_hybrid(model_type: str) -> Callable[[Keys], Fields]:
    """Gated DeltaNet beside full attention: the state-space keys hold the linear layers' heads and widths."""

    def build(k: Keys) -> Fields:
        moe = bool(k.number("expert_count"))
        width = "feed_forward_length" if k.number("feed_forward_length") else "expert_feed_forward_length"
        values = k.need("ssm.time_step_rank")
        fields = {
            **_dense(k, model_type, width=width),
            "full_attention_interval": k.number("full_attention_interval") or 4,
            "linear_conv_kernel_dim": k.need("ssm.conv_kernel"),
            "linear_key_head_dim": k.need("ssm.state_size"),
            "linear_num_key_heads": k.need("ssm.group_count"),
            "linear_num_value_heads": values,
            "linear_value_head_dim": k.need("ssm.inner_size") // values,
        }
        return {**fields, **_qwen_experts(k)} if moe else fields

    return build


def _deepseek2(k: Keys) -> Fields:
    """Latent attention. Newer files state the heads' own widths under *_mla; the plain ones then describe the stored latent."""
    rope = k.need("rope.dimension_count")
    key = k.number("attention.key_length_mla") or k.need("attention.key_length")
    corrected = k.has("blk.{i}.exp_probs_b.bias") or k.has("blk.{i}.exp_probs_b")
    return {
        **_basics(k),
        "model_type": "deepseek_v3" if corrected else "deepseek_v2",
        "num_attention_heads": k.need("attention.head_count"),
        "q_lora_rank": k.number("attention.q_lora_rank"),
        "kv_lora_rank": k.need("attention.kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": k.number("attention.value_length_mla") or k.need("attention.value_length"),
        "intermediate_size": k.need("feed_forward_length"),
        **_experts_after_dense(k),
        "topk_method": "noaux_tc" if corrected else "greedy",
        "moe_layer_freq": 1,
    }


def _experts_after_dense(k: Keys) -> Fields:
    return {
        "n_routed_experts": k.need("expert_count"),
        "n_shared_experts": k.number("expert_shared_count") or 0,
        "num_experts_per_tok": k.need("expert_used_count"),
        "moe_intermediate_size": k.need("expert_feed_forward_length"),
        "first_k_dense_replace": k.number("leading_dense_block_count") or 0,
    }


def _all_experts(
    model_type: str, *, width: str = "feed_forward_length", count: str = "num_local_experts"
) -> Callable[[Keys], Fields]:
    """A family with the same mixture in every layer."""

    def build(k: Keys) -> Fields:
        fields = _dense(k, model_type, width=width)
        return {**fields, count: k.need("expert_count"), "num_experts_per_tok": k.need("expert_used_count")}

    return build


def _granite_moe(k: Keys) -> Fields:
    return {**_all_experts("granitemoe")(k), "shared_intermediate_size": k.number("expert_shared_feed_forward_length") or 0}


def _dots1(k: Keys) -> Fields:
    return {**_dense(k, "dots1"), **_experts_after_dense(k), "sliding_window": None}


def _exaone4(k: Keys) -> Fields:
    """The small one has no window, and all of its layers are full."""
    return {**_dense(k, "exaone4"), **(_windows(k, 4) if k.number("attention.sliding_window") else {"sliding_window": None})}


def _llama4(k: Keys) -> Fields:
    """Chunks of 8,192 tokens but for every fourth layer, which llama.cpp holds as constants (llama-model.cpp)."""
    return {
        **_all_experts("llama4_text", width="expert_feed_forward_length")(k),
        "intermediate_size_mlp": k.need("feed_forward_length"),
        "interleave_moe_layer_step": k.need("interleave_moe_layer_step"),
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
    }


def _mamba2(k: Keys) -> Fields:
    """The state-space widths by the names of Nemotron-H."""
    heads = k.need("ssm.time_step_rank")
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": k.need("ssm.inner_size") // heads,
        "ssm_state_size": k.need("ssm.state_size"),
        "n_groups": k.need("ssm.group_count"),
        "conv_kernel": k.need("ssm.conv_kernel"),
        "use_conv_bias": k.has("blk.{i}.ssm_conv1d.bias"),
    }


def _nemotron_h(k: Keys) -> Fields:
    """Each layer is one thing: attention where it has KV heads, an MLP or experts where it has a width, else a mixer."""
    kv, widths = k.each("attention.head_count_kv", k.layers), k.each("feed_forward_length", k.layers)
    experts = k.number("expert_count") or 0
    signs = []
    for i in range(k.layers):
        mlp = "E" if f"blk.{i}.ffn_gate_inp.weight" in k.tensors else "-" if widths[i] else "M"
        signs.append("*" if kv[i] else mlp)
    fields: Fields = {
        **_basics(k),
        "model_type": "nemotron_h",
        "num_attention_heads": max(k.each("attention.head_count", k.layers)),
        "num_key_value_heads": max(kv),
        "head_dim": k.need("attention.key_length"),
        "hybrid_override_pattern": "".join(signs),
        "intermediate_size": max(widths),
        **_mamba2(k),
    }
    if experts:
        fields |= {
            "n_routed_experts": experts,
            "num_experts_per_tok": k.need("expert_used_count"),
            "moe_intermediate_size": k.need("expert_feed_forward_length"),
            "n_shared_experts": k.number("expert_shared_count") or 0,
            "moe_shared_expert_intermediate_size": k.number("expert_shared_feed_forward_length") or 0,
        }
        if (latent := k.number("moe_latent_size")) is not None:
            fields["moe_latent_size"] = latent
    return fields


def _glm4_moe(k: Keys) -> Fields:
    fields = {**_dense(k, "glm4_moe", biases=True), **_experts_after_dense(k), "use_qk_norm": k.has("blk.{i}.attn_q_norm.weight")}
    del fields["mlp_bias"]
    return fields


def _lfm2(k: Keys) -> Fields:
    """Layers without KV heads are short convolutions."""
    kv = k.each("attention.head_count_kv", k.layers)
    heads = k.need("attention.head_count")
    return {
        **_basics(k),
        "model_type": "lfm2",
        "num_attention_heads": heads,
        "num_key_value_heads": max(kv),
        "intermediate_size": k.need("feed_forward_length"),
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": k.need("shortconv.l_cache"),
        "layer_types": ["full_attention" if n else "conv" for n in kv],
    }


BUILDERS: Mapping[str, Callable[[Keys], Fields]] = {
    "llama": _llama,
    "mistral3": _plain("ministral3"),
    "qwen2": _plain("qwen2"),
    "qwen2vl": _plain("qwen2"),
    "qwen2moe": _qwen_moe("qwen2_moe"),
    "qwen3": _plain("qwen3"),
    "qwen3vl": _plain("qwen3"),
    "qwen3moe": _qwen_moe("qwen3_moe"),
    "qwen3vlmoe": _qwen_moe("qwen3_moe"),
    "qwen3next": _qwen_hybrid("qwen3_next"),
    "qwen35": _qwen_hybrid("qwen3_5_text"),
    "qwen35moe": _qwen_hybrid("qwen3_5_moe_text"),
    "gemma": _plain("gemma"),
    "gemma2": _windowed("gemma2", 2),
    "gemma3": _windowed("gemma3_text", 6),
    "cohere2": _windowed("cohere2", 4),
    "phi3": _phi3,
    "gpt-oss": _gpt_oss,
    "deepseek2": _deepseek2,
    "glm4": _plain("glm4", biases=True),
    "glm4moe": _glm4_moe,
    "granite": _plain("granite", biases=True),
    "command-r": _plain("cohere"),
    "olmo2": _plain("olmo2"),
    "smollm3": _plain("smollm3"),
    "internlm2": _plain("internlm2"),
    "seed_oss": _plain("seed_oss", biases=True),
    "hunyuan-dense": _plain("hunyuan_v1_dense"),
    "ernie4_5": _plain("ernie4_5"),
    "lfm2": _lfm2,
    "granitemoe": _granite_moe,
    "olmoe": _all_experts("olmoe", count="num_experts"),
    "minimax-m2": _all_experts("minimax_m2", width="expert_feed_forward_length"),
    "dots1": _dots1,
    "exaone4": _exaone4,
    "llama4": _llama4,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
}
"""By llama.cpp's architecture name."""


def config_of(header: GgufHeader) -> Fields:
    """The config.json fields of a header. Raises `ConfigError` for an architecture that has no mapping, or a missing key."""
    arch = header.architecture
    build = BUILDERS.get(arch)
    if build is None:
        kind = header.metadata.get("general.type")
        if arch in ("clip", "mmproj") or kind in ("mmproj", "adapter", "imatrix"):
            raise ConfigError(f"{header.where} is no language model ({kind or arch})", hint="name the model's own .gguf file")
        raise ConfigError(
            f"{header.where}: GGUF architecture {arch!r} is not known" if arch else f"{header.where} names no architecture",
            hint=f"its KV cache is not guessed; known are {', '.join(sorted(BUILDERS))}. The model's config.json may be readable",
        )
    keys = Keys(header)
    _hold_to_blocks(keys)
    return build(keys)


def _hold_to_blocks(keys: Keys) -> None:
    """Refuses a file that has not tensors for every layer that its metadata counts."""
    if keys.raw("block_count") is None:
        return  # the family's reader says what is missing
    stated = keys.need("block_count")
    stored = {int(m[1]) for name in keys.tensors if (m := re.match(r"blk\.(\d+)\.", name))}
    if stored != set(range(len(stored))) or len(stored) not in (stated, keys.layers):
        raise ConfigError(
            f"{keys.header.where} counts {stated:,} layers and has tensors for {len(stored):,}",
            hint="the file is damaged, or a part of a split model",
        )
