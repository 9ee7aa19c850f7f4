"""RWKV-5 (Eagle): time mixing with a matrix state per head, and channel mixing."""

from __future__ import annotations

from gpufit.layers.rwkv import Rwkv
from gpufit.model import Role, Shard
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, fact
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults

MODEL_TYPES = ("rwkv5",)
INERT = frozenset({"head_size_divisor", "rescale_every", "num_attention_heads", "model_version"})
"""`num_attention_heads` is not what the class takes: heads are hidden size by head size."""


def read(config: Config) -> Decoder:
    """The repositories' own Rwkv5Config and modeling_rwkv5: the stated MLP width is not used, and states are kept at fp32."""
    class_defaults(
        config, "Rwkv5Config (published with the model)",
        {"vocab_size": 65536, "hidden_size": 768, "num_hidden_layers": 24, "head_size": 64, "tie_word_embeddings": False},
    )  # fmt: skip
    d = open_decoder(config, tie_default=False, prefix="rwkv.", standard_heads=False)
    config.ignore("intermediate_size")
    d.max_context = d.max_context or config.maybe(
        "context_length", symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE
    )
    if d.tied:
        d.tied = False
        d.assumptions.append(
            "tie_word_embeddings is true in the config, but RWKV-5 checkpoints hold an output head of their own: it is counted"
        )
    hidden = d.hidden
    size = config.count("head_size", symbol="d_w", label="head size")
    heads = (hidden // size).as_step("h_w", "RWKV heads")
    inner = config.maybe("attention_hidden_size", symbol="I_w", label="time-mixing width") or hidden
    kind = Rwkv(
        width=hidden, heads=heads, head_dim=size, conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config, default=Default(value="float32", source="modeling_rwkv5 (published with the model)")),
    )  # fmt: skip
    d.layer(kind, d.all)
    at, mixing, role = d.all, "blocks.{i}.attention", Role.STATE
    for name in ("key", "value", "receptance", "gate"):
        d.linear(f"time {name}", role, f"{mixing}.{name}", inner, hidden, layers=at, shard=Shard.COLUMN)
        d.part(f"time_mix_{name}", role, f"{mixing}.time_mix_{name}", hidden, layers=at)
    d.linear("time output", role, f"{mixing}.output", hidden, inner, layers=at, shard=Shard.ROW)
    for name in ("time_decay", "time_faaaa"):
        d.part(name, role, f"{mixing}.{name}", heads, size, layers=at, shard=Shard.COLUMN)
    d.norm("time norm", f"{mixing}.ln_x", layers=at, bias=True)
    ratio = fact("3.5", NUMBER, symbol="r", name="MLP width by hidden size", origin="modeling_rwkv5 (published with the model)")
    width = (hidden * ratio // 32 * 32).as_step("I", "MLP width")
    mlp = "blocks.{i}.feed_forward"
    d.linear("channel key", Role.MLP, f"{mlp}.key", width, hidden, layers=at, shard=Shard.COLUMN)
    d.linear("channel receptance", Role.MLP, f"{mlp}.receptance", hidden, hidden, layers=at, shard=Shard.COLUMN)
    d.linear("channel value", Role.MLP, f"{mlp}.value", hidden, width, layers=at, shard=Shard.ROW)
    for name in ("key", "receptance"):
        d.part(f"channel_mix_{name}", Role.MLP, f"{mlp}.time_mix_{name}", hidden, layers=at)
    output(d, module="embeddings", head="/head")
    d.norm("first norm", "blocks.{i}.pre_ln", layers=(0,), bias=True)
    d.norm("time-mixing norm", "blocks.{i}.ln1", layers=at, bias=True)
    d.norm("channel-mixing norm", "blocks.{i}.ln2", layers=at, bias=True)
    d.norm("final norm", "ln_out", bias=True)
    say_defaults(d)
    return d
