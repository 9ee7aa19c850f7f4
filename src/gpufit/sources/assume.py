"""A model of an unknown family under a stated assumption: plain full attention in every layer, when nothing in the config denies it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpufit.errors import ConfigError
from gpufit.model import Model
from gpufit.sources.config import is_off, suspicious
from gpufit.sources.decoder import CONTEXT_NAMES, HEAD_NAMES, HIDDEN_NAMES, LAYER_NAMES

_HARMLESS = frozenset(
    {
        "rope_scaling", "rope_parameters", "quantization_config", "compression_config", "auto_map", "generation_config",
        "task_specific_params", "id2label", "label2id",
    }
)  # fmt: skip
"""Nested fields that describe no part of the model's shape."""

_PLAIN = frozenset(
    {
        *HEAD_NAMES, *HIDDEN_NAMES, *LAYER_NAMES, *CONTEXT_NAMES, "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
        "attention_bias", "mlp_bias", "tie_word_embeddings",
    }
)  # fmt: skip
"""Fields that plain attention with a dense MLP has."""

_NEEDED = ("intermediate_size", "vocab_size")
_WIDTHS = ("n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "mlp_hidden_size", "inner_hidden_size", "d_inner")
"""Fields without which the MLP and the tables have no size, and the names that other families have for the first."""

_OTHER_KINDS = re.compile(
    r"(?i)moe|mamba|mixtral|expert|hybrid|ssm|rwkv|linear|delta|sparse|latent|mla|retnet|hyena|conv|griffin|xlstm|diffusion|audio|vision|vl\b"
)
"""Words in a family's or class's name that say its layers are not all plain attention."""


def dense_model(config: Mapping[str, Any], reader: Callable[[Mapping[str, Any]], Model], *, why: ConfigError, origin: str) -> Model:
    """The Model of a config read as a decoder with full attention and a gated MLP in every layer.

    `reader` reads a config whose model_type is known. Raises `ConfigError` when something in the config hints at another kind of layer:
    a field with a hinting name that plain attention does not have, a class name, a nested part, an encoder beside the decoder.
    """
    family = str(config.get("model_type") or "")
    listed = config.get("architectures") or []
    classes = [str(a) for a in listed] if isinstance(listed, list) else [str(listed)]
    found = [f"its name {name!r}" for name in (family, *classes) if _OTHER_KINDS.search(name)]
    found += [f"{k} is an object" for k, v in config.items() if isinstance(v, Mapping) and not is_off(v) and k not in _HARMLESS]
    found += [f"{name} = {config[name]!r}" for name in suspicious({k: v for k, v in config.items() if k not in _PLAIN | _HARMLESS})]
    if config.get("is_encoder_decoder"):
        found.append("is_encoder_decoder is true")
    found += [f"{name} is false" for name in ("is_causal", "causal") if config.get(name) is False]
    found += [f"it has no {name}, and no class whose default could stand for it" for name in _NEEDED if config.get(name) is None]
    width = config.get("intermediate_size")
    found += [f"{name} = {config[name]!r} beside intermediate_size" for name in _WIDTHS if config.get(name) not in (None, width)]
    if classes and not any(c.endswith(("ForCausalLM", "LMHeadModel")) for c in classes):
        found.append(f"no class of {', '.join(classes)} is a causal language model")
    if found:
        raise ConfigError(
            f"{why.message}; --assume-dense does not hold: {'; '.join(found)}",
            hint="only a config in which nothing hints at another kind of layer can be sized as plain full attention",
        )
    try:
        model = reader({**config, "model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    except ConfigError as error:
        raise ConfigError(
            f"{why.message}; --assume-dense does not hold: {error.message}", hint=error.hint.replace("'llama'", repr(family))
        ) from None
    said = f"model_type {family!r} is not known" if family else "there is no model_type"
    return replace(
        model,
        family=family,
        architecture=classes[0] if classes else "",
        assumptions=(
            f"--assume-dense: {said} in {origin}; every layer is taken as full attention with a gated MLP of the usual shape. "
            "The KV cache is right if that is so; the parameter count is an estimate",
            *model.assumptions,
        ),
    )
