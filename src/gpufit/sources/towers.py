"""Builders of vision and audio towers and of what joins them to the text model.

A tower's blocks are parts with `copies` and `{e}` for the block in their module path (they are no decoder layers). How each part
splits is vLLM 0.33.0's: its ViTs split heads and MLPs, tokenisers and norms stand whole on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.quantity import Q
from gpufit.sources.config import Config, Default
from gpufit.sources.decoder import Decoder
from gpufit.sources.nested import VERSION
from gpufit.sources.patterns import class_defaults

NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


@dataclass(kw_only=True)
class Tower:
    """A tower under construction: adds parts to `decoder` under `prefix`, in `depth` blocks of `width`.

    `split` False leaves every part whole on each rank (towers that vLLM takes from transformers as they are). `label` stands before
    every part's name.
    """

    decoder: Decoder
    role: Role
    prefix: str
    width: Q
    depth: Q
    block: str = "blocks.{e}."
    split: bool = True
    label: str = "vision "

    def part(self, name: str, module: str, rows: Q, columns: Q | None = None, *, each: bool = False,
             shard: Shard = Shard.REPLICATED, linear: bool = False, role: Role | None = None) -> None:  # fmt: skip
        """One weight; `each` puts one in every block, with `module` below the block."""
        path = self.prefix + (self.block if each else "") + module
        self.decoder.part(
            self.label + name, role or self.role, f"/{path}", rows, columns, copies=self.depth if each else None,
            shard=shard if self.split else Shard.REPLICATED, linear=linear,
        )  # fmt: skip

    def matrix(self, name: str, module: str, rows: Q, columns: Q, *, bias: bool = False, each: bool = False,
               shard: Shard = Shard.REPLICATED, role: Role | None = None) -> None:  # fmt: skip
        """A linear layer and its bias."""
        self.part(name, module, rows, columns, each=each, shard=shard, linear=True, role=role)
        if bias:
            whole = Shard.REPLICATED if shard is Shard.ROW else shard
            self.part(f"{name} bias", module + ".bias", rows, each=each, shard=whole, role=role)

    def norm(
        self, name: str, module: str, size: Q | None = None, *, bias: bool = False, each: bool = False, role: Role | None = None
    ) -> None:
        """A norm of the tower's width, or of `size`."""
        self.part(name, module, size or self.width, each=each, role=role)
        if bias:
            self.part(f"{name} bias", module + ".bias", size or self.width, each=each, role=role)

    def patches(self, module: str, inputs: Q, *, bias: bool, name: str = "patch embedding") -> None:
        """The convolution that makes patches into tokens; `inputs` is channels times the patch's points."""
        self.part(name, module, self.width, inputs)
        if bias:
            self.part(f"{name} bias", module + ".bias", self.width)

    def qkv(
        self,
        module: str = "attn.qkv",
        out: str = "attn.proj",
        *,
        bias: bool = True,
        out_bias: bool | None = None,
        inner: Q | None = None,
    ) -> None:
        """Attention with one fused projection of queries, keys and values."""
        heads = inner or self.width
        self.matrix("qkv", module, 3 * heads, self.width, bias=bias, each=True, shard=Shard.COLUMN)
        self.matrix(
            "attention output", out, self.width, heads, bias=bias if out_bias is None else out_bias, each=True, shard=Shard.ROW
        )

    def attention(self, module: str = "self_attn", names: Sequence[str] = NAMES, *, bias: bool = True, key_bias: bool | None = None,
                  out_bias: bool | None = None, inner: Q | None = None) -> None:  # fmt: skip
        """Attention with projections of its own for queries, keys and values."""
        heads = inner or self.width
        for name, word, biased in (
            ("q", names[0], bias),
            ("k", names[1], bias if key_bias is None else key_bias),
            ("v", names[2], bias),
        ):
            self.matrix(name, f"{module}.{word}", heads, self.width, bias=biased, each=True, shard=Shard.COLUMN)
        self.matrix(
            "attention output",
            f"{module}.{names[3]}",
            self.width,
            heads,
            bias=bias if out_bias is None else out_bias,
            each=True,
            shard=Shard.ROW,
        )

    def mlp(self, inner: Q, module: str = "mlp", names: Sequence[str] = ("fc1", "fc2"), *, bias: bool = True) -> None:
        """A feed-forward block: (gate,) up and down; two names or three."""
        for word in names[:-1]:
            self.matrix(word, f"{module}.{word}" if module else word, inner, self.width, bias=bias, each=True, shard=Shard.COLUMN)
        self.matrix(
            names[-1], f"{module}.{names[-1]}" if module else names[-1], self.width, inner, bias=bias, each=True, shard=Shard.ROW
        )

    def norms(self, *modules: str, bias: bool) -> None:
        """Norms of every block."""
        for module in modules:
            self.norm(module, module, bias=bias, each=True)


