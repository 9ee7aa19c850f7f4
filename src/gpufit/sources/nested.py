"""The text model inside a multimodal config: its own family's reading, put in its place in the larger checkpoint.

Nested configs are published as differences from their class defaults, so a field that stands in no file still has a known value. The
defaults that occur are listed here by `model_type`, as the published classes of transformers 5.24.0 have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpufit.model import Role, Shard, WeightPart
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.patterns import class_defaults
from gpufit.sources.read import decoder_of

VERSION = "transformers 5.24.0"
_FIELDS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
           "max_position_embeddings")  # fmt: skip
_TEXT_CLASSES: dict[str, tuple[str, tuple[int | None, ...], dict[str, Any]]] = {
    "llama": ("LlamaConfig", (32000, 4096, 11008, 32, 32, None, None, 2048), {}),
    "mistral": ("MistralConfig", (32000, 4096, 14336, 32, 32, 8, None, 131072), {"sliding_window": 4096}),
    "ministral3": ("Ministral3Config", (131072, 4096, 14336, 34, 32, 8, 128, 262144), {}),
    "mixtral": ("MixtralConfig", (32000, 4096, 14336, 32, 32, 8, None, 131072), {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2Config", (151936, 4096, 22016, 32, 32, 32, None, 32768), {"sliding_window": 4096}),
    "qwen3": ("Qwen3Config", (151936, 4096, 22016, 32, 32, 32, 128, 32768), {"sliding_window": 4096}),
    "gemma": ("GemmaConfig", (256000, 3072, 24576, 28, 16, 16, 256, 8192), {}),
    "gemma2": ("Gemma2Config", (256000, 2304, 9216, 26, 8, 4, 256, 8192), {"sliding_window": 4096}),
    "gemma3_text": ("Gemma3TextConfig", (262208, 2304, 9216, 26, 8, 4, 256, 131072), {"sliding_window": 4096}),
    "phi": ("PhiConfig", (51200, 2048, 8192, 24, 32, None, None, 2048), {}),
    "phi3": ("Phi3Config", (32064, 3072, 8192, 32, 32, None, None, 4096), {}),
    "cohere2": ("Cohere2Config", (256000, 8192, 22528, 40, 64, None, None, 8192), {"sliding_window": 4096}),
    "granite": ("GraniteConfig", (32000, 4096, 11008, 32, 32, None, None, 2048), {}),
    "smollm3": ("SmolLM3Config", (128256, 2048, 11008, 36, 16, 4, None, 32768), {}),
    "glm4": ("Glm4Config", (151552, 4096, 13696, 40, 32, 2, 128, 131072), {"attention_bias": True}),
}


def text_defaults(model_type: str) -> dict[str, Default]:
    """The class defaults of a text config by field name; empty where the family publishes its configs whole."""
    known = _TEXT_CLASSES.get(model_type)
    if known is None:
        return {}
    name, basics, more = known
    values = {f: v for f, v in zip(_FIELDS, basics, strict=True) if v is not None} | more
    return class_defaults(f"{name} ({VERSION})", **values)


def open_text(config: Config, *names: str, model_type: str = "", defaults: Mapping[str, Default] | None = None) -> Config:
    """The nested text config with its class defaults behind it; `model_type` is meant where it names none.

    Raises `ConfigError` when no such object is there.
    """
    sub = config.sub(*names)
    if sub is None:
        raise config.missing(*names)
    if model_type and not sub.has("model_type"):
        sub.data = {**sub.data, "model_type": model_type}
    sub.fall_back(text_defaults(sub.text("model_type") or "") if defaults is None else defaults)
    return sub


def text_model(
    config: Config,
    *names: str,
    prefix: str = "",
    inside: str = "",
    model_type: str = "",
    tied: bool | None = None,
    reader: Callable[[Config], Decoder] | None = None,
) -> Decoder:
    """The decoder of the text model that `names` (default `text_config`) hold, with its module paths as the checkpoint has them.

    `prefix` replaces the decoder's own prefix ("model.language_model." for "model."), `inside` is put before every path, the head's
    included. `tied` overrides what the text config says of its head. `reader` replaces the family's own adapter.
    """
    sub = open_text(config, *(names or ("text_config",)), model_type=model_type)
    d = (reader or decoder_of)(sub)
    if tied is not None:
        set_tied(d, tied)
    relocate(d, prefix=prefix, inside=inside)
    return d


def outer_tied(config: Config, default: bool | Default, *names: str) -> bool:
    """Whether embedding and head are one: as the outer config says, else as the text config does, else the outer class's default."""
    if config.has("tie_word_embeddings"):
        return config.flag("tie_word_embeddings")
    sub = config.sub(*(names or ("text_config",)))
    if sub is not None and sub.has("tie_word_embeddings"):
        return sub.flag("tie_word_embeddings")
    return config.flag("tie_word_embeddings", default=default)


def set_tied(d: Decoder, tied: bool) -> None:
    """Makes the decoder's output head one with its embedding, or gives it one of its own."""
    if tied:
        d.parts[:] = [p for p in d.parts if not (p.role is Role.HEAD and p.columns is not None)]
    elif d.tied:
        d.part("output head", Role.HEAD, "/lm_head", d.need(d.vocab), d.hidden, shard=Shard.VOCAB, linear=True)
    d.tied = tied


def relocate(d: Decoder, *, prefix: str = "", inside: str = "") -> None:
    """Gives the decoder's parts the module paths that they have inside a larger checkpoint."""
    old = d.prefix

    def moved(part: WeightPart) -> WeightPart:
        path = part.module
        if prefix and path.startswith(old):
            path = prefix + path[len(old) :]
        return replace(part, module=inside + path)

    d.parts[:] = map(moved, d.parts)
    d.draft_parts[:] = map(moved, d.draft_parts)
    d.prefix = inside + (prefix or old)
