"""GGUF files: headers read to the byte, shapes through the family's reader, and refusal of what is not understood."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from gguf_bytes import TYPES, Tensors, gguf, llama_metadata, llama_q4_k_m, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufit.errors import ConfigError, UnknownModelError
from gpufit.layers.latent import Latent
from gpufit.layers.sliding import Sliding
from gpufit.model import Model
from gpufit.sources.gguf import Passed, Window, parse
from gpufit.sources.gguf_config import BUILDERS
from gpufit.sources.gguf_model import model_of_header
from gpufit.sources.gguf_tables import TENSOR_TYPES
from gpufit.sources.resolve import resolve_model

LLAMA_8B: dict[str, Any] = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "width": 14336}


def model(metadata: dict[str, Any], tensors: Tensors) -> Model:
    """The Model of a header that was never on a disk."""
    front, _ = gguf(metadata, tensors)
    return model_of_header(parse(Window("test.gguf", lambda at, size: front[at : at + size])), id="test")


def total_bytes(found: Model) -> int:
    """The bytes that the header states."""
    assert found.published.bytes is not None
    return int(found.published.bytes)


def test_llama_8b_q4_k_m() -> None:
    """Llama 3.1 8B as Q4_K_M has the size that llama.cpp prints when it loads one: 4.58 GiB, 4.89 bits a weight."""
    found = model(llama_metadata(**LLAMA_8B, context=131072, tokens=100), llama_q4_k_m(**LLAMA_8B, dim=128, vocab=128256))
    assert found.total_params.value == 8_030_261_248
    assert f"{total_bytes(found) / 2**30:.2f}" == "4.58"
    assert f"{total_bytes(found) * 8 / 8_030_261_248:.2f}" == "4.89"
    assert (found.published.format, found.dtype, found.family) == ("q4_k_m", "fp16", "llama")
    assert [(g.kind.kind, len(g.indices)) for g in found.layers] == [("full", 32)]


def test_bits_of_types() -> None:
    """Tensor types have the bits per weight that GGML documents for them."""
    bits = {t.name: t.size * 8 / t.block for t in TENSOR_TYPES.values()}
    documented = {
        "Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6, "Q8_0": 8.5, "Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5,
        "Q6_K": 6.5625, "IQ1_S": 1.5625, "IQ1_M": 1.75, "IQ2_XXS": 2.0625, "IQ2_XS": 2.3125, "IQ2_S": 2.5625, "IQ3_XXS": 3.0625,
        "IQ3_S": 3.4375, "IQ4_XS": 4.25, "IQ4_NL": 4.5, "TQ1_0": 1.6875, "TQ2_0": 2.0625, "MXFP4": 4.25, "NVFP4": 4.5,
    }  # fmt: skip
    assert {name: bits[name] for name in documented} == documented


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20),
        st.one_of(
            st.booleans(),
            st.integers(0, 2**32 - 1),
            st.text(max_size=300),
            st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50),
            st.lists(st.text(max_size=20), min_size=1, max_size=600),
        ),
        max_size=8,
    ),
    st.lists(st.tuples(st.sampled_from(sorted(TYPES)), st.integers(1, 5), st.integers(1, 3)), max_size=12),
    st.integers(1, 5000),
)
def test_any_header_in_any_pieces(metadata: dict[str, Any], listed: list[tuple[str, int, int]], piece: int) -> None:
    """A header comes back as it was written, in whatever pieces it arrives, and no byte past its tensor list is asked for."""
    metadata.pop("general.alignment", None)
    tensors = [(f"t{i}", (rows, 256 * blocks), kind) for i, (kind, rows, blocks) in enumerate(listed)]
    front, _ = gguf(metadata, tensors)
    reached = [0]

    def more(at: int, size: int) -> bytes:
        got = front[at : at + min(size, piece)]
        reached[0] = max(reached[0], at + len(got))
        return got

    found = parse(Window("x", more))
    assert found.metadata == metadata
    assert [(t.name, tuple(reversed(t.dims)), t.type.name, t.bytes) for t in found.tensors] == [
        (name, shape, kind, size) for (name, shape, kind), size in zip(tensors, sizes(tensors), strict=True)
    ]
    assert found.size == len(front)
    if all(len(v) < 100 for v in metadata.values() if isinstance(v, list)):
        # Lists of very uneven texts can lead the estimate of their length a little too far.
        assert reached[0] <= len(front)


def test_long_vocabularies_are_counted() -> None:
    """A vocabulary is counted and passed over, and asking for it stays clear of the weights."""
    metadata = llama_metadata(**LLAMA_8B, context=8192, tokens=20_000)
    front, _ = gguf(metadata, llama_q4_k_m(**LLAMA_8B, dim=128, vocab=20_000))
    asked: list[tuple[int, int]] = []

    def more(at: int, size: int) -> bytes:
        asked.append((at, size))
        return front[at : at + size]

    found = parse(Window("x", more))
    assert found.metadata["tokenizer.ggml.tokens"] == Passed(20_000)
    assert max(at + size for at, size in asked) <= len(front)
    assert len(asked) < 30


# -- families -------------------------------------------------------------------------------------------------------------------------


def layered(
    arch: str, layers: int, each: list[tuple[str, tuple[int, ...]]], *, vocab: int, hidden: int, tied: bool = False
) -> Tensors:
    """F16 tensors of a model whose layers are alike."""
    found: list[tuple[str, tuple[int, ...], str]] = [
        ("token_embd.weight", (vocab, hidden), "F16"),
        ("output_norm.weight", (hidden,), "F32"),
    ]
    for i in range(layers):
        found += [(f"blk.{i}.{name}", shape, "F32" if len(shape) == 1 else "F16") for name, shape in each]
    if not tied:
        found.append(("output.weight", (vocab, hidden), "F16"))
    return found


def attention(
    hidden: int, heads: int, kv: int, dim: int, *, bias: bool = False, norms: bool = False
) -> list[tuple[str, tuple[int, ...]]]:
    """The attention tensors of one layer."""
    found: list[tuple[str, tuple[int, ...]]] = [
        ("attn_norm.weight", (hidden,)),
        ("attn_q.weight", (heads * dim, hidden)),
        ("attn_k.weight", (kv * dim, hidden)),
        ("attn_v.weight", (kv * dim, hidden)),
        ("attn_output.weight", (hidden, heads * dim)),
        ("ffn_norm.weight", (hidden,)),
    ]
    if bias:
        found += [("attn_q.bias", (heads * dim,)), ("attn_k.bias", (kv * dim,)), ("attn_v.bias", (kv * dim,))]
    if norms:
        found += [("attn_q_norm.weight", (dim,)), ("attn_k_norm.weight", (dim,))]
    return found


def mlp(hidden: int, width: int) -> list[tuple[str, tuple[int, ...]]]:
    """A gated MLP's tensors."""
    return [("ffn_gate.weight", (width, hidden)), ("ffn_up.weight", (width, hidden)), ("ffn_down.weight", (hidden, width))]


