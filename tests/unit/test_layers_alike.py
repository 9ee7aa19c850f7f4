"""Grouping layers that no name tells apart gives what asking layer by layer gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpufit.formats.names import Names, alike
from gpufit.formats.recipe import ByModule, Rule, Scope
from gpufit.formats.tensor import PLAIN
from gpufit.model import Role, WeightPart
from gpufit.quantity import NUMBER, fact

_ROOTS = ["", "model.", "language_model.model.", "model.language_model."]
_MODULES = [
    "model.layers.{i}.self_attn.q_proj",
    "model.layers.{i}.self_attn.qkv_proj",
    "model.layers.{i}.mlp.gate_up_proj",
    "model.layers.{i}.mlp.experts.{e}.up_proj",
    "model.layers.{i}.block_sparse_moe.w1",
    "model.layers.{i}.mixer.convs.0",
    "transformer.h.{i}.mlp.c_fc",
    "transformer.block{i}.mlp.c_fc",
]
_NUMBERS = st.sampled_from(["0", "1", "7", "9", "10", "11", "12", "17", "99", "100", "101", "07", "*", "1*", "?"])


def _part(module: str, layers: tuple[int, ...]) -> WeightPart:
    side = fact(64, NUMBER, symbol="s", name="side", origin="test")
    role = Role.ROUTED_EXPERTS if "{e}" in module else Role.MLP
    return WeightPart(name="part", role=role, module=module, rows=side, columns=side, layers=layers, linear=True)


@st.composite
def _patterns(draw: st.DrawFn) -> str:
    module = draw(st.sampled_from(_MODULES)).replace("model.", "", 1).replace("experts.{e}", "experts")
    path = module.replace("{i}", draw(_NUMBERS)).split(".")
    start = draw(st.integers(0, len(path) - 1))
    text = ".".join(path[start : draw(st.integers(start + 1, len(path)))])
    kind = draw(st.sampled_from(["plain", "plain", "rooted", "star", "regex"]))
    if kind == "rooted":
        return draw(st.sampled_from(_ROOTS)) + text
    if kind == "star":
        return text + "*"
    if kind == "regex":
        number = draw(
            st.sampled_from([r"\d", r"\d+", "[0-9]+", "[0-4]", "1", ".", "..", ".*", "(1|2)", r"\d{2}", r"(?P<a>\d)(?P=a)"])
        )
        return (
            "re:.*"
            + draw(st.sampled_from(["layers.", r"layers\.", "h."]))
            + number
            + draw(st.sampled_from(["", r"\.", ".*proj", "$"]))
        )
    return text


@given(
    lists=st.lists(st.lists(_patterns(), min_size=1, max_size=5), min_size=1, max_size=3),
    module=st.sampled_from(_MODULES),
    layers=st.lists(st.integers(0, 112), min_size=1, max_size=40, unique=True),
)
@example(lists=[["layers.3.mixer.convs.0"]], module="model.layers.{i}.mixer.convs.0", layers=[0, 3, 4])
@example(lists=[["transformer.block3.mlp"]], module="transformer.block{i}.mlp.c_fc", layers=[2, 3])
@example(lists=[["model.layers.?.self_attn"]], module="model.layers.{i}.self_attn.q_proj", layers=[1, 9, 10])
@example(lists=[["model.layers.?.self_attn", "layers.40.self_attn"]], module="model.layers.{i}.self_attn.q_proj", layers=[1, 10])
@example(lists=[["layers.07.self_attn", "layers.5.self_attn"]], module="model.layers.{i}.self_attn.q_proj", layers=[5, 7])
def test_layers_decided_together_are_those_decided_alone(lists: list[list[str]], module: str, layers: list[int]) -> None:
    """The formats of a part over its layers are the formats of each layer, counted, in the order in which they first appear."""
    formats = [PLAIN["fp8"], PLAIN["int8"], PLAIN["fp32"]]
    rules = tuple(Rule(names=Names(names), format=formats[at]) for at, names in enumerate(lists))
    part = _part(module, tuple(sorted(layers)))
    together = ByModule(plain=PLAIN["bf16"], scope=Scope(), rules=rules).stored(part)
    alone = ByModule(plain=PLAIN["bf16"], scope=Scope(), rules=rules)
    one_by_one = Counter(alone.format_of(part, layer).name for layer in part.layers)
    assert [(form.name, count) for form, count in together] == list(one_by_one.items())


@pytest.mark.parametrize(
    ("patterns", "most"),
    [
        (["lm_head"], 1),
        (["model.layers.*.self_attn"], 3),
        ([r"re:.*self_attn.*", r"re:.*mlp\.(gate|up)_proj$"], 3),
        ([f"model.layers.{i}.self_attn*" for i in range(64)], 2),
        (["re:.*layers.(1|2).self_attn.*"], 128),
    ],
)
def test_layers_are_told_apart_only_by_what_a_list_says(patterns: list[str], most: int) -> None:
    """A list distinguishes no more kinds of layers than it has words for."""
    told = Names(patterns).told_apart("model.layers.{i}.self_attn.q_proj")
    groups = alike(tuple(range(128)), frozenset([told]))
    assert len(groups) <= most
    assert sorted(layer for group in groups for layer in group) == list(range(128))