def depth_of(v: Config, *names: str, default: Default | None = None, letter: str = "v") -> Q:
    """The number of blocks."""
    return v.count(*names, symbol=f"L_{letter}", label="tower blocks", default=default)


def width_of(v: Config, *names: str, default: Default | None = None, letter: str = "v") -> Q:
    """The width of a tower."""
    return v.count(*names, symbol=f"H_{letter}", label="tower width", default=default)


def inner_of(v: Config, *names: str, default: Default | None = None, letter: str = "v") -> Q:
    """The width of a tower's MLPs."""
    return v.count(*names, symbol=f"I_{letter}", label="tower MLP width", default=default)


def patch_of(v: Config, *names: str, default: Default | None = None, letter: str = "v") -> Q:
    """The edge of one patch; some files give it as a list of two equal edges."""
    names = names or ("patch_size",)
    value = v.raw(*names)
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise ConfigError(f"{v.where(names[0])} is {value!r}, expected equal edges", hint="check the config.json")
        edge = v.item(value[0], names[0], symbol=f"P_{letter}", label="patch edge")
    else:
        edge = v.count(*names, symbol=f"P_{letter}", label="patch edge", default=default)
    if not int(edge):
        raise ConfigError(f"{v.where(names[0])} is 0", hint="check the config.json")
    return edge


def channels_of(v: Config, default: Default | None = None, letter: str = "v") -> Q:
    """Image channels; every published class defaults to three."""
    return v.count(
        "num_channels",
        "in_channels",
        "in_chans",
        symbol=f"c_{letter}",
        label="image channels",
        default=default or Default(value=3, source="every ViT class"),
    )


def image_of(v: Config, default: Default | None = None, letter: str = "v") -> Q:
    """The edge of an image in pixels; some files give a list of two."""
    value = v.raw("image_size", "img_size")
    if isinstance(value, list) and value:
        return v.item(value[0], "image_size", symbol=f"M_{letter}", label="image edge")
    return v.count("image_size", "img_size", symbol=f"M_{letter}", label="image edge", default=default)


SIGLIP = class_defaults(
    f"SiglipVisionConfig ({VERSION})", hidden_size=768, intermediate_size=3072, num_hidden_layers=12, image_size=224, patch_size=16
)
CLIP = class_defaults(
    f"CLIPVisionConfig ({VERSION})", hidden_size=768, intermediate_size=3072, num_hidden_layers=12, image_size=224, patch_size=32
)
INERT_VIT = ("num_attention_heads", "projection_dim")


def siglip(d: Decoder, v: Config, prefix: str, *, head: bool | None = None, layers: Q | None = None, post_norm: bool = True,
           split: bool = True, known: dict[str, Default] = SIGLIP) -> Tower:  # fmt: skip
    """A SigLIP vision tower: patches with bias, learned positions, pre-norm blocks, a last norm.

    `layers` where fewer blocks are kept than the config has. `head` adds the attention-pooling head;
    None asks the config (`vision_use_head`, on by default). SigLIP 2 counts its positions itself (`num_patches`).
    """
    v.ignore(*INERT_VIT)
    pooled = v.flag("vision_use_head", default=True) if head is None else head
    v.ignore("vision_use_head")
    width = width_of(v, "hidden_size", default=known["hidden_size"])
    depth = depth_of(v, "num_hidden_layers", default=known["num_hidden_layers"])
    inner = inner_of(v, "intermediate_size", default=known["intermediate_size"])
    patch = patch_of(v, default=known["patch_size"])
    t = Tower(
        decoder=d, role=Role.VISION, prefix=prefix, width=width, depth=layers or depth, block="encoder.layers.{e}.", split=split
    )
    t.patches("embeddings.patch_embedding", channels_of(v) * patch * patch, bias=True)
    if v.text("model_type") == "siglip2_vision_model":
        default = Default(value=256, source=f"Siglip2VisionConfig ({VERSION})")
        positions = v.count("num_patches", symbol="n_pv", label="tower positions", default=default)
        v.ignore("image_size")
    else:
        edge = image_of(v, known["image_size"]) // patch
        positions = edge * edge
    t.part("positions", "embeddings.position_embedding", positions, width)
    t.norms("layer_norm1", "layer_norm2", bias=True)
    t.attention()
    t.mlp(inner)
    if post_norm:
        t.norm("last norm", "post_layernorm", bias=True)
    if pooled:
        t.part("pooling probe", "head.probe", width)
        t.part("pooling in", "head.attention.in_proj_weight", 3 * width, width)
        t.part("pooling in bias", "head.attention.in_proj_bias", 3 * width)
        t.matrix("pooling out", "head.attention.out_proj", width, width, bias=True)
        t.norm("pooling norm", "head.layernorm", bias=True)
        t.matrix("pooling fc1", "head.mlp.fc1", inner, width, bias=True)
        t.matrix("pooling fc2", "head.mlp.fc2", width, inner, bias=True)
    return t


