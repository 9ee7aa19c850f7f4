"""Granite Speech: a conformer encoder, a Q-Former that makes few tokens of many frames, and a Granite text model."""

from __future__ import annotations

from gpufit.model import Role
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import outer_tied, text_model
from gpufit.sources.patterns import class_defaults
from gpufit.sources.towers import Tower, depth_of, width_of

ARCHITECTURES = ("GraniteSpeechForConditionalGeneration",)
SOURCE = "GraniteSpeechConfig (transformers 5.24.0)"
ENCODER = class_defaults(
    "GraniteSpeechEncoderConfig (transformers 5.24.0)", input_dim=160, num_layers=10, hidden_dim=1024, feedforward_mult=4, num_heads=8,
    dim_head=128, output_dim=42, max_pos_emb=512, conv_kernel_size=15, conv_expansion_factor=2,
)  # fmt: skip
QFORMER = class_defaults(
    "Blip2QFormerConfig (transformers 5.24.0)", hidden_size=768, num_hidden_layers=12, intermediate_size=3072, encoder_hidden_size=1408,
    cross_attention_frequency=2,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Ties by default. The adapter that the text model wears for speech stands in files of its own and is not counted."""
    d = text_model(
        config, inside="language_model.", model_type="granite", tied=outer_tied(config, Default(value=True, source=SOURCE))
    )
    if config.flag("has_lora_adapter", default=True):
        d.assumptions.append(
            "the low-rank adapter that the text model wears for speech stands in files of its own and is not counted"
        )
    e, q = config.sub("encoder_config"), config.sub("projector_config")
    if e is not None:
        _encoder(d, e)
    if q is not None:
        _qformer(d, config, q)
    return d


def _encoder(d: Decoder, e: Config) -> None:
    e.fall_back(ENCODER)
    e.ignore("context_size")
    width = width_of(e, "hidden_dim", letter="a")
    inner = e.count("feedforward_mult", symbol="r_a", label="audio MLP ratio") * width
    heads = e.count("num_heads", symbol="n_a", label="audio heads")
    dim = e.count("dim_head", symbol="d_a", label="audio head dimension")
    grown = e.count("conv_expansion_factor", symbol="x_a", label="convolution expansion") * width
    out = e.count("output_dim", symbol="H_ao", label="audio output width")
    t = Tower(
        decoder=d, role=Role.AUDIO, prefix="encoder.", width=width, depth=depth_of(e, "num_layers", letter="a"), block="layers.{e}.",
        split=False, label="audio ",
    )  # fmt: skip
    t.matrix("input", "input_linear", width, e.count("input_dim", symbol="n_mel", label="audio features"), bias=True)
    for half in ("ff1", "ff2"):
        t.norms(f"{half}.pre_norm", bias=True)
        t.matrix(f"{half} up", f"{half}.up_proj", inner, width, bias=True, each=True)
        t.matrix(f"{half} down", f"{half}.down_proj", width, inner, bias=True, each=True)
    t.norms("attn.pre_norm", "post_norm", "conv.norm", bias=True)
    t.matrix("q", "attn.to_q", heads * dim, width, each=True)
    t.matrix("kv", "attn.to_kv", 2 * heads * dim, width, each=True)
    t.matrix("attention output", "attn.to_out", width, heads * dim, bias=True, each=True)
    t.part(
        "relative positions",
        "attn.rel_pos_emb",
        2 * e.count("max_pos_emb", symbol="n_rel", label="relative positions") + 1,
        dim,
        each=True,
    )
    t.matrix("convolution in", "conv.up_conv", 2 * grown, width, bias=True, each=True)
    t.part(
        "convolution", "conv.depth_conv.conv", grown, e.count("conv_kernel_size", symbol="c_ak", label="audio kernel"), each=True
    )
    t.norm("convolution norm", "conv.batch_norm", grown, bias=True, each=True)
    t.matrix("convolution out", "conv.down_conv", width, grown, bias=True, each=True)
    t.matrix("output", "out", out, width, bias=True)
    t.matrix("output fed back", "out_mid", width, out, bias=True)


def _qformer(d: Decoder, config: Config, q: Config) -> None:
    q.fall_back(QFORMER)
    q.ignore("num_attention_heads", "vocab_size", "max_position_embeddings", "use_qformer_text_input", "position_embedding_type")
    width, depth = width_of(q, "hidden_size", letter="q"), depth_of(q, "num_hidden_layers", letter="q")
    inner = q.count("intermediate_size", symbol="I_q", label="Q-Former MLP width")
    keys = q.count("encoder_hidden_size", symbol="H_qk", label="width that the Q-Former attends to")
    every = q.integer("cross_attention_frequency")
    crossing = q.item(
        len(range(0, int(depth), max(1, every))),
        "cross_attention_frequency",
        symbol="L_qx",
        label="Q-Former layers that attend to audio",
    )
    window, rate = config.integer("window_size", default=15), config.integer("downsample_rate", default=5)
    queries = config.item(window // max(1, rate), "window_size", symbol="n_query", label="queries of one window")
    t = Tower(
        decoder=d,
        role=Role.PROJECTOR,
        prefix="projector.",
        width=width,
        depth=depth,
        block="qformer.encoder.layer.{e}.",
        label="Q-Former ",
    )
    t.part("queries", "query", queries, width)
    t.norm("norm", "qformer.layernorm", bias=True)
    for name in ("query", "key", "value"):
        t.matrix(name, f"attention.attention.{name}", width, width, bias=True, each=True)
    t.matrix("attention output", "attention.output.dense", width, width, bias=True, each=True)
    t.norms("attention.output.LayerNorm", "output_query.LayerNorm", bias=True)
    t.matrix("up", "intermediate_query.dense", inner, width, bias=True, each=True)
    t.matrix("down", "output_query.dense", width, inner, bias=True, each=True)
    x = Tower(
        decoder=d, role=Role.PROJECTOR, prefix="projector.", width=width, depth=crossing, block="qformer.encoder.layer.{e}.crossattention.",
        label="Q-Former cross ",
    )  # fmt: skip
    for name, columns in (("query", width), ("key", keys), ("value", keys)):
        x.matrix(name, f"attention.{name}", width, columns, bias=True, each=True)
    x.matrix("output", "output.dense", width, width, bias=True, each=True)
    x.norms("output.LayerNorm", bias=True)
    t.matrix("projection", "linear", d.hidden, width, bias=True)
