"""Recurrent states: hand arithmetic of known models, and what must hold for every shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufit.formats.cache import BF16
from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.kda import Kda
from gpufit.layers.linear import Linear
from gpufit.layers.mamba1 import Mamba1
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.rg_lru import RgLru
from gpufit.layers.rwkv import Rwkv
from gpufit.layers.short_conv import ShortConv
from gpufit.layers.state import STATE_UNIT, State
from gpufit.layers.xlstm import Mlstm
from gpufit.quantity import NUMBER, TOKEN_PER_SEQUENCE, Q, Unit, fact


def q(value: int, unit: Unit = NUMBER) -> Q:
    return fact(value, unit, symbol="x", name="a number", origin="this test")


def bytes_of(conv: int, recurrent: int) -> dict[str, Q]:
    return {"conv_bytes": q(conv, STATE_UNIT), "recurrent_bytes": q(recurrent, STATE_UNIT)}


def qwen3_next() -> GatedDelta:
    return GatedDelta(key_heads=q(16), value_heads=q(32), key_dim=q(128), value_dim=q(128), kernel=q(4), **bytes_of(2, 2))


KNOWN = [
    # 3 * (2*16*128 + 32*128) * 2 + 32*128*128 * 2
    pytest.param(qwen3_next(), 1, 0, 49_152 + 1_048_576, id="Qwen3-Next, one GPU"),
    # a quarter of both: 12,288 + 262,144
    pytest.param(qwen3_next(), 4, 0, 274_432, id="Qwen3-Next, tp 4"),
    # one drafted token keeps 2,048 channels more: 4 * 2,048 * 2 + 262,144
    pytest.param(qwen3_next(), 4, 1, 278_528, id="Qwen3-Next, tp 4, one draft token"),
    # Nemotron 3 Nano: 3 * (4,096 + 2*8*128) * 2 + 64*64*128 * 4
    pytest.param(
        Mamba2(heads=q(64), head_dim=q(64), state_size=q(128), groups=q(8), kernel=q(4), **bytes_of(2, 4)),
        1, 0, 36_864 + 2_097_152, id="Nemotron 3 Nano",
    ),
    # Jamba: 3 * 8,192 * 2 + 8,192 * 16 * 2, and drafts change nothing
    pytest.param(Mamba1(channels=q(8192), state_size=q(16), kernel=q(4), **bytes_of(2, 2)), 1, 3, 49_152 + 262_144, id="Jamba"),
    # LFM2 1.2B: 2 * 2,048 * 2
    pytest.param(ShortConv(channels=q(2048), kernel=q(3), **bytes_of(2, 2)), 1, 0, 8_192, id="LFM2"),
    # Kimi-K3 at tp 2: 3 * (3*96*128 / 2) * 2 + 48*128*128 * 4
    pytest.param(Kda(heads=q(96), head_dim=q(128), kernel=q(4), **bytes_of(2, 4)), 2, 0, 110_592 + 3_145_728, id="Kimi-K3, tp 2"),
    # MiniMax-M1: 64 * 128 * 128 * 2
    pytest.param(Linear(heads=q(64), head_dim=q(128), **bytes_of(2, 2)), 1, 0, 2_097_152, id="MiniMax-M1"),
    # RWKV-5 3B: 2 * 2,560 * 2 + 40 * 64 * 64 * 4
    pytest.param(Rwkv(width=q(2560), heads=q(40), head_dim=q(64), **bytes_of(2, 4)), 1, 0, 10_240 + 655_360, id="RWKV-5"),
    # xLSTM 7B: 8 * (256*512 + 256 + 1) * 4
    pytest.param(Mlstm(heads=q(8), key_dim=q(256), value_dim=q(512), **bytes_of(2, 4)), 1, 0, 4_202_528, id="xLSTM"),
    # RecurrentGemma 2B: 3 * 2,560 * 2 + 2,560 * 4
    pytest.param(RgLru(channels=q(2560), kernel=q(4), **bytes_of(2, 4)), 1, 0, 25_600, id="RecurrentGemma"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "tp", "drafted", "expected"), KNOWN)
def test_known_states_have_their_bytes(kind: State, tp: int, drafted: int, expected: int) -> None:
    """A state is the elements of its convolution and its recurrence, each in its own dtype, as worked out by hand."""
    assert int(kind.state_bytes(q(tp), drafted)) == expected


SMALL = st.sampled_from([1, 2, 3, 4])
COUNTS = st.integers(1, 8).map(lambda n: 24 * n)


@st.composite
def kinds(draw: st.DrawFn) -> State:
    """Any recurrent kind, with heads and channels that divide by 1, 2, 3 and 4."""
    sizes = bytes_of(draw(st.sampled_from([2, 4])), draw(st.sampled_from([2, 4])))
    heads, other, kernel = q(draw(COUNTS)), q(draw(COUNTS)), q(draw(st.integers(2, 5)))
    dim, wide = q(draw(st.integers(1, 64))), q(draw(st.integers(1, 64)))
    return draw(
        st.sampled_from(
            [
                Mamba1(channels=heads, state_size=dim, kernel=kernel, **sizes),
                Mamba2(heads=heads, head_dim=dim, state_size=wide, groups=other, kernel=kernel, **sizes),
                GatedDelta(key_heads=heads, value_heads=other, key_dim=dim, value_dim=wide, kernel=kernel, **sizes),
                Kda(heads=heads, head_dim=dim, kernel=kernel, **sizes),
                Linear(heads=heads, head_dim=dim, **sizes),
                ShortConv(channels=heads, kernel=kernel, **sizes),
                RgLru(channels=heads, kernel=kernel, **sizes),
                Mlstm(heads=heads, key_dim=dim, value_dim=wide, **sizes),
            ]
        )
    )


@given(kinds(), st.integers(1, 1 << 20))
def test_the_context_changes_nothing(kind: State, context: int) -> None:
    """A recurrent layer costs the same for every context length: it does not grow."""
    held = kind.sequence_bytes(q(context, TOKEN_PER_SEQUENCE), q(1), BF16)
    assert held.value == kind.fixed_bytes(q(1), BF16).value
    assert not kind.grows


@given(kinds(), SMALL)
def test_equal_shares_make_the_whole(kind: State, tp: int) -> None:
    """Where heads and channels divide, the states on all GPUs together are the state of one GPU."""
    assert kind.tp_refusal(tp) is None
    assert tp * int(kind.fixed_bytes(q(tp), BF16)) == int(kind.fixed_bytes(q(1), BF16))


@given(kinds(), st.integers(1, 8))
def test_drafts_widen_only_a_convolution(kind: State, drafted: int) -> None:
    """Draft tokens under verification add their own inputs to the convolution state, and nothing to the recurrent one."""
    more = int(kind.state_bytes(q(1), drafted)) - int(kind.fixed_bytes(q(1), BF16))
    channels = kind.conv_channels(q(1)) if kind.drafts_widen else None
    assert more == (0 if channels is None else int(channels) * drafted * int(kind.conv_bytes))


@given(st.sampled_from([2, 4, 8]), st.integers(1, 64), st.integers(1, 64))
def test_a_single_group_is_copied_to_every_gpu(tp: int, dim: int, size: int) -> None:
    """One B/C group on several GPUs is kept whole on each: the shares exceed the whole by exactly the copies."""
    kind = Mamba2(heads=q(8), head_dim=q(dim), state_size=q(size), groups=q(1), kernel=q(4), **bytes_of(2, 4))
    extra = tp * int(kind.fixed_bytes(q(tp), BF16)) - int(kind.fixed_bytes(q(1), BF16))
    assert kind.tp_refusal(tp) is None
    assert extra == (tp - 1) * 2 * size * 3 * 2


def test_heads_that_do_not_divide_are_refused_by_name() -> None:
    """A degree that would tear a head, or split several groups unevenly, is refused with the numbers."""
    assert qwen3_next().tp_refusal(32) == "16 linear-attention key heads do not divide by 32"
    several = Mamba2(heads=q(256), head_dim=q(64), state_size=q(256), groups=q(8), kernel=q(4), **bytes_of(2, 4))
    assert several.tp_refusal(16) == "8 Mamba groups do not divide by 16"