def clip(
    d: Decoder,
    v: Config,
    prefix: str,
    *,
    known: dict[str, Default] = CLIP,
    layers: Q | None = None,
    post_norm: bool = True,
    split: bool = True,
) -> Tower:
    """A CLIP vision tower: patches without bias, a class token, learned positions, a norm before the blocks and one after."""
    v.ignore(*INERT_VIT)
    width = width_of(v, "hidden_size", default=known["hidden_size"])
    depth = depth_of(v, "num_hidden_layers", default=known["num_hidden_layers"])
    inner = inner_of(v, "intermediate_size", default=known["intermediate_size"])
    patch, image = patch_of(v, default=known["patch_size"]), image_of(v, known["image_size"])
    t = Tower(
        decoder=d, role=Role.VISION, prefix=prefix, width=width, depth=layers or depth, block="encoder.layers.{e}.", split=split
    )
    t.part("class token", "embeddings.class_embedding", width)
    t.patches("embeddings.patch_embedding", channels_of(v) * patch * patch, bias=False)
    edge = image // patch
    t.part("positions", "embeddings.position_embedding", edge * edge + 1, width)
    t.norm("norm before blocks", "pre_layrnorm", bias=True)
    t.norms("layer_norm1", "layer_norm2", bias=True)
    t.attention()
    t.mlp(inner)
    if post_norm:
        t.norm("last norm", "post_layernorm", bias=True)
    return t


PIXTRAL = class_defaults(
    f"PixtralVisionConfig ({VERSION})",
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    patch_size=16,
    num_attention_heads=16,
)


def pixtral(d: Decoder, v: Config, prefix: str) -> Tower:
    """A Pixtral vision tower: rotary positions, RMS norms, gated MLPs, no biases."""
    v.ignore("image_size", *INERT_VIT)
    width = width_of(v, "hidden_size", default=PIXTRAL["hidden_size"])
    patch = patch_of(v, default=PIXTRAL["patch_size"])
    t = Tower(
        decoder=d, role=Role.VISION, prefix=prefix, width=width, block="transformer.layers.{e}.",
        depth=depth_of(v, "num_hidden_layers", default=PIXTRAL["num_hidden_layers"]),
    )  # fmt: skip
    inner = width
    if v.has("head_dim"):
        heads = v.count("num_attention_heads", symbol="n_v", label="tower heads", default=PIXTRAL["num_attention_heads"])
        inner = heads * v.count("head_dim", symbol="d_v", label="tower head dimension")
    t.patches("patch_conv", channels_of(v) * patch * patch, bias=False)
    t.norm("norm before blocks", "ln_pre")
    t.norms("attention_norm", "ffn_norm", bias=False)
    t.attention("attention", ("q_proj", "k_proj", "v_proj", "o_proj"), bias=False, inner=inner)
    t.mlp(
        inner_of(v, "intermediate_size", default=PIXTRAL["intermediate_size"]),
        "feed_forward",
        ("gate_proj", "up_proj", "down_proj"),
        bias=False,
    )
    return t


def projector(d: Decoder, prefix: str, width: Q, label: str = "projector ") -> Tower:
    """An empty tower for what joins a tower to the text model: its matrices are added one by one and stand whole unless said."""
    return Tower(decoder=d, role=Role.PROJECTOR, prefix=prefix, width=width, depth=width, label=label)


def feature_layers(config: Config, width: Q) -> Q:
    """The width that the projector takes: one tower layer's output, or that of each layer in a `vision_feature_layer` list."""
    value = config.raw("vision_feature_layer", "vision_feature_layers")
    if not isinstance(value, list):
        return width
    return config.item(len(value), "vision_feature_layer", symbol="n_fl", label="tower layers whose output is joined") * width


def blocks_used(config: Config, depth: Q, default: int) -> Q | None:
    """The tower blocks whose output is used, where that is not all: engines build no deeper. Layer -2 is the output of all but one."""
    value = config.raw("vision_feature_layer", "vision_feature_layers")
    layers = value if isinstance(value, list) else [default if value is None else value]
    if not layers or not all(isinstance(i, int) for i in layers):
        return None
    deepest = max(i + int(depth) + 1 if i < 0 else i for i in layers)
    if deepest >= int(depth):
        return None
    return config.item(deepest, "vision_feature_layer", symbol="L_vu", label="tower blocks that are used")
