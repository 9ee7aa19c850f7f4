"""The workbench of the family adapters: turns config fields into layer groups and weight parts, one idea a method.

An adapter opens a `Decoder` on its config, adds what its family has, and returns it; `read.py` makes the `Model`. Shapes are as
published (output x input features). Nothing here decides what a family has: defaults are the adapters' to state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpufit.errors import ConfigError
from gpufit.layers.base import LayerKind
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.model import LayerGroup, Role, Shard, WeightPart
from gpufit.quantity import TOKEN_PER_SEQUENCE, Q
from gpufit.sources.config import Config, Default

Layers = Iterable[int]


@dataclass(kw_only=True)
class Decoder:
    """A model under construction.

    `config` is the level of config.json with the decoder's own fields (a text_config where there is one). `prefix` is the module path
    before `layers.{i}` in the published checkpoint. Adapters may set or replace any attribute.
    """

    config: Config
    hidden: Q
    num_layers: Q
    vocab: Q | None = None
    tied: bool = False
    prefix: str = "model."
    max_context: Q | None = None
    attention_heads: Q | None = None
    kv_heads: Q | None = None
    head_dim: Q | None = None
    parts: list[WeightPart] = field(default_factory=list)
    groups: list[LayerGroup] = field(default_factory=list)
    draft_parts: list[WeightPart] = field(default_factory=list)
    draft_groups: list[LayerGroup] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inert: frozenset[str] = frozenset()
    extras: dict[str, Q] = field(default_factory=dict)

    @property
    def all(self) -> range:
        """The indices of all layers."""
        return range(int(self.num_layers))

    # -- layers ---------------------------------------------------------------------------------------------------------------

    def layer(self, kind: LayerKind, layers: Layers) -> None:
        """Layers of one kind; an empty selection adds nothing."""
        indices = tuple(layers)
        if indices:
            self.groups.append(LayerGroup(kind=kind, indices=indices))

    def full(
        self,
        layers: Layers,
        *,
        heads: Q | None = None,
        kv_heads: Q | None = None,
        head_dim: Q | None = None,
        value_dim: Q | None = None,
    ) -> None:
        """Full-attention layers with the model's own heads, or others for these layers."""
        self.layer(
            Full(
                attention_heads=heads or self.need(self.attention_heads),
                kv_heads=kv_heads or self.need(self.kv_heads),
                head_dim=head_dim or self.need(self.head_dim),
                value_dim=value_dim,
            ),
            layers,
        )

    def need(self, value: Q | None) -> Q:
        """The value, which the adapter must have set before."""
        if value is None:
            raise self.config.missing("num_attention_heads")
        return value

    # -- weights --------------------------------------------------------------------------------------------------------------

    def part(
        self,
        name: str,
        role: Role,
        module: str,
        rows: Q,
        columns: Q | None = None,
        *,
        layers: Layers = (),
        copies: Q | None = None,
        shard: Shard = Shard.REPLICATED,
        heads: Q | None = None,
        linear: bool = False,
        dtype: str | None = None,
        active: tuple[Q, Q] | None = None,
        buffer: bool = False,
    ) -> None:
        """One weight part; `module` is below the prefix unless it begins with a slash. Zero copies (experts) are refused."""
        if copies is not None and not int(copies):
            raise ConfigError(f"{copies.name} is 0 ({copies.origin}), but layers have a {name}", hint="check the config.json")
        for side in (rows, columns):
            if side is not None and not int(side):
                nothing = zero_in(side)
                raise ConfigError(
                    f"{nothing.name or 'a number'} is 0 ({nothing.origin or self.config.origin}): a {name} would be empty",
                    hint="check the config.json",
                )
        if active is not None and int(active[0]) > int(active[1]):
            raise ConfigError(
                f"{active[0].name} is {active[0].value} ({active[0].origin}), but there are {active[1].value} of them",
                hint="check the config.json",
            )
        path = module[1:] if module.startswith("/") else self.prefix + module
        self.parts.append(
            WeightPart(
                name=name, role=role, module=path, rows=rows, columns=columns, copies=copies, layers=tuple(layers), shard=shard,
                heads=heads, linear=linear, dtype=dtype, active=active, buffer=buffer,
            )
        )  # fmt: skip

    def linear(
        self,
        name: str,
        role: Role,
        module: str,
        rows: Q,
        columns: Q,
        *,
        layers: Layers,
        shard: Shard,
        bias: bool = False,
        copies: Q | None = None,
        heads: Q | None = None,
        active: tuple[Q, Q] | None = None,
    ) -> None:
        """A linear layer: a matrix that quantisers target, and its bias. A row-sharded layer's bias is whole on every rank."""
        at = tuple(layers)
        self.part(name, role, module, rows, columns, layers=at, copies=copies, shard=shard, heads=heads, linear=True, active=active)
        if bias:
            split = Shard.REPLICATED if shard is Shard.ROW else shard
            self.part(
                f"{name} bias", role, module + ".bias", rows, layers=at, copies=copies, shard=split, heads=heads, active=active
            )

    def embedding(self, *, module: str = "embed_tokens", head: str = "/lm_head", head_bias: bool = False) -> None:
        """Token embedding, and an output head of its own where it is not tied."""
        vocab = self.need(self.vocab)
        self.part("token embedding", Role.EMBEDDING, module, vocab, self.hidden, shard=Shard.VOCAB)
        if not self.tied:
            self.part("output head", Role.HEAD, head, vocab, self.hidden, shard=Shard.VOCAB, linear=True)
        if head_bias:
            self.part("output head bias", Role.HEAD, head + ".bias", vocab, shard=Shard.VOCAB)

    def norm(self, name: str, module: str, *, layers: Layers = (), size: Q | None = None, bias: bool = False) -> None:
        """A normalisation with a weight of the hidden size (or `size`), and a bias where it is a LayerNorm."""
        at = tuple(layers)
        width = size or self.hidden
        self.part(name, Role.NORM, module, width, layers=at)
        if bias:
            self.part(f"{name} bias", Role.NORM, module + ".bias", width, layers=at)

    def attention(
        self,
        layers: Layers,
        *,
        heads: Q | None = None,
        kv_heads: Q | None = None,
        head_dim: Q | None = None,
        value_dim: Q | None = None,
        bias: bool = False,
        out_bias: bool = False,
        qk_norm: str = "",
        gate: bool = False,
        module: str = "layers.{i}.self_attn",
        value_proj: bool = True,
        names: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    ) -> None:
        """The projections of standard attention.

        `bias` is that of q, k and v. `qk_norm` is "" (none), "head" (one weight of head_dim for q and one for k) or "full" (over all
        heads). `gate` doubles the query projection with an output gate. `value_proj` is False where V reuses K.
        """
        at = tuple(layers)
        if not at:
            return
        nq, nk = heads or self.need(self.attention_heads), kv_heads or self.need(self.kv_heads)
        d = head_dim or self.need(self.head_dim)
        dv = value_dim or d
        q_rows = 2 * nq * d if gate else nq * d
        a = Role.ATTENTION
        self.linear("q_proj", a, f"{module}.{names[0]}", q_rows, self.hidden, layers=at, shard=Shard.COLUMN, bias=bias)
        self.linear("k_proj", a, f"{module}.{names[1]}", nk * d, self.hidden, layers=at, shard=Shard.KV_HEADS, heads=nk, bias=bias)
        if value_proj:
            self.linear(
                "v_proj", a, f"{module}.{names[2]}", nk * dv, self.hidden, layers=at, shard=Shard.KV_HEADS, heads=nk, bias=bias
            )
        self.linear("o_proj", a, f"{module}.{names[3]}", self.hidden, nq * dv, layers=at, shard=Shard.ROW, bias=out_bias)
        if qk_norm == "head":
            self.norm("q_norm", f"{module}.q_norm", layers=at, size=d)
            self.norm("k_norm", f"{module}.k_norm", layers=at, size=d)
        elif qk_norm == "full":
            self.norm("q_norm", f"{module}.q_norm", layers=at, size=nq * d)
            self.norm("k_norm", f"{module}.k_norm", layers=at, size=nk * d)

    def latent(
        self,
        layers: Layers,
        *,
        heads: Q,
        latent_rank: Q,
        rope_dim: Q,
        nope_dim: Q,
        value_dim: Q,
        query_rank: Q | None,
        bias: bool = False,
        module: str = "layers.{i}.self_attn",
        kind: LayerKind | None = None,
        own: bool = True,
    ) -> None:
        """Multi-head latent attention: projections, their norms, and the layer kind. `query_rank` None: queries are not compressed.

        `bias` is that of the two down-projections and of the output projection (attention_bias in the DeepSeek classes). `kind` replaces
        the plain latent kind. `own` is False in layers that expand the latent of another layer and project none.
        """
        at = tuple(layers)
        r = Role.LATENT
        width = nope_dim + rope_dim
        if query_rank is None:
            self.linear("q_proj", r, f"{module}.q_proj", heads * width, self.hidden, layers=at, shard=Shard.COLUMN)
        else:
            self.linear("q_a_proj", r, f"{module}.q_a_proj", query_rank, self.hidden, layers=at, shard=Shard.REPLICATED, bias=bias)
            self.norm("q_a_layernorm", f"{module}.q_a_layernorm", layers=at, size=query_rank)
            self.linear("q_b_proj", r, f"{module}.q_b_proj", heads * width, query_rank, layers=at, shard=Shard.COLUMN)
        if own:
            down = latent_rank + rope_dim
            self.linear(
                "kv_a_proj", r, f"{module}.kv_a_proj_with_mqa", down, self.hidden, layers=at, shard=Shard.REPLICATED, bias=bias
            )
            self.norm("kv_a_layernorm", f"{module}.kv_a_layernorm", layers=at, size=latent_rank)
        self.linear(
            "kv_b_proj", r, f"{module}.kv_b_proj", heads * (nope_dim + value_dim), latent_rank, layers=at, shard=Shard.COLUMN
        )
        self.linear(
            "o_proj", Role.ATTENTION, f"{module}.o_proj", self.hidden, heads * value_dim, layers=at, shard=Shard.ROW, bias=bias
        )
        self.layer(kind or Latent(latent_rank=latent_rank, rope_dim=rope_dim, attention_heads=heads), at)

    def mlp(
        self,
        layers: Layers,
        intermediate: Q,
        *,
        gated: bool = True,
        bias: bool = False,
        module: str = "layers.{i}.mlp",
        names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
        role: Role = Role.MLP,
        label: str = "",
        copies: Q | None = None,
        active: tuple[Q, Q] | None = None,
        hidden: Q | None = None,
    ) -> None:
        """A feed-forward block: gate (when `gated`), up and down projections, in `copies` experts where it is one of many."""
        at = tuple(layers)
        if not at:
            return
        h = hidden or self.hidden
        if gated:
            self.linear(
                f"{label}gate_proj",
                role,
                f"{module}.{names[0]}",
                intermediate,
                h,
                layers=at,
                shard=Shard.COLUMN,
                bias=bias,
                copies=copies,
                active=active,
            )
        self.linear(
            f"{label}up_proj",
            role,
            f"{module}.{names[1]}",
            intermediate,
            h,
            layers=at,
            shard=Shard.COLUMN,
            bias=bias,
            copies=copies,
            active=active,
        )
        self.linear(
            f"{label}down_proj",
            role,
            f"{module}.{names[2]}",
            h,
            intermediate,
            layers=at,
            shard=Shard.ROW,
            bias=bias,
            copies=copies,
            active=active,
        )

    def experts(
        self,
        layers: Layers,
        *,
        experts: Q,
        per_token: Q,
        intermediate: Q,
        gated: bool = True,
        bias: bool = False,
        router_bias: bool = False,
        score_correction: bool = False,
        module: str = "layers.{i}.mlp",
        router: str = "gate",
        router_dtype: str | None = None,
        names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
        hidden: Q | None = None,
    ) -> None:
        """A mixture of experts: router and routed experts. All experts are resident; `per_token` of them serve one token.

        `score_correction` is the router's fp32 bias buffer (loaded, not counted as parameters).
        """
        at = tuple(layers)
        if not at:
            return
        self.part("router", Role.ROUTER, f"{module}.{router}", experts, self.hidden, layers=at, dtype=router_dtype)
        if router_bias:
            self.part("router bias", Role.ROUTER, f"{module}.{router}.bias", experts, layers=at)
        if score_correction:
            self.part(
                "router score correction",
                Role.ROUTER,
                f"{module}.{router}.e_score_correction_bias",
                experts,
                layers=at,
                dtype="fp32",
                buffer=True,
            )
        self.mlp(at, intermediate, gated=gated, bias=bias, module=f"{module}.experts.{{e}}", names=names, role=Role.ROUTED_EXPERTS,
                 label="expert ", copies=experts, active=(per_token, experts), hidden=hidden)  # fmt: skip

    def shared_experts(
        self,
        layers: Layers,
        intermediate: Q,
        *,
        gated: bool = True,
        gate: bool = False,
        module: str = "layers.{i}.mlp.shared_experts",
        gate_module: str = "layers.{i}.mlp.shared_expert_gate",
    ) -> None:
        """Experts that every token uses, `intermediate` wide in all; `gate` adds the sigmoid gate of the Qwen families."""
        at = tuple(layers)
        self.mlp(at, intermediate, gated=gated, module=module, role=Role.SHARED_EXPERTS, label="shared expert ")
        if gate and at:
            one = self.config.item(1, "shared expert gate", symbol="one", label="one gate value")
            self.part("shared expert gate", Role.ROUTER, gate_module, one, self.hidden, layers=at)


