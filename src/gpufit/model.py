"""A model as the arithmetic sees it: layers in order with their kinds, and weight parts with their shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Protocol

from gpufit.formats.tensor import TensorFormat
from gpufit.layers.base import LayerKind
from gpufit.quantity import NUMBER, Q, fact, total


class Role(Enum):
    """What a weight part is for. The words are used in derivations and JSON."""

    EMBEDDING = "embedding"
    HEAD = "output head"
    ATTENTION = "attention"
    LATENT = "latent projections"
    MLP = "MLP"
    ROUTED_EXPERTS = "routed experts"
    SHARED_EXPERTS = "shared experts"
    ROUTER = "router"
    NORM = "norms"
    STATE = "state mixers"
    INDEXER = "sparse indexer"
    VISION = "vision tower"
    AUDIO = "audio tower"
    PROJECTOR = "projector"
    DRAFT = "draft layers"
    OTHER = "other"


class Shard(Enum):
    """How tensor parallelism splits a part.

    COLUMN splits the rows of the matrix (output features), ROW its columns (input features; a bias is whole on every rank). VOCAB
    splits vocabulary rows. KV_HEADS splits rows by `heads` whole heads and copies them when there are fewer than ranks. REPLICATED is
    whole on every rank.
    """

    COLUMN = "column"
    ROW = "row"
    VOCAB = "vocab"
    KV_HEADS = "kv heads"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPart:
    """One kind of weight matrix or vector, in every layer that has it.

    `rows` x `columns` is one matrix as published (output x input features; `columns` None for a vector); `copies` of it stand in each
    of `layers` (experts of a mixture; 1 otherwise). `layers` is empty for a part outside the decoder layers: then it stands once (times
    copies). `module` is the published module path with `{i}` for the layer and `{e}` for the expert: quantisers' ignore lists name it.
    `linear` marks what quantisers target. `dtype` is set where the checkpoint keeps the part in another dtype than the rest.
    `heads` counts the whole heads that KV_HEADS sharding may split by. `active` is the (per token, of all) share for routed experts.
    `buffer` marks tensors that are loaded but that nobody counts as parameters (a router's score correction).
    """

    name: str
    role: Role
    module: str
    rows: Q
    columns: Q | None = None
    copies: Q | None = None
    layers: tuple[int, ...] = ()
    shard: Shard = Shard.REPLICATED
    heads: Q | None = None
    linear: bool = False
    dtype: str | None = None
    active: tuple[Q, Q] | None = None
    buffer: bool = False

    def one(self) -> Q:
        """Elements of one matrix or vector."""
        return self.rows if self.columns is None else self.rows * self.columns

    def per_layer(self) -> Q:
        """Elements in one layer, all copies."""
        return self.one() if self.copies is None else self.copies * self.one()

    def elements(self, num_layers: Q | None = None) -> Q:
        """Elements in the whole model; with its number of layers the count of those that have the part is a fact of its own."""
        if not self.layers:
            return self.per_layer()
        having = len(self.layers) if num_layers is None else layers_having(self, len(self.layers), num_layers)
        return having * self.per_layer()

    def count(self) -> int:
        """Matrices of this kind in the whole model."""
        return (int(self.copies) if self.copies is not None else 1) * max(1, len(self.layers))

    def active_elements(self, num_layers: Q | None = None) -> Q:
        """Elements that one token uses."""
        if self.active is None:
            return self.elements(num_layers)
        used, of = self.active
        return self.elements(num_layers) // of * used


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers of one kind with equal shapes; `indices` are their places in the decoder, in order.

    A layer that keeps two things (attention beside a state mixer, self beside cross attention) stands in two groups.
    """

    kind: LayerKind
    indices: tuple[int, ...]


class Recipe(Protocol):
    """How a published checkpoint stores its parts: which format each module has."""

    def format_of(self, part: WeightPart, layer: int | None) -> TensorFormat:
        """The storage format of this part in this layer (None for parts outside the layers)."""
        ...

    def stored(self, part: WeightPart) -> tuple[tuple[TensorFormat, int], ...]:
        """The formats that this part has over its layers, in order of appearance, each with the number of layers that have it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is known of the checkpoint as it is published.

    `format` is the short word (bf16, fp8, mxfp4, int4, ...), `detail` says more ("AWQ, groups of 128"). `recipe` maps parts to storage
    formats, None when every part has the plain dtype. `bytes` is the exact size of its tensors where a file list or index told it.
    `kv_cache_dtype` is the cache dtype that the checkpoint asks for, None when it does not, and `kv_cache_origin` where it says so.
    `method` is the quantiser's own name (quant_method), by which engines choose how to lay the tensors out; empty where nothing is
    quantised.
    `signed` is False where a declaration names no quantiser, neither as quant_method nor as modelopt's producer: vLLM 0.33.0 then does
    not see it (transformers_utils/model_arch_config_convertor.py _normalize_quantization_config).
    """

    format: str
    detail: str = ""
    recipe: Recipe | None = None
    bytes: Q | None = None
    kv_cache_dtype: str | None = None
    kv_cache_origin: str = ""
    origin: str = ""
    method: str = ""
    signed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """Frozen facts of one model. Formulas beyond plain shape questions live elsewhere.

    A model equals itself alone, as its quantities do, so that what follows from a model can be kept beside it.

    `num_layers` counts decoder layers; `layers` groups them by kind (empty for an encoder without a KV cache). `attention_heads`,
    `kv_heads` and `head_dim` are the main attention's, for display; None where there is none or where they differ by layer.
    `total_params` is exact: counted from the parts, or the catalogue's published count. `vision_params` are inside the total.
    `assumptions` are sentences that every answer must repeat. `draft_parts` are multi-token-prediction layers: in the checkpoint, not
    loaded by default.
    """

    id: str
    name: str
    slug: str
    family: str
    architecture: str
    num_layers: Q
    layers: tuple[LayerGroup, ...]
    hidden_size: Q
    vocab_size: Q | None
    tied: bool
    attention_heads: Q | None
    kv_heads: Q | None
    head_dim: Q | None
    max_context: Q | None
    dtype: str
    parts: tuple[WeightPart, ...]
    total_params: Q
    active_params: Q | None
    published: Published
    vision_params: Q | None = None
    draft_parts: tuple[WeightPart, ...] = ()
    draft_layers: tuple[LayerGroup, ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unused_fields: tuple[str, ...] = ()
    extras: dict[str, Q] = field(default_factory=dict)

    @property
    def windowed(self) -> bool:
        """Whether any layer keeps fewer tokens than the context."""
        return any(g.kind.kind in ("sliding", "chunked", "sliding_latent") for g in self.layers)


TOWERS = (Role.VISION, Role.AUDIO, Role.PROJECTOR)


def layers_having(part: WeightPart, count: int, num_layers: Q) -> Q:
    """How many layers have a part: the model's own number where all do, else a fact of how its layers are dealt out."""
    if part.role in TOWERS:
        return _dealt_out(count, f"layers of the {part.role.value}", num_layers.origin)
    if count == int(num_layers) and part.layers == tuple(range(count)):
        return num_layers
    return _dealt_out(count, "layers that have such a part", num_layers.origin)


@lru_cache(maxsize=1024)
def _dealt_out(count: int, name: str, of: str) -> Q:
    origin = f"{of.rpartition(': ')[0]}: its kinds of layers" if ": " in of else "the model's kinds of layers"
    return fact(count, NUMBER, symbol="L_w", name=name, origin=origin)


def counted(parts: Iterable[WeightPart], symbol: str, name: str, num_layers: Q | None = None) -> Q:
    """The exact number of parameters of some parts, buffers left out."""
    return total((p.elements(num_layers) for p in parts if not p.buffer), unit=NUMBER).as_step(symbol, name)
