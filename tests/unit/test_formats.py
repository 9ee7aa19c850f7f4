"""Bytes of stored matrices and the names by which quantisers mean them, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpufit.errors import ConfigError
from gpufit.formats.bitsandbytes import FourBit, RowInt8
from gpufit.formats.eight_bit import ChannelScaled, TensorScaled, in_blocks, scale_of
from gpufit.formats.integer_groups import ByteGroups, Codebooks, IntegerGroups
from gpufit.formats.microscaling import MXFP4, MXFP8, nvfp4
from gpufit.formats.names import Names
from gpufit.formats.recipe import Scope
from gpufit.formats.tensor import PLAIN, TensorFormat
from gpufit.model import Role, Shard, WeightPart
from gpufit.quantity import BIT, BYTE, NUMBER, Q, Unit, fact


def number(value: int, unit: Unit = NUMBER) -> Q:
    return fact(value, unit, symbol="n", name="n", origin="test")


def integers(bits: int, group: int | None = 128, **more: Any) -> IntegerGroups:
    grouped = None if group is None else number(group)
    return IntegerGroups(name="t", word="int", bits=number(bits, BIT), scale=number(2, BYTE), group=grouped, **more)


def part(
    module: str, *, role: Role = Role.ATTENTION, linear: bool = True, copies: int | None = None, columns: int = 128
) -> WeightPart:
    return WeightPart(
        name="p", role=role, module=module, rows=number(128), columns=number(columns), linear=linear, shard=Shard.COLUMN,
        copies=None if copies is None else number(copies), layers=(0, 1, 10) if "{i}" in module else (),
    )  # fmt: skip


CASES: list[tuple[str, TensorFormat, int, int, int]] = [
    ("bf16", PLAIN["bf16"], 4096, 4096, 2 * 4096 * 4096),
    (
        "DeepSeek-V3's kv_a projection: 576 rows are 4.5 blocks, counted as 5",
        in_blocks("fp8", 128, 128, scale=scale_of(4, "t"), origin="t"),
        576,
        7168,
        576 * 7168 + 4 * 5 * 56,
    ),
    (
        "fp8 with one scale and one input scale",
        TensorScaled(name="t", word="fp8", scale=scale_of(4, "t"), extra=number(4, BYTE)),
        1024,
        4096,
        1024 * 4096 + 8,
    ),
    ("fp8 by channel", ChannelScaled(name="t", word="fp8", scale=scale_of(2, "t")), 1024, 4096, 1024 * 4096 + 2048),
    ("NVFP4: half a byte, an FP8 scale for 16, two FP32 scalars", nvfp4(scalars=8), 2048, 7168, 2048 * 7168 // 2 + 2048 * 448 + 8),
    ("MXFP4: gpt-oss's 2880 input features are 90 blocks", MXFP4, 5760, 2880, 5760 * 1440 + 5760 * 90),
    ("MXFP8", MXFP8, 256, 64, 256 * 64 + 256 * 2),
    (
        "GPTQ int4, groups of 128: words, zeros, scales, group numbers",
        integers(4, packed_zero=True, index=number(4, BYTE)),
        4096,
        11008,
        4096 * 1376 * 4 + 86 * 512 * 4 + 86 * 4096 * 2 + 4 * 11008,
    ),
    (
        "GPTQ int3 in one group: 32 weights in three words",
        integers(3, None, packed_zero=True),
        8192,
        8192,
        8192 * 768 * 4 + 768 * 4 + 8192 * 2,
    ),
    (
        "AWQ packs output features",
        integers(4, packed_zero=True, packed_rows=True),
        4096,
        11008,
        11008 * 512 * 4 + 86 * 512 * 4 + 86 * 4096 * 2,
    ),
    ("compressed-tensors int3 wastes two bits of a word", integers(3, 128, per_word=number(10)), 10, 100, 10 * 10 * 4 + 10 * 2),
    ("MLX: a scale and a bias for 64", integers(4, 64, zero=number(2, BYTE)), 1024, 4096, 1024 * 512 * 4 + 1024 * 64 * 4),
    (
        "HQQ int4, groups of 64",
        ByteGroups(name="t", word="int4", bits=number(4, BIT), scale=number(4, BYTE), group=number(64)),
        1024,
        4096,
        1024 * 4096 // 2 + 65536 * 4,
    ),
    (
        "NF4: an FP32 constant for 64 and 16 table values",
        FourBit(name="t", word="nf4", double=False),
        4096,
        4096,
        4096 * 2048 + 4 * 262144 + 64,
    ),
    (
        "NF4, double quantised: a byte for 64, FP32 for 256 of them, two tables",
        FourBit(name="t", word="nf4", double=True),
        4096,
        4096,
        4096 * 2048 + 262144 + 4 * 1024 + 64 + 1024,
    ),
    ("LLM.int8(): an FP32 constant for each row", RowInt8(name="t", word="int8"), 4096, 14336, 4096 * 14336 + 4 * 4096 + 1),
    (
        "AQLM 1x16 in groups of 8: 2 bits a weight and 1 MiB of codebook",
        Codebooks(
            name="t",
            word="aqlm",
            group_in=number(8),
            group_out=number(1),
            codes=number(2, BYTE),
            book=number(65536 * 8 * 2, BYTE),
            scale=number(2, BYTE),
        ),
        4096,
        4096,
        4096 * 512 * 2 + 1048576 + 8192,
    ),
]


@pytest.mark.parametrize(("why", "form", "rows", "columns", "expected"), CASES, ids=[c[0].split(":")[0] for c in CASES])
def test_bytes_of_a_matrix(why: str, form: TensorFormat, rows: int, columns: int, expected: int) -> None:
    """Scales, zero points, packing and padding of every storage format are counted as its files hold them."""
    size = form.tensor_bytes(number(rows), number(columns))
    assert (int(size), size.unit) == (expected, BYTE), why


@pytest.mark.parametrize(
    ("pattern", "module", "layer", "means"),
    [
        ("lm_head", "lm_head", None, True),
        ("lm_head", "language_model.lm_head", None, True),
        ("language_model.lm_head", "lm_head", None, True),
        ("visual", "visual.blocks.{i}.attn.qkv", 1, True),
        ("model.layers.1.self_attn*", "model.layers.{i}.self_attn.q_proj", 1, True),
        ("model.layers.1.self_attn*", "model.layers.{i}.self_attn.q_proj", 10, False),
        ("model.layers.1*", "model.layers.{i}.mlp.up_proj", 10, False),
        ("model.layers.1.*", "language_model.model.layers.{i}.mlp.up_proj", 1, True),
        ("model.language_model.layers.1.mlp.gate", "model.layers.{i}.mlp.gate", 1, True),
        ("model.layers.1.mlp.gate", "model.layers.{i}.mlp.gate_proj", 1, False),
        ("model.layers.1.mlp", "vision_tower.layers.{i}.mlp.fc1", 1, False),
        ("gate", "model.layers.{i}.block_sparse_moe.gate", 0, True),
        ("gate", "model.layers.{i}.mlp.gate_proj", 0, False),
        ("model.layers.*.self_attn", "model.layers.{i}.self_attn.o_proj", 10, True),
        ("*.mlp.shared_expert.*", "model.layers.{i}.mlp.shared_expert.up_proj", 0, True),
        ("*.mlp.shared_expert.*", "model.layers.{i}.mlp.shared_expert_gate", 0, False),
        ("re:.*self_attn.*", "language_model.model.layers.{i}.self_attn.kv_b_proj", 0, True),
        ("re:vision_tower.*", "model.vision_tower.blocks.{i}.wo", 0, True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "model.layers.{i}.mlp.down_proj", 0, True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "model.layers.{i}.mlp.experts.{e}.down_proj", 0, False),
        ("model.layers.0.self_attn.qkv_proj", "model.layers.{i}.self_attn.k_proj", 0, True),
        ("model.layers.0.mlp.gate_up_proj", "model.layers.{i}.mlp.up_proj", 0, True),
        ("model.layers.0.mlp.experts", "model.layers.{i}.mlp.experts.{e}.up_proj", 0, True),
        ("model.layers.0.ffn.experts", "layers.{i}.ffn.experts.{e}.w1", 0, True),
        ("re:.*ffn.*(gate|up|down)_proj$", "layers.{i}.ffn.experts.{e}.w2", 0, True),
    ],
)
def test_a_name_means_a_module_or_the_tree_below_it(pattern: str, module: str, layer: int | None, means: bool) -> None:
    """Names match whole components, with or without the text model's path, as fused modules, as globs and as expressions."""
    copies = 4 if "{e}" in module else None
    assert Names([pattern]).match(part(module, copies=copies), layer) is means


