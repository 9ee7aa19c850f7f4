"""The parameters that vLLM creates for the routed experts of one layer on one rank: formats, scales and padding of its kernels.

Experts stand in two tensors, the gate and up projections (w13) and the down projection (w2). Kernels ask for padded widths, and which
kernel runs depends on the device. Source: vLLM 0.33.0, layers/fused_moe/oracle and layers/quantization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from gpufit.engines.vllm.linear_weights import BYTE_BITS, ELEMENT, FP32_SCALE, block_scale, not_loaded
from gpufit.engines.vllm.weight_shards import Cut, Spread
from gpufit.errors import UsageError
from gpufit.formats.eight_bit import BlockScaled, ChannelScaled, TensorScaled
from gpufit.formats.integer_groups import WORD, IntegerGroups
from gpufit.formats.microscaling import Microscaled
from gpufit.formats.tensor import Plain, TensorFormat
from gpufit.model import Shard
from gpufit.quantity import BYTE, NUMBER, Q, ceil_div, fact, round_up, total

_SIXTEEN = fact(2, BYTE, symbol="w16", name="bytes of one 16-bit value", origin="activation dtype of the model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts of one layer on one rank: `count` of them, `shards` up-side matrices (2 with a gate) of `width` x `hidden`.

    `other_activation` tells families whose activation (GELU, SiTU) the preferred kernels do not run.
    """

    count: Q
    shards: Q
    width: Q
    hidden: Q
    bias: bool
    method: str
    other_activation: bool = False

    @property
    def up_rows(self) -> Q:
        """Output features of w13."""
        return self.shards * self.width

    def matrices(self, per_element: Q) -> Q:
        """w13 and w2 at so many bytes an element."""
        return self.count * (self.up_rows * self.hidden + self.hidden * self.width) * per_element

    def biases(self) -> Q:
        """The biases of both tensors, which stay at 16 bit."""
        return self.count * (self.up_rows + self.hidden) * _SIXTEEN


def gathered(cuts: Sequence[Cut], method: str, family: str) -> Experts:
    """The experts of one layer from the parts that the checkpoint has for them (gate, up and down, or gate and up fused)."""
    up = [c for c in cuts if c.part.shard is Shard.COLUMN and c.columns is not None]
    down = next(c for c in cuts if c.part.shard is Shard.ROW and c.columns is not None)
    assert down.columns is not None and up[0].columns is not None and down.copies is not None
    shards = int(total((c.rows for c in up), unit=NUMBER)) // int(down.columns)
    return Experts(
        count=down.copies,
        shards=fact(shards, NUMBER, symbol="s", name="gate and up matrices of one expert", origin="the model's expert parts"),
        width=down.columns,
        hidden=down.rows,
        bias=any(c.columns is None for c in cuts),
        method=method,
        other_activation=family.startswith(("gemma4", "kimi_k3")),
    )


def expert_bytes(form: TensorFormat, experts: Experts, spread: Spread) -> Q:
    """Bytes of the routed experts of one layer on one rank (B), padded as the kernel of this device asks."""
    held = padded(form, experts, spread)
    size = _weights(form, held, spread)
    # The GPTQ method makes room for biases whether or not the model has them.
    always = isinstance(form, IntegerGroups) and held.method in ("gptq", "auto_gptq", "gptqmodel")
    return size + held.biases() if held.bias or always else size


def padded(form: TensorFormat, experts: Experts, spread: Spread) -> Experts:
    """The experts with their widths rounded up to what the kernel for this format and device takes."""
    width, hidden = experts.width, experts.hidden
    if isinstance(form, Plain) and spread.capability // 10 == 10 and not experts.other_activation:
        width = _up(width, 128, "FlashInfer TRTLLM kernels on SM100, oracle/unquantized.py")
    elif isinstance(form, Microscaled) and form.word == "mxfp4" and spread.capability == 90 and not experts.other_activation:
        width = _up(width, 64, "Triton and Humming kernels on SM90, oracle/mxfp4.py")
    elif isinstance(form, Microscaled) and form.word == "mxfp4":
        width = _up(width, 128, "MXFP4 kernels (Marlin, TRTLLM), oracle/mxfp4.py")
        hidden = _up(hidden, 256, "MXFP4 kernels (Marlin, TRTLLM), oracle/mxfp4.py")
    return replace(experts, width=width, hidden=hidden)


def _up(size: Q, multiple: int, why: str) -> Q:
    if int(size) % multiple == 0:
        return size
    step = fact(multiple, NUMBER, symbol="p_e", name="multiple to which expert widths are padded", origin=f"vLLM 0.33.0: {why}")
    return round_up(size, step)


