"""The bytes of parameters that vLLM creates on one rank, as a traced sum over weight parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpufit.engines.vllm.cache_scales import cache_scale_bytes
from gpufit.engines.vllm.class_facts import scores
from gpufit.engines.vllm.class_formats import format_here, partitions
from gpufit.engines.vllm.expert_weights import expert_bytes, gathered
from gpufit.engines.vllm.linear_weights import fused_module, linear_bytes, sixteen_bit
from gpufit.engines.vllm.stage_parts import Stage, held
from gpufit.engines.vllm.weight_shards import Cut, Spread, cut
from gpufit.errors import UsageError
from gpufit.formats.asked import finer
from gpufit.formats.tensor import PLAIN, Plain, TensorFormat
from gpufit.model import TOWERS, Model, Recipe, Role, Shard, WeightPart, layers_having
from gpufit.quantity import Q, total


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """The weights of one rank: `created` is what vLLM's classes allocate for loading (B), `terms` the sum it was made of.

    `refitted` names modules that an assumed format does not fit here, with the format that they were given in its stead.
    """

    created: Q
    terms: tuple[Q, ...]
    refitted: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class _Module:
    """What vLLM makes one module of: the parts fused in it, in one format, in some layers."""

    form: TensorFormat
    layers: tuple[int, ...]
    parts: list[WeightPart] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The module's own name, for people."""
        first = self.parts[0]
        if first.role is Role.ROUTED_EXPERTS:
            return "routed experts" if len(self.parts) > 1 else first.name
        if len(self.parts) == 1:
            return first.name
        fused = fused_module(first.module).rpartition(".")[2]
        return f"shared expert {fused}" if first.role is Role.SHARED_EXPERTS else fused


def weights_on_rank(model: Model, recipe: Recipe | None, spread: Spread, stage: Stage, *, assumed: bool = False) -> RankWeights:
    """Parameters as created for loading on one rank of `stage`, before any kernel repacks them (B).

    `recipe` says how the checkpoint stores each part; None: all in the model's dtype, which is also what vLLM makes room for where it
    does not see the quantisation. `assumed` says that no checkpoint tells the recipe: a module whose shard cuts through an assumed block
    of scales is then taken in a format that fits. Raises `UsageError` where vLLM would refuse the degree of parallelism or the format.
    """
    if recipe is model.published.recipe and not recognised(model):
        recipe = None
    refitted: dict[str, str] = {}
    terms = []
    for module in _modules(model, recipe, spread, stage):
        if assumed:
            _refit(model, module, spread, refitted)
        terms.append(_bytes(model, module, spread))
    if recipe is not None:
        terms += cache_scale_bytes(model, stage)
    summed = total(terms)
    if stage.first and not stage.towers and any(p.role in TOWERS for p in model.parts):
        summed = summed.because("towers and projectors are not loaded (--language-model-only)")
    return RankWeights(
        created=summed.as_step("W", "weights created on one GPU"), terms=tuple(terms), refitted=tuple(refitted.items())
    )


def draft_weights_on_rank(model: Model, recipe: Recipe | None, spread: Spread, *, assumed: bool = False) -> Q:
    """Parameters of the multi-token-prediction layers on one rank of the last stage (B); embedding and head are the model's own.

    Raises `UsageError` for a model without such layers.
    """
    if not model.draft_parts:
        raise UsageError(f"{model.id} has no multi-token-prediction layers", hint="a model whose config names them")
    beside = replace(model, parts=model.draft_parts, layers=model.draft_layers, tied=False, extras={})
    layers = max((i for p in model.draft_parts for i in p.layers), default=-1) + 1
    found = weights_on_rank(beside, recipe, spread, Stage(layers=range(layers)), assumed=assumed)
    return total(found.terms).as_step("W_d", "weights of the draft layers on one GPU")


def recognised(model: Model) -> bool:
    """Whether vLLM sees that the checkpoint is quantised: MLX files and declarations that name no quantiser pass for plain ones.

    Source: vLLM 0.33.0, transformers_utils/model_arch_config_convertor.py.
    """
    return model.published.signed and model.published.method != "mlx"


def _modules(model: Model, recipe: Recipe | None, spread: Spread, stage: Stage) -> Iterator[_Module]:
    """The modules of a stage: unquantised parts one by one, quantised ones fused as vLLM fuses them."""
    fused: dict[tuple[object, ...], _Module] = {}
    for part, layers in held(model, stage, spread):
        for form, where in _formats(model, recipe, part, layers):
            key = _key(part, form, where)
            if key in fused:
                fused[key].parts.append(part)
                continue
            fused[key] = _Module(form=form, layers=where, parts=[part])
    yield from fused.values()


