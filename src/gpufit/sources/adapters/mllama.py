"""Llama 3.2 Vision: a Llama text model with cross-attention layers between its own, and a two-stage vision tower."""

from __future__ import annotations

from dataclasses import replace

from gpufit.errors import ConfigError
from gpufit.layers.cross import Cross
from gpufit.model import Role, Shard
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.dense import basics, norms, width
from gpufit.sources.nested import open_text, outer_tied, relocate, set_tied
from gpufit.sources.patterns import class_defaults, without
from gpufit.sources.towers import Tower, depth_of, image_of, inner_of, patch_of, projector, width_of

MODEL_TYPES = ("mllama", "mllama_text_model")
ARCHITECTURES = ("MllamaForConditionalGeneration", "MllamaForCausalLM")
CROSS = [3, 8, 13, 18, 23, 28, 33, 38]
VISION = class_defaults(
    "MllamaVisionConfig (transformers 5.24.0)", hidden_size=1280, num_hidden_layers=32, num_global_layers=8, intermediate_size=5120,
    vision_output_dim=7680, image_size=448, patch_size=14, max_num_tiles=4,
)  # fmt: skip
NAMES = ("q_proj", "k_proj", "v_proj", "o_proj")


def read(config: Config) -> Decoder:
    """Cross-attention layers keep keys and values of the image's tokens, not of the text.

    The tower gives `max_num_tiles` tiles of an image, padded to that number, each of its patches and a class token.
    """
    v = config.sub("vision_config")
    text = config if config.path or config.text("model_type") == "mllama_text_model" else open_text(config, "text_config")
    d = basics(
        text, "MllamaTextConfig (transformers 5.24.0)", tie=False, vocab_size=128256, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072,
    )  # fmt: skip
    listed = text.items("cross_attention_layers")
    cross = tuple(CROSS if listed is None else listed)
    if any(not isinstance(i, int) or i not in d.all for i in cross):
        raise ConfigError(
            f"{text.where('cross_attention_layers')} names layers that are not there: {list(cross)}", hint="check the config.json"
        )
    own = without(d.all, cross)
    d.full(own)
    if v is not None:
        v.fall_back(VISION)
        tokens = _image_tokens(v)
        d.layer(
            Cross(
                attention_heads=d.need(d.attention_heads),
                kv_heads=d.need(d.kv_heads),
                head_dim=d.need(d.head_dim),
                encoder_tokens=tokens,
            ),
            cross,
        )
        d.assumptions.append("cross-attention layers are sized for one image a sequence, at its full number of tiles")
    # Eight more rows than the head for special image tokens (MllamaTextModel).
    extra = text.item(8, "vocab_size", symbol="V_x", label="embedding rows beyond the vocabulary")
    _weights(d, own, cross, extra)
    set_tied(d, outer_tied(config, False))
    relocate(d, inside="language_model.")
    if v is not None:
        _tower(d, v)
    return d


def _weights(d: Decoder, own: tuple[int, ...], cross: tuple[int, ...], extra: Q) -> None:
    d.embedding()
    head = [p for p in d.parts if p.role is Role.HEAD]
    d.parts.clear()
    d.part("token embedding", Role.EMBEDDING, "embed_tokens", d.need(d.vocab) + extra, d.hidden, shard=Shard.VOCAB)
    d.parts.extend(head)
    d.attention(own)
    d.attention(cross, module="layers.{i}.cross_attn", qk_norm="head")
    one = d.config.item(1, "cross_attention_layers", symbol="one", label="one gate value")
    for gate in ("cross_attn_attn_gate", "cross_attn_mlp_gate"):
        d.part(gate.replace("_", " "), Role.ATTENTION, f"layers.{{i}}.{gate}", one, layers=cross)
    d.mlp(d.all, width(d))
    norms(d)


def _image_tokens(v: Config) -> Q:
    edge = image_of(v) // patch_of(v)
    tiles = v.count("max_num_tiles", symbol="n_tile", label="tiles of one image", unit=TOKEN_PER_SEQUENCE)
    return (tiles * (edge * edge + 1)).as_step("n_img", "tokens of one image")


def _tower(d: Decoder, v: Config) -> None:
    """Two stacks of blocks; positions of patches and tiles are added behind gates."""
    v.ignore("attention_heads", "intermediate_layers_indices")
    tower_width, inner, patch = width_of(v, "hidden_size"), inner_of(v, "intermediate_size"), patch_of(v)
    edge = image_of(v) // patch
    tokens = edge * edge + 1
    tiles = v.count("max_num_tiles", symbol="n_tile", label="tiles of one image")
    ratios = v.items("supported_aspect_ratios")
    known = v.item(len(ratios) if ratios is not None else 8, "supported_aspect_ratios", symbol="n_ar", label="aspect ratios") + 1
    t = Tower(
        decoder=d, role=Role.VISION, width=tower_width, prefix="vision_model.", depth=depth_of(v, "num_hidden_layers"),
        block="transformer.layers.{e}.",
    )  # fmt: skip
    one = v.item(1, "max_num_tiles", symbol="one", label="one gate value")
    t.part("class token", "class_embedding", tower_width)
    t.patches("patch_embedding", 3 * patch * patch, bias=False)
    t.part("positions", "gated_positional_embedding.embedding", tokens, tower_width)
    t.part("position gate", "gated_positional_embedding.gate", one)
    t.part("tile positions", "gated_positional_embedding.tile_embedding", known, tiles * tokens * tower_width)
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        t.part(name.replace("_", " "), f"{name}.embedding", known, tiles * tower_width)
        t.part(f"{name} gate".replace("_", " "), f"{name}.gate", one)
    t.norm("norm before blocks", "layernorm_pre", bias=True)
    t.norm("norm after blocks", "layernorm_post", bias=True)
    late = v.count("num_global_layers", symbol="L_vg", label="global tower blocks")
    g = replace(t, depth=late, block="global_transformer.layers.{e}.", label="global vision ")
    for stack in (t, g):
        stack.attention("self_attn", NAMES, bias=False)
        stack.mlp(inner)
        stack.norms("input_layernorm", "post_attention_layernorm", bias=True)
    for gate in ("gate_attn", "gate_ffn"):
        g.part(gate, gate, one, each=True)
    out = v.count("vision_output_dim", symbol="H_vo", label="tower output width")
    projector(d, "", out).matrix("projection", "multi_modal_projector", d.hidden, out, bias=True)