def _weights(form: TensorFormat, e: Experts, spread: Spread) -> Q:
    match form:
        case Plain():
            return e.matrices(form.bytes_per_element)
        case BlockScaled() | ChannelScaled() if e.method == "modelopt":
            # One method serves all FP8 kinds of modelopt: a scale for each matrix and a static input scale.
            return e.matrices(ELEMENT) + e.count * (e.shards + 1) * FP32_SCALE + 2 * e.count * FP32_SCALE
        case BlockScaled():
            return e.matrices(ELEMENT) + _block_scales(form, e, spread) * block_scale(form)
        case TensorScaled():
            scales = e.count * (e.shards + 1) * FP32_SCALE
            size = e.matrices(ELEMENT) + scales
            return size if form.extra is None else size + 2 * e.count * FP32_SCALE
        case ChannelScaled():
            size = e.matrices(ELEMENT) + e.count * (e.up_rows + e.hidden) * FP32_SCALE
            return size if form.extra is None else size + 2 * e.count * FP32_SCALE
        case Microscaled():
            return _microscaled(form, e)
        case IntegerGroups():
            return _integers(form, e)
        case _:
            raise not_loaded(form)


def _block_scales(form: BlockScaled, e: Experts, spread: Spread) -> Q:
    """Scales of both tensors: where the shard does not hold whole blocks, the grid is refined to what divides everything.

    Source: vLLM 0.33.0, oracle/fp8.py refine_fp8_moe_block_shape; compressed-tensors has no such refinement.
    """
    high, wide = form.block_rows, form.block_columns
    split = int(spread.expert_ranks) > 1 and not spread.expert_parallel
    if int(e.width) % int(high) or (split and int(e.width) % int(wide)):
        fine = gcd(int(high), int(wide), int(e.width), int(e.hidden))
        if fine < 32 or e.method == "compressed-tensors":
            raise UsageError(
                f"experts {int(e.width)} wide on one rank are no multiple of the {int(high)} x {int(wide)} scale blocks",
                hint="a smaller tensor parallel degree, or whole experts (--enable-expert-parallel)",
            )
        high = wide = fact(
            fine, NUMBER, symbol="g_r", name="edge of a refined scale block",
            origin="vLLM 0.33.0, oracle/fp8.py: greatest common divisor of block, shard and hidden size",
        )  # fmt: skip
    up = e.shards * ceil_div(e.width, high) * ceil_div(e.hidden, wide)
    down = ceil_div(e.hidden, high) * ceil_div(e.width, wide)
    return e.count * (up + down)


def _microscaled(form: Microscaled, e: Experts) -> Q:
    """Packed elements, block scales, and for NVFP4 a global and an input scale for each matrix; blocks at the edge are dropped."""
    packed = e.up_rows * ((e.hidden * form.bits) // BYTE_BITS) + e.hidden * ((e.width * form.bits) // BYTE_BITS)
    scales = e.up_rows * (e.hidden // form.block) + e.hidden * (e.width // form.block)
    size = e.count * packed + e.count * scales * form.scale
    if form.word != "nvfp4":
        return size
    return size + 2 * (e.count * (e.shards + 1)) * FP32_SCALE


def _integers(form: IntegerGroups, e: Experts) -> Q:
    """Packed words, 16-bit scales and packed zero points of both tensors."""
    per_word = 32 // int(form.bits)
    up_groups: Q | int = 1 if form.group is None else e.hidden // form.group
    down_groups: Q | int = 1 if form.group is None else e.width // form.group
    if form.group is not None and int(e.width) % int(form.group):
        raise UsageError(
            f"experts {int(e.width)} wide on one rank are no multiple of the {int(form.group)} weights that share a scale",
            hint="a smaller tensor parallel degree, or whole experts (--enable-expert-parallel)",
        )
    if form.packed_rows:
        words = e.hidden * (e.up_rows // per_word) + e.width * (e.hidden // per_word)
    else:
        words = (e.hidden // per_word) * e.up_rows + (e.width // per_word) * e.hidden
    scales = e.up_rows * up_groups + e.hidden * down_groups
    size = e.count * words * WORD + e.count * scales * form.scale
    if form.packed_zero:
        size = size + e.count * ((e.up_rows // per_word) * up_groups + (e.hidden // per_word) * down_groups) * WORD
    if e.method == "compressed-tensors":
        # The shape of w13 and of w2, two 16-bit numbers an expert each.
        size = size + 4 * e.count * _SIXTEEN
    return size
