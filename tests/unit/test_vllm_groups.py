"""Groups of layers: how buckets are cut, padded, promoted and packed."""

from __future__ import annotations

import pytest
from vllm_models import deepseek_v4_flash, n, plan

from gpufit.engines.vllm.groups import Group, NoGroups, bytes_per_block, grouped, one_page
from gpufit.engines.vllm.specs import BLOCK_PER_SEQUENCE, BYTE_PER_BLOCK, TOKEN_PER_BLOCK, CacheSpec, LayerSpec, SpecKind
from gpufit.quantity import TOKEN_PER_SEQUENCE


def spec(kind: SpecKind, page: int, block: int = 16, **more: int) -> CacheSpec:
    return CacheSpec(
        kind=kind,
        title=kind.value,
        block_size=n(block, TOKEN_PER_BLOCK, "B"),
        page=n(page, BYTE_PER_BLOCK, "p"),
        window=n(more["window"], TOKEN_PER_SEQUENCE, "w") if "window" in more else None,
        state_blocks=n(1, BLOCK_PER_SEQUENCE, "n") if kind is SpecKind.STATE else None,
    )


def layers(*runs: tuple[CacheSpec, int]) -> list[LayerSpec]:
    found: list[LayerSpec] = []
    for one, count in runs:
        found += [LayerSpec(spec=one, layer=len(found) + i) for i in range(count)]
    return found


FULL = spec(SpecKind.FULL, 1024)
WINDOW = spec(SpecKind.SLIDING, 1024, window=128)


def sizes(groups: tuple[Group, ...]) -> list[int]:
    return [len(g.layers) for g in groups]


@pytest.mark.parametrize(
    ("full", "windowed", "expected"),
    [
        (10, 52, [10, 9, 9, 9, 9, 8, 8]),  # gemma-3-27b
        (18, 18, [18, 18]),  # gpt-oss-120b
        (13, 12, [13, 12]),  # gpt-oss-20b with a draft: close, so padded to the larger
        (12, 18, [12, 9, 9]),  # exactly 1.5 times is not close
        (12, 17, [12, 17]),
        (9, 39, [9, 8, 8, 8, 8, 7]),  # MiMo-V2-Flash
    ],
)
def test_group_length_is_the_smallest_bucket_unless_buckets_are_close(full: int, windowed: int, expected: list[int]) -> None:
    """Buckets are cut to the smallest, or padded to the largest where that is under 1.5 times the smallest."""
    assert sizes(grouped(layers((FULL, full), (WINDOW, windowed)))) == expected


def test_layers_are_dealt_in_turn() -> None:
    """A bucket of four in two groups gives each group every second layer, so that pipeline stages get their share of both."""
    groups = grouped(layers((FULL, 2), (WINDOW, 4)))
    assert [[s.layer for s in g.layers] for g in groups] == [[0, 1], [2, 4], [3, 5]]


def test_one_kind_is_one_group_whatever_its_pages() -> None:
    """Latent layers and their index keys always need the same blocks, so their pages are summed in one group."""
    groups = grouped(layers((spec(SpecKind.LATENT, 1152), 3), (spec(SpecKind.LATENT, 132), 2)))
    assert sizes(groups) == [5]
    assert int(bytes_per_block(groups)) == 3 * 1152 + 2 * 132


def test_pages_become_equal_by_longer_blocks_or_by_padding() -> None:
    """A page that divides the widest gets a longer block; a state and a page that does not divide are padded."""
    wide, half, odd, held = (
        FULL,
        spec(SpecKind.SLIDING, 512, window=8),
        spec(SpecKind.SLIDING, 700, window=9),
        spec(SpecKind.STATE, 300),
    )
    even = [s.spec for s in one_page(layers((wide, 1), (half, 1), (odd, 1), (held, 1)))]
    assert [int(s.page) for s in even] == [1024] * 4
    assert [int(s.block_size) for s in even] == [16, 32, 16, 16]
    assert [s.padded for s in even] == [False, False, True, True]


def test_a_latent_page_that_does_not_divide_is_not_padded() -> None:
    """Latent pages are read as whole rows: beside wider pages that they do not divide there is no plan."""
    with pytest.raises(NoGroups, match="neither divides"):
        one_page(layers((FULL, 1), (spec(SpecKind.LATENT, 700), 1)))


def test_windows_beside_latent_pages_that_do_not_agree_are_kept_at_full_length() -> None:
    """Where pages cannot be unified, sliding windows beside latent attention fall back to one group at full length."""
    groups = grouped(layers((spec(SpecKind.LATENT, 700), 4), (WINDOW, 1)))
    assert sizes(groups) == [5]
    assert {s.kind for s in groups[0].specs} == {SpecKind.LATENT, SpecKind.FULL}


def test_the_widest_group_pays_for_all() -> None:
    """A block is as wide as the widest group, though a shorter group uses less of it."""
    groups = grouped(layers((FULL, 13), (WINDOW, 12)))
    assert int(bytes_per_block(groups)) == 13 * 1024


def test_packed_groups_of_deepseek_v4() -> None:
    """V4-Flash: 22 and 21 windows, 62 entries and index keys whole, 42 states of the 4-to-1 compressors, 20 of the others."""
    groups = plan(deepseek_v4_flash(), tensor_parallel=4, max_model_len=32768).groups
    assert sorted(sizes(groups)) == [20, 21, 22, 42, 62]