def experts(hidden: int, width: int, count: int) -> list[tuple[str, tuple[int, ...]]]:
    """Routed experts as GGUF fuses them."""
    return [
        ("ffn_gate_inp.weight", (count, hidden)),
        ("ffn_gate_exps.weight", (count, width, hidden)),
        ("ffn_up_exps.weight", (count, width, hidden)),
        ("ffn_down_exps.weight", (count, hidden, width)),
    ]


def test_qwen2_with_biases() -> None:
    """Qwen2.5 7B: 7,615,616,512 parameters with its query, key and value biases, from the tensors and from the shapes alike."""
    shape: dict[str, Any] = {"layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "width": 18944}
    found = model(
        llama_metadata(**shape, context=32768, arch="qwen2"), llama_q4_k_m(**shape, dim=128, vocab=152064, arch="qwen2", bias=True)
    )
    assert (found.total_params.value, found.notes, found.family) == (7_615_616_512, (), "qwen2")


def test_qwen3_moe() -> None:
    """Qwen3 30B-A3B: 30,532,122,624 parameters, of which 8 of 128 experts serve a token; head_dim is the stated key length."""
    meta = llama_metadata(
        layers=48, hidden=2048, heads=32, kv_heads=4, width=6144, context=40960, arch="qwen3moe", expert_count=128,
        expert_used_count=8, expert_feed_forward_length=768, **{"attention.key_length": 128, "attention.value_length": 128},
    )  # fmt: skip
    each = attention(2048, 32, 4, 128, norms=True) + experts(2048, 768, 128)
    found = model(meta, layered("qwen3moe", 48, each, vocab=151936, hidden=2048))
    assert (found.total_params.value, found.notes) == (30_532_122_624, ())
    assert found.active_params is not None
    assert found.active_params.value == 30_532_122_624 - 48 * (128 - 8) * 3 * 2048 * 768


def test_gemma3_windows() -> None:
    """Gemma 3 1B: five sliding layers of 512 tokens to one full, tied, 999,885,952 parameters."""
    meta = llama_metadata(
        layers=26, hidden=1152, heads=4, kv_heads=1, width=6912, context=32768, arch="gemma3",
        **{"attention.key_length": 256, "attention.value_length": 256, "attention.sliding_window": 512},
    )  # fmt: skip
    each = attention(1152, 4, 1, 256, norms=True) + mlp(1152, 6912)
    each += [("post_attention_norm.weight", (1152,)), ("post_ffw_norm.weight", (1152,))]
    found = model(meta, layered("gemma3", 26, each, vocab=262144, hidden=1152, tied=True))
    assert (found.total_params.value, found.notes, found.tied) == (999_885_952, (), True)
    sliding = [g for g in found.layers if isinstance(g.kind, Sliding)]
    assert [len(g.indices) for g in sliding] == [22]
    assert 5 not in sliding[0].indices


def test_gpt_oss() -> None:
    """gpt-oss 20B: every other layer slides over 128 tokens, experts in MXFP4, 20,914,757,184 parameters."""
    meta = llama_metadata(
        layers=24, hidden=2880, heads=64, kv_heads=8, width=0, context=131072, arch="gpt-oss", expert_count=32, expert_used_count=4,
        expert_feed_forward_length=2880,
        **{"attention.key_length": 64, "attention.value_length": 64, "attention.sliding_window": 128},
    )  # fmt: skip
    each = attention(2880, 64, 8, 64, bias=True) + experts(2880, 2880, 32)
    each += [
        ("attn_output.bias", (2880,)), ("attn_sinks.weight", (64,)), ("ffn_gate_inp.bias", (32,)), ("ffn_gate_exps.bias", (32, 2880)),
        ("ffn_up_exps.bias", (32, 2880)), ("ffn_down_exps.bias", (32, 2880)),
    ]  # fmt: skip
    tensors = [(n, s, "MXFP4" if "_exps.weight" in n else k) for n, s, k in layered("gpt-oss", 24, each, vocab=201088, hidden=2880)]
    found = model(meta, tensors)
    assert (found.total_params.value, found.notes) == (20_914_757_184, ())
    assert [(g.kind.kind, len(g.indices)) for g in found.layers] == [("full", 12), ("sliding", 12)]


@pytest.mark.parametrize("stated", ["mla", "heads"])
def test_deepseek_latents(stated: str) -> None:
    """DeepSeek-V2-Lite, as newer and older converters wrote it: a latent of 512 + 64, 15,706,484,224 parameters."""
    lengths: dict[str, Any] = (
        {
            "attention.key_length": 576,
            "attention.value_length": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        }
        if stated == "mla"
        else {"attention.key_length": 192, "attention.value_length": 128}
    )
    meta = llama_metadata(
        layers=27, hidden=2048, heads=16, kv_heads=1 if stated == "mla" else 16, width=10944, context=163840, arch="deepseek2",
        expert_count=64, expert_used_count=6, expert_shared_count=2, expert_feed_forward_length=1408, leading_dense_block_count=1,
        **{"attention.kv_lora_rank": 512, "rope.dimension_count": 64}, **lengths,
    )  # fmt: skip
    common: list[tuple[str, tuple[int, ...]]] = [
        ("attn_norm.weight", (2048,)),
        ("attn_q.weight", (16 * 192, 2048)),
        ("attn_kv_a_mqa.weight", (576, 2048)),
        ("attn_kv_a_norm.weight", (512,)),
        ("attn_kv_b.weight", (16 * 256, 512)),
        ("attn_output.weight", (2048, 2048)),
        ("ffn_norm.weight", (2048,)),
    ]
    shared = [(n.replace(".weight", "_shexp.weight"), s) for n, s in mlp(2048, 2816)]
    sparse = common + experts(2048, 1408, 64) + shared
    tensors = list(layered("deepseek2", 27, sparse, vocab=102400, hidden=2048))
    dense = [(f"blk.0.{n}", s, "F16") for n, s in common + mlp(2048, 10944)]
    found = model(meta, [t for t in tensors if not t[0].startswith("blk.0.")] + dense)
    assert (found.total_params.value, found.notes) == (15_706_484_224, ())
    kind = found.layers[0].kind
    assert isinstance(kind, Latent)
    assert (kind.latent_rank.value, kind.rope_dim.value, len(found.layers[0].indices)) == (512, 64, 27)


def test_layers_that_are_one_thing_each() -> None:
    """Nemotron-H: KV heads, widths and routers by layer tell attention, MLP, experts and mixers apart; only two kinds keep anything."""
    meta = llama_metadata(
        layers=4, hidden=256, heads=4, kv_heads=2, width=512, context=8192, arch="nemotron_h", expert_count=8, expert_used_count=2,
        expert_feed_forward_length=128, expert_shared_count=1, expert_shared_feed_forward_length=256,
        **{
            "attention.key_length": 64, "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 8, "ssm.inner_size": 512,
            "ssm.time_step_rank": 8,
        },
    )  # fmt: skip
    meta |= {"nemotron_h.attention.head_count_kv": [0, 2, 0, 0], "nemotron_h.feed_forward_length": [0, 0, 512, 128]}
    tensors: Tensors = [
        ("token_embd.weight", (1000, 256), "F16"), ("output.weight", (1000, 256), "F16"), ("output_norm.weight", (256,), "F32"),
        ("blk.0.ssm_in.weight", (2568, 256), "F16"), ("blk.1.attn_k.weight", (128, 256), "F16"), ("blk.2.ffn_up.weight", (512, 256), "F16"),
        ("blk.3.ffn_gate_inp.weight", (8, 256), "F32"),
    ]  # fmt: skip
    found = model(meta, tensors)
    kept = {g.kind.kind: g.indices for g in found.layers if g.kind.kind != "none"}
    assert kept == {"mamba2": (0,), "full": (1,)}


# -- refusals -------------------------------------------------------------------------------------------------------------------------


def test_unknown_architecture_is_refused() -> None:
    """An architecture without a mapping is refused by name."""
    with pytest.raises(ConfigError, match="GGUF architecture 'wonder' is not known"):
        model(llama_metadata(**LLAMA_8B, context=8192, arch="wonder"), [])
    assert "wonder" not in BUILDERS


def test_keys_that_contradict_tensors_are_refused() -> None:
    """A file whose key tensors are not as wide as its metadata says is refused with both widths."""
    metadata = llama_metadata(**{**LLAMA_8B, "kv_heads": 4}, context=8192)
    with pytest.raises(ConfigError, match=r"attn_k\.weight has 1024 rows, but llama layer 0 keeps K of 512"):
        model(metadata, llama_q4_k_m(**LLAMA_8B, dim=128, vocab=1000))


def test_heads_that_differ_by_layer_are_refused() -> None:
    """KV heads that differ by layer are refused where the family's reader knows one number."""
    metadata = llama_metadata(**LLAMA_8B, context=8192) | {"llama.attention.head_count_kv": [8] * 16 + [4] * 16}
    with pytest.raises(ConfigError, match=r"llama\.attention\.head_count_kv is \[8"):
        model(metadata, llama_q4_k_m(**LLAMA_8B, dim=128, vocab=1000))


@pytest.mark.parametrize(
    ("front", "words"),
    [
        (b"", "ends inside its header"),
        (b"GGUF", "ends inside its header"),
        (b"GGML" + bytes(60), "does not begin with GGUF"),
        (b"GGUF" + bytes([0, 0, 0, 3]) + bytes(60), "big-endian"),
        (b"GGUF" + bytes([1, 0, 0, 0]) + bytes(60), "version 1"),
        (b"GGUF" + bytes([3, 0, 0, 0]) + b"\xff" * 60, "no readable GGUF file"),
    ],
)
def test_what_is_no_gguf(tmp_path: Path, front: bytes, words: str) -> None:
    """Files that are cut, foreign, or of another version are refused with the reason."""
    path = tmp_path / "x.gguf"
    path.write_bytes(front)
    with pytest.raises(ConfigError, match=words):
        resolve_model(str(path), offline=True)


@settings(deadline=None)
@given(st.integers(0, 2000), st.integers(0, 255))
def test_damage_is_an_error_or_an_answer(at: int, byte: int) -> None:
    """A header with one byte changed is read or refused, never anything else."""
    shape: dict[str, Any] = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 2, "width": 512}
    front, _ = gguf(llama_metadata(**shape, context=4096, tokens=5), llama_q4_k_m(**shape, dim=64, vocab=100))
    damaged = bytearray(front)
    damaged[at % len(front)] = byte
    with contextlib.suppress(ConfigError):
        assert model_of_header(parse(Window("x", lambda start, size: bytes(damaged[start : start + size]))), id="x").layers