def _key(part: WeightPart, form: TensorFormat, layers: tuple[int, ...]) -> tuple[object, ...]:
    """Parts with equal keys are one module."""
    if part.role is Role.ROUTED_EXPERTS and part.copies is not None:
        return ("experts", _experts_path(part.module), layers)
    if isinstance(form, Plain):
        return (part.module, part.name, layers)
    return (fused_module(part.module), id(form), layers)


def _experts_path(module: str) -> str:
    """The path of the experts that a part belongs to: up to "experts", or the module around where files name none."""
    head, found, _ = module.partition(".experts")
    return head if found else module.removesuffix(".bias").rpartition(".")[0]


def _formats(
    model: Model, recipe: Recipe | None, part: WeightPart, layers: tuple[int, ...]
) -> Iterator[tuple[TensorFormat, tuple[int, ...]]]:
    """The formats in which vLLM creates a part, each with the layers that have it."""
    if recipe is None or part.columns is None or not part.linear:
        yield _plain(model, part), layers
        return
    by_format: dict[int, tuple[TensorFormat, list[int]]] = {}
    for layer in layers or (None,):
        form = format_here(model, part, recipe.format_of(part, layer))
        if isinstance(form, Plain):
            form = _plain(model, part)
        found = by_format.setdefault(id(form), (form, []))
        if layer is not None:
            found[1].append(layer)
    for form, where in by_format.values():
        yield form, tuple(where)


def _plain(model: Model, part: WeightPart) -> Plain:
    """The plain format of a part: its own where the classes declare one (fp32 states, integer tables), else the model's 16 bit.

    Heads of models that classify or score are fp32 (vLLM 0.33.0, config/model.py head_dtype of pooling models).
    """
    if part.dtype is not None and part.dtype not in ("bf16", "fp16"):
        return PLAIN[part.dtype]
    if scores(model) and (part.role is Role.HEAD or part.name.startswith("pooler")):
        return PLAIN["fp32"]
    return sixteen_bit(model.dtype)


def _is_mixture(module: _Module) -> bool:
    """Whether the module is a layer's experts with up and down matrices, as kernels take them; DBRX files hold w2 transposed."""
    experts = module.parts[0].role is Role.ROUTED_EXPERTS and module.parts[0].copies is not None
    return experts and any(p.shard is Shard.ROW and p.columns is not None for p in module.parts)


def _refit(model: Model, module: _Module, spread: Spread, refitted: dict[str, str]) -> None:
    """Gives a module the first format that its shards hold: the assumed one, one with finer scales, at last 16 bit.

    Small projections of state mixers, which checkpoints leave at 16 bit, get no finer scales.
    """
    cuts = [cut(p, spread) for p in module.parts]
    narrower = () if module.parts[0].role is Role.STATE else finer(module.form, _inner(cuts))
    for form in (module.form, *narrower):
        try:
            _one_layer(model, replace(module, form=form), cuts, spread)
        except UsageError:
            continue
        if form is not module.form:
            refitted[module.name] = form.name
            module.form = form
        return
    module.form = sixteen_bit(model.dtype)
    refitted[module.name] = "16 bit"


def _inner(cuts: list[Cut]) -> int:
    """The input features that a group of scales must divide on one rank: those of a row-split matrix where there is one."""
    split = [c for c in cuts if c.part.shard is Shard.ROW and c.columns is not None] or cuts
    return int(split[0].columns or 0)


def _bytes(model: Model, module: _Module, spread: Spread) -> Q:
    """Bytes of one module in all its layers on one rank."""
    each = _one_layer(model, module, [cut(p, spread) for p in module.parts], spread)
    if module.layers:
        each = layers_having(module.parts[0], len(module.layers), model.num_layers) * each
    symbol = "W_" + re.sub(r"[^a-z0-9]+", "_", module.name.lower()).strip("_")
    return each.as_step(symbol, f"{module.name}, {module.form.name}")


def _one_layer(model: Model, module: _Module, cuts: list[Cut], spread: Spread) -> Q:
    if _is_mixture(module):
        return expert_bytes(module.form, gathered(cuts, model.published.method, model.family), spread)
    if isinstance(module.form, Plain):
        return total(c.elements() for c in cuts) * module.form.bytes_per_element
    each = linear_bytes(module.form, cuts, spread.tp, partitions(model, module.parts, spread.tp), model.published.method)
    copies = cuts[0].copies
    return each if copies is None else copies * each