def test_a_fused_module_is_meant_when_all_its_parts_are() -> None:
    """A file that stores q, k and v in one matrix follows a list that names the three."""
    fused = part("model.layers.{i}.self_attn.qkv_proj")
    three = [f"model.layers.0.self_attn.{x}_proj" for x in "qkv"]
    assert Names(three).match(fused, 0)
    assert not Names(three[:2]).match(fused, 0)


def test_every_expert_by_number_means_the_experts() -> None:
    """A map that names each expert means the matrix of all; one that names some is refused, not guessed."""
    experts = part("model.layers.{i}.mlp.experts.{e}.up_proj", role=Role.ROUTED_EXPERTS, copies=4)
    named = [f"model.layers.0.mlp.experts.{e}.up_proj" for e in range(4)]
    assert Names(named).match(experts, 0)
    assert not Names(named).match(experts, 1)
    with pytest.raises(ConfigError, match="3 of the 4 experts"):
        Names(named[:3]).match(experts, 0)


def test_layers_of_a_tower_are_meant_together() -> None:
    """A part that stands for all layers of a tower is kept when the list names each of them, refused when it names some."""
    tower = part("vision_model.model.layers.{e}.mlp.fc1", role=Role.VISION, copies=3)
    named = [f"vision_model.model.layers.{e}.mlp.fc1" for e in range(3)]
    assert Names(named).match(tower, None)
    assert Names(["vision_model"]).match(tower, None)
    with pytest.raises(ConfigError, match="2 of the 3 modules"):
        Names(named[1:]).match(tower, None)


def test_a_broken_expression_is_refused() -> None:
    """An expression that does not compile is an error about the config, never a traceback."""
    with pytest.raises(ConfigError, match="no regular expression"):
        Names(["re:("])


def test_scope_leaves_out_what_a_quantiser_does_not_see() -> None:
    """Routers, embeddings, heads and matrices that the group does not divide are covered only where the method says so."""
    router = part("model.layers.{i}.mlp.gate", role=Role.ROUTER, linear=False)
    head, table = part("lm_head", role=Role.HEAD), part("model.embed_tokens", role=Role.EMBEDDING, linear=False)
    assert not any(Scope().covers(p) for p in (router, head, table))
    assert all(Scope(head=True, embeddings=True, every_matrix=True).covers(p) for p in (router, head, table))
    assert not Scope(head=True, multiple=64).covers(part("lm_head", role=Role.HEAD, columns=96))
    tower = part("visual.blocks.{i}.mlp.fc1", role=Role.VISION)
    assert Scope().covers(tower)
    assert not Scope(blocks_only=True).covers(tower)