# -- on disk --------------------------------------------------------------------------------------------------------------------------


def test_split_files_on_disk(tmp_path: Path) -> None:
    """Whichever file of a split model is named, all are read; a folder with one model needs no file name."""
    shape: dict[str, Any] = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 2, "width": 512}
    tensors = llama_q4_k_m(**shape, dim=64, vocab=100)
    split: dict[str, Any] = {"split.count": 2, "split.no": 0}
    first = llama_metadata(**shape, context=4096, tokens=5, **split)
    for number, (metadata, part) in enumerate(((first, tensors[:5]), ({"split.count": 2, "split.no": 1}, tensors[5:])), 1):
        front, data = gguf(metadata, part)
        with (tmp_path / f"m-Q4_K_M-{number:05d}-of-00002.gguf").open("wb") as file:
            file.write(front)
            file.truncate(len(front) + data)
    for name in ("m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf", "."):
        assert total_bytes(resolve_model(str(tmp_path / name), offline=True)) == sum(sizes(tensors))
    (tmp_path / "m-Q4_K_M-00001-of-00002.gguf").unlink()
    with pytest.raises(ConfigError, match="one of 2 files, and number 1 is not there"):
        resolve_model(str(tmp_path), offline=True)


def test_folder_of_several_models(tmp_path: Path) -> None:
    """A folder with several GGUF models lists them."""
    for name in ("a-Q8_0.gguf", "b-Q4_0.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(UnknownModelError, match="holds 2 GGUF models") as caught:
        resolve_model(str(tmp_path), offline=True)
    assert "a-Q8_0.gguf, b-Q4_0.gguf" in caught.value.hint
