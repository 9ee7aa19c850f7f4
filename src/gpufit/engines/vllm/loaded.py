"""What loading adds to the weights as created: rotary tables, and 16-bit copies of absorbed latent projections.

Other repacking at load time (Marlin, NVFP4 swizzles) depends on the kernel that the server picks, and is not here.
"""

from __future__ import annotations

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.stage_parts import Stage, held
from gpufit.engines.vllm.weight_shards import Spread, cut
from gpufit.formats.microscaling import Microscaled
from gpufit.formats.tensor import Plain
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.model import Model, Recipe, Role, Shard
from gpufit.quantity import BYTE, NUMBER, Q, ceil, fact, round_up, total, unit

_SIXTEEN = Q(2, BYTE, "const")
_PER_TOKEN = fact(1, unit(sequence=1, token=-1), symbol="one_row", name="table row for each position", origin="rotary embedding")


def load_extras(model: Model, recipe: Recipe | None, spread: Spread, stage: Stage, constants: Constants) -> list[Q]:
    """Bytes that one rank of a stage holds beside the created weights, each a named step."""
    return [
        *rotary_tables(model, constants),
        *absorbed_copies(model, recipe, spread, stage),
        *kernel_padding(model, recipe, spread, stage),
    ]


def rotary_tables(model: Model, constants: Constants) -> list[Q]:
    """Cosines and sines for every position up to the model's own limit, in 16 bit, once for each rotary setting.

    Settings differ by rotary width; families whose windowed layers turn at another base have a table for each (vLLM 0.33.0,
    layers/rotary_embedding get_rope caches by setting).
    """
    if model.max_context is None:
        return []
    widths: dict[tuple[int, bool], Q] = {}
    for group in model.layers:
        kind = group.kind
        own_base = kind.kind == "sliding" and constants.listed("two_rotary_bases", model.family)
        if isinstance(kind, Latent):
            widths[(int(kind.rope_dim), own_base)] = kind.rope_dim
        elif isinstance(kind, Full):
            share = model.extras.get("rotary_share")
            width = kind.head_dim if share is None else ceil(kind.head_dim * share)
            widths[(int(width), own_base)] = width
    if not any(widths.values()):
        return []
    tables = [model.max_context * _PER_TOKEN * width * _SIXTEEN for width in widths.values() if int(width)]
    return [total(tables).as_step("W_rot", "rotary tables")] if tables else []


def absorbed_copies(model: Model, recipe: Recipe | None, spread: Spread, stage: Stage) -> list[Q]:
    """W_UK and W_UV in 16 bit where kv_b_proj is quantised; where it is 16 bit they are views of it and cost nothing.

    Source: vLLM 0.33.0, model_executor/layers/attention/mla_attention.py process_weights_after_loading.
    """
    if recipe is None:
        return []
    copies = []
    for part, layers in held(model, stage, spread):
        if not part.module.endswith("kv_b_proj") or part.columns is None or not layers:
            continue
        quantised = sum(1 for layer in layers if not isinstance(recipe.format_of(part, layer), Plain))
        if quantised:
            copies.append(quantised * cut(part, spread).elements() * _SIXTEEN)
    return [total(copies).as_step("W_abs", "16-bit copies of absorbed latent projections")] if copies else []


_PAD = fact(
    256, NUMBER, symbol="p_k", name="multiple to which the Triton kernel pads MXFP4 input features",
    origin="modelled: engine logs of gpt-oss on Hopper (64.38 GiB loaded)",
)  # fmt: skip
_MADE = fact(
    64, NUMBER, symbol="p_i", name="multiple to which MXFP4 experts are created on Hopper",
    origin="vLLM 0.33.0, fused_moe/oracle/mxfp4.py, Triton",
)  # fmt: skip
_HALF = fact("0.5", BYTE, symbol="w4", name="bytes of one 4-bit weight", origin="MXFP4")


def kernel_padding(model: Model, recipe: Recipe | None, spread: Spread, stage: Stage) -> list[Q]:
    """What the Triton kernel of Hopper adds to MXFP4 experts: input features padded to a multiple of 256, values only, scales not."""
    if recipe is None or not 90 <= spread.capability < 100:
        return []
    added = []
    for part, layers in held(model, stage, spread):
        if part.role is not Role.ROUTED_EXPERTS or part.columns is None or not layers:
            continue
        if not isinstance(form := recipe.format_of(part, layers[0]), Microscaled) or form.word != "mxfp4":
            continue
        here = cut(part, spread)
        if here.columns is None or here.copies is None:
            continue
        # The expert width per rank is created as a multiple of 64 already; only the input features are widened at load.
        split = part.shard is Shard.ROW
        made = round_up(here.columns, _MADE) if split else here.columns
        rows = here.rows if split else round_up(here.rows, _MADE)
        wider = round_up(made, _PAD) - made
        if int(wider):
            added.append(ceil(len(layers) * here.copies * rows * wider * _HALF))
    return [total(added).as_step("W_pad", "padding of MXFP4 experts by the Triton kernel")] if added else []
