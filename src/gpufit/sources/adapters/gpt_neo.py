"""GPT-Neo: layers that look at everything and layers that look at the last `window_size` tokens, in turn."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, inner_width, norms, output, windows
from gpufit.sources.patterns import FULL, SLIDING, per_layer, window_of

CLASS = "GPTNeoConfig (transformers 5.24.0)"
WORDS = {"global": FULL, "local": SLIDING}


def read(config: Config) -> Decoder:
    """`attention_types` lists patterns with a number of repeats each; `attention_layers` spells the same out."""
    d = basics(config, CLASS, tie=True, prefix="transformer.", vocab_size=50257, max_position_embeddings=2048, window_size=256)
    windows(d, window_of(config, "window_size"), _kinds(d))
    output(d, module="wte")
    d.part(
        "position embedding",
        Role.EMBEDDING,
        "wpe",
        config.count("max_position_embeddings", symbol="n_pos", label="learned positions"),
        d.hidden,
    )
    d.attention(d.all, out_bias=True, module="h.{i}.attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj"))
    d.mlp(d.all, inner_width(d, "intermediate_size"), gated=False, bias=True, module="h.{i}.mlp", names=("", "c_fc", "c_proj"))
    norms(d, (("attention norm", "ln_1"), ("MLP norm", "ln_2")), final="ln_f", bias=True, module="h.{i}.")
    return d


def _kinds(d: Decoder) -> list[str]:
    """One word a layer; by default global and local in turn."""
    total = int(d.num_layers)
    words = per_layer(d.config, "attention_layers", total)
    d.config.ignore("attention_types")
    if words is None:
        listed = d.config.items("attention_types") or [[["global", "local"], total // 2]]
        words = [word for pattern, repeats in listed for _ in range(repeats) for word in pattern]
    if len(words) != total or set(words) - set(WORDS):
        raise ConfigError(
            f"{d.config.where('attention_types')} names {len(words)} layers of {total}",
            hint="global and local layers, one word each",
        )
    return [WORDS[word] for word in words]