def zero_in(value: Q) -> Q:
    """The fact that makes a product zero."""
    return next((zero_in(arg) for arg in value.args if not arg.value), value)


LAYER_NAMES = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEAD_NAMES = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HIDDEN_NAMES = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")


def open_decoder(
    config: Config,
    *,
    tie_default: bool | Default,
    tie_from: Config | None = None,
    prefix: str = "model.",
    defaults: dict[str, Default] | None = None,
    standard_heads: bool = True,
) -> Decoder:
    """A Decoder with the basics that almost every config has: width, layers, vocabulary, heads, context limit, tying.

    `tie_default` is the family's class default for `tie_word_embeddings`; `tie_from` the outer config where a multimodal file says it.
    `defaults` holds class defaults for absent basics by published name. With `standard_heads` num_key_value_heads falls back to
    num_attention_heads and head_dim to hidden_size / heads, which is what the classes that share this shape do.
    """
    known = defaults or {}

    def default(name: str) -> Default | None:
        return known.get(name)

    hidden = config.count(*HIDDEN_NAMES, symbol="H", label="hidden size", default=default("hidden_size"))
    layers = config.count(*LAYER_NAMES, symbol="L", label="decoder layers", default=default("num_hidden_layers"))
    if not int(layers):
        raise ConfigError(f"{layers.origin} is 0", hint="check the config.json")
    vocab = config.count("vocab_size", "padded_vocab_size", symbol="V", label="vocabulary", default=default("vocab_size"))
    tied_by = tie_from if tie_from is not None and tie_from.has("tie_word_embeddings") else config
    config.ignore("tie_word_embeddings")
    limit = config.maybe(*CONTEXT_NAMES, symbol="n_max", label="context limit of the model", unit=TOKEN_PER_SEQUENCE)
    if limit is None and (stated := default("max_position_embeddings")) is not None:
        limit = config.count(
            CONTEXT_NAMES[0], symbol="n_max", label="context limit of the model", default=stated, unit=TOKEN_PER_SEQUENCE
        )
    decoder = Decoder(
        config=config, hidden=hidden, num_layers=layers, vocab=vocab, prefix=prefix,
        tied=tied_by.flag("tie_word_embeddings", default=tie_default), max_context=limit,
    )  # fmt: skip
    if standard_heads:
        heads = config.count(*HEAD_NAMES, symbol="n_q", label="attention heads", default=default("num_attention_heads"))
        if not int(heads):
            raise ConfigError(f"{heads.origin} is 0", hint="check the config.json")
        kv = config.maybe("num_key_value_heads", symbol="n_kv", label="KV heads")
        if kv is None and (stated := default("num_key_value_heads")) is not None:
            kv = config.count("num_key_value_heads", symbol="n_kv", label="KV heads", default=stated)
        dim = config.maybe("head_dim", symbol="d", label="head dimension")
        if dim is None and (stated := default("head_dim")) is not None:
            dim = config.count("head_dim", symbol="d", label="head dimension", default=stated)
        decoder.attention_heads = heads
        decoder.kv_heads = (
            kv
            if kv is not None
            else heads.because("no num_key_value_heads: every attention head has its own").as_step("n_kv", "KV heads")
        )
        decoder.head_dim = dim if dim is not None else (hidden // heads).as_step("d", "head dimension")
    return decoder
