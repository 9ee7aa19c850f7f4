"""xLSTM 7B: mLSTM layers with a gated feed-forward block each."""

from __future__ import annotations

from gpufit.layers.xlstm import Mlstm
from gpufit.model import Role, Shard
from gpufit.quantity import NUMBER, Q, fact, floor, round_up
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults

MODEL_TYPES = ("xlstm",)
INERT = frozenset(
    {"chunkwise_kernel", "sequence_kernel", "step_kernel", "chunk_size", "return_last_states", "autocast_kernel_dtype",
     "max_inference_chunksize", "norm_reduction_force_float32", "gate_soft_cap", "output_logit_soft_cap"}
)  # fmt: skip

DEFAULTS = {
    "vocab_size": 50304, "hidden_size": 4096, "num_hidden_layers": 32, "num_heads": 8, "add_out_norm": True, "qk_dim_factor": 0.5,
    "v_dim_factor": 1.0, "inference_state_dtype": "float32", "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64,
    "tie_word_embeddings": False, "weight_mode": "single",
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: xLSTMConfig (transformers 5.24.0). Weights published fused (`weight_mode`) count the same."""
    class_defaults(config, "xLSTMConfig (transformers 5.24.0)", DEFAULTS)
    for name, other in (("embedding_dim", "hidden_size"), ("num_blocks", "num_hidden_layers")):
        if config.data.get(other) is None and config.has(name):
            config.data = {**config.data, other: config.raw(name)}
        config.ignore(name)
    d = open_decoder(config, tie_default=False, prefix="backbone.", standard_heads=False)
    heads = config.count("num_heads", symbol="h_m", label="mLSTM heads")
    multiple = config.item(64, "qk_dim_factor", symbol="a_m", label="multiple of the mLSTM widths")
    keys = _scaled(config, "qk_dim_factor", d.hidden, "I_qk", "query and key width")
    values = _scaled(config, "v_dim_factor", d.hidden, "I_v", "value width")
    kind = Mlstm(
        heads=heads, key_dim=round_up(keys, multiple) // heads, value_dim=round_up(values, multiple) // heads,
        conv_bytes=conv_bytes(config), recurrent_bytes=recurrent_bytes(config, "inference_state_dtype"),
    )  # fmt: skip
    d.layer(kind, d.all)
    bias, module, role = config.flag("use_bias"), "blocks.{i}.mlstm_layer", Role.STATE
    for name, rows in (("q", keys), ("k", keys), ("v", values), ("ogate_preact", values)):
        d.linear(f"mLSTM {name}", role, f"{module}.{name}", rows, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=bias)
    for name in ("igate_preact", "fgate_preact"):
        d.linear(name, role, f"{module}.{name}", heads, d.hidden, layers=d.all, shard=Shard.COLUMN, bias=True)
    d.norm("mixer norm", f"{module}.multihead_norm", layers=d.all, size=values, bias=bias)
    d.linear("mLSTM out_proj", role, f"{module}.out_proj", d.hidden, values, layers=d.all, shard=Shard.ROW, bias=bias)
    step = config.count("ffn_round_up_to_multiple_of", symbol="a", label="multiple of the MLP width")
    width = round_up(_scaled(config, "ffn_proj_factor", d.hidden, "I_0", "MLP width before rounding"), step).as_step(
        "I", "MLP width"
    )
    d.mlp(d.all, width, bias=bias, module="blocks.{i}.ffn", names=("proj_up_gate", "proj_up", "proj_down"))
    output(d, module="embeddings")
    d.norm("mLSTM norm", "blocks.{i}.norm_mlstm", layers=d.all, bias=bias)
    d.norm("MLP norm", "blocks.{i}.norm_ffn", layers=d.all, bias=bias)
    d.norm("final norm", "out_norm")
    say_defaults(d)
    return d


def _scaled(config: Config, name: str, hidden: Q, symbol: str, label: str) -> Q:
    """A factor of the hidden size, without the fraction."""
    factor = fact(str(config.raw(name)), NUMBER, symbol="f", name=f"{label} by hidden size", origin=config.where(name))
    return floor(hidden * factor).as_step(symbol, label)
