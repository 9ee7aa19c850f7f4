"""Nemotron-H and Nemotron 3: each layer is one thing only, a Mamba 2 mixer, an attention, an MLP or a mixture of experts."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.none import NoCache
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.mixers import MAMBA_INERT, mamba2_mixer
from gpufit.sources.states import class_defaults, conv_bytes, recurrent_bytes, say_defaults, where_is

MODEL_TYPES = ("nemotron_h",)
INERT = MAMBA_INERT | {"mamba_proj_bias", "moe_shared_expert_overlap", "time_step_rank", "expand", "mamba_expand"}
"""The widths of the mixer come from heads and head dimension alone; `expand` and `time_step_rank` say nothing more."""

DEFAULTS = {
    "vocab_size": 131072, "hidden_size": 4096, "tie_word_embeddings": False, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 4096, "intermediate_size": 21504, "ssm_state_size": 128, "mamba_num_heads": 128,
    "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "mamba_ssm_cache_dtype": "float32",
    "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    "num_experts_per_tok": 2,
}  # fmt: skip

_WORDS = {
    "M": "mamba", "*": "attention", "-": "mlp", "E": "moe",
    "mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention", "mlp": "mlp", "moe": "moe",
}  # fmt: skip


def read(config: Config) -> Decoder:
    """Defaults: NemotronHConfig (transformers 5.24.0). The recurrent state is fp32 unless `mamba_ssm_cache_dtype` says otherwise."""
    types, said_by = _pattern(config, ("layers_block_type", "layer_types", "hybrid_override_pattern"))
    if types is None:
        raise config.missing("hybrid_override_pattern", "layers_block_type")
    class_defaults(config, "NemotronHConfig (transformers 5.24.0)", DEFAULTS)
    stated = config.raw("num_hidden_layers")
    if stated is None:
        config.data = {**config.data, "num_hidden_layers": len(types)}
    d = open_decoder(config, tie_default=False, prefix="backbone.")
    d.num_layers = config.item(len(types), said_by, symbol="L", label="layers (entries of the pattern)")
    if stated is not None and stated != len(types):
        d.assumptions.append(
            f"{said_by} has {len(types)} layers and num_hidden_layers says {stated}: the pattern counts, as in the published class"
        )
    config.ignore("attention_head_dim")  # where it stands beside head_dim it says the same
    if not config.present("head_dim") and config.has("attention_head_dim"):
        d.head_dim = config.count("attention_head_dim", symbol="d", label="head dimension")
        config.fell_back.pop("head_dim", None)
    output(d, module="embeddings")
    d.norm("final norm", "norm_f")
    _blocks(d, types)
    _draft(d, config.integer("num_nextn_predict_layers", default=0))
    say_defaults(d)
    return d


def _pattern(config: Config, names: tuple[str, ...]) -> tuple[list[str] | None, str]:
    """One word a layer from a list of words or a string of signs, and the field that says it."""
    listed = config.raw(*names)
    name = config.name_of(*names) or names[0]
    if listed is None:
        return None, name
    unknown = [(i, sign) for i, sign in enumerate(listed) if sign not in _WORDS]
    if unknown:
        i, sign = unknown[0]
        raise ConfigError(
            f"{config.where(name)}[{i}] is {sign!r}, an unknown kind of layer",
            hint="known are M (mamba), * (attention), - (mlp), E (moe)",
        )
    return [_WORDS[sign] for sign in listed], name


def _blocks(d: Decoder, types: list[str]) -> None:
    """The layers of each kind, one norm before each."""
    config = d.config
    d.norm("norm", "layers.{i}.norm", layers=d.all)
    kind = Mamba2(
        heads=config.count("mamba_num_heads", symbol="h_m", label="Mamba heads"),
        head_dim=config.count("mamba_head_dim", symbol="d_m", label="Mamba head dimension"),
        state_size=config.count("ssm_state_size", symbol="N_s", label="state size"),
        groups=config.count("mamba_n_groups", "n_groups", symbol="G", label="B/C groups"),
        kernel=config.count("mamba_d_conv", "conv_kernel", symbol="c", label="convolution kernel"),
        conv_bytes=conv_bytes(config),
        recurrent_bytes=recurrent_bytes(config, "mamba_ssm_cache_dtype"),
    )
    bias = config.flag("use_bias")
    mamba2_mixer(
        d, where_is(types, "mamba"), kind, bias=bias, out_bias=bias, conv_bias=config.flag("mamba_conv_bias", "use_conv_bias")
    )
    full = where_is(types, "attention")
    d.full(full)
    d.attention(full, module="layers.{i}.mixer")
    d.layer(NoCache(), where_is(types, "mlp", "moe"))
    for width, layers in _widths(config, where_is(types, "mlp")):
        d.mlp(layers, width, gated=False, bias=config.flag("mlp_bias"), module="layers.{i}.mixer")
    _experts(d, where_is(types, "moe"))


def _widths(config: Config, layers: tuple[int, ...]) -> list[tuple[Q, tuple[int, ...]]]:
    """The MLP layers by width: `intermediate_size` is one number, or a list with one for each MLP layer (vLLM 0.33.0, nemotron_h.py)."""
    raw = config.raw("intermediate_size")
    if not isinstance(raw, list):
        return [(config.count("intermediate_size", symbol="I", label="MLP width"), layers)]
    if len(raw) == 1:
        raw = raw * len(layers)
    if len(raw) != len(layers):
        where = config.where("intermediate_size")
        raise ConfigError(f"{where} has {len(raw)} entries for {len(layers)} MLP layers", hint="check the config.json")
    widths = sorted(set(raw))
    return [
        (
            config.item(w, "intermediate_size", symbol="I", label="MLP width"),
            tuple(i for i, v in zip(layers, raw, strict=True) if v == w),
        )
        for w in widths
    ]


def _experts(d: Decoder, layers: tuple[int, ...]) -> None:
    """Experts without a gate projection, in a latent space of `moe_latent_size` where there is one, and shared ones beside them."""
    if not layers:
        return
    config, bias = d.config, d.config.flag("mlp_bias")
    latent = config.maybe("moe_latent_size", symbol="H_e", label="latent expert width")
    d.experts(
        layers,
        experts=config.count("n_routed_experts", "num_local_experts", symbol="E", label="routed experts"),
        per_token=config.count("num_experts_per_tok", symbol="E_k", label="experts per token"),
        intermediate=config.count("moe_intermediate_size", symbol="I_e", label="expert width"),
        gated=False, score_correction=True, module="layers.{i}.mixer", hidden=latent,
    )  # fmt: skip
    if latent is not None:
        for name, rows, columns in (("fc1_latent_proj", latent, d.hidden), ("fc2_latent_proj", d.hidden, latent)):
            d.linear(
                name,
                Role.SHARED_EXPERTS,
                f"layers.{{i}}.mixer.{name}",
                rows,
                columns,
                layers=layers,
                shard=Shard.REPLICATED,
                bias=bias,
            )
    shared = config.count("n_shared_experts", symbol="n_s", label="shared experts")
    if int(shared):
        width = shared * config.count("moe_shared_expert_intermediate_size", symbol="I_s", label="shared expert width")
        d.mlp(
            layers,
            width,
            gated=False,
            bias=bias,
            module="layers.{i}.mixer.shared_experts",
            role=Role.SHARED_EXPERTS,
            label="shared expert ",
        )


def _draft(d: Decoder, steps: int) -> None:
    """The multi-token-prediction layers: a pattern of their own, repeated for each step, joined to the embedding at its start."""
    if not steps:
        d.config.ignore("mtp_layers_block_type", "mtp_hybrid_override_pattern")
        return
    types, said_by = _pattern(d.config, ("mtp_layers_block_type", "mtp_hybrid_override_pattern"))
    if types is None:
        types, said_by = ["attention", "moe"], "num_nextn_predict_layers"
    if not types:
        raise ConfigError(f"{d.config.where(said_by)} is empty, but there are {steps} draft steps", hint="check the config.json")
    number = d.config.item(steps * len(types), said_by, symbol="L_d", label="draft layers")
    draft = Decoder(
        config=d.config, hidden=d.hidden, num_layers=number, prefix="mtp.", attention_heads=d.attention_heads, kv_heads=d.kv_heads,
        head_dim=d.head_dim,
    )  # fmt: skip
    starts, ends = tuple(draft.all[:: len(types)]), tuple(draft.all[len(types) - 1 :: len(types)])
    draft.norm("draft embedding norm", "layers.{i}.enorm", layers=starts)
    draft.norm("draft hidden norm", "layers.{i}.hnorm", layers=starts)
    draft.part(
        "draft eh_proj", Role.DRAFT, "layers.{i}.eh_proj", d.hidden, 2 * d.hidden, layers=starts, shard=Shard.COLUMN, linear=True
    )  # fmt: skip
    draft.norm("draft final norm", "layers.{i}.final_layernorm", layers=ends)
    _blocks(draft, types * steps)
    d.draft_parts += draft.parts
    d.draft_groups += draft.groups
