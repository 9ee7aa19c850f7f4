"""GGUF mixes: sizes against published tables and files, types by layer against llama.cpp's own snapshots, and who serves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gguf_bytes import gguf, llama_metadata, llama_q4_k_m
from support import calculate, gpufit, gpufit_json

from gpufit.derivation import steps
from gpufit.engines.arithmetic import Arithmetic
from gpufit.engines.base import WeightChoice
from gpufit.formats.cache import CACHE_FORMATS, engine_format
from gpufit.formats.ggml import TYPES, fitting, ggml_format
from gpufit.formats.gguf_mixes import GGUF_MIXES, GgufRecipe, gguf_mix, gguf_recipe
from gpufit.model import Model
from gpufit.quantity import NUMBER, fact
from gpufit.sizing.question import Question
from gpufit.sizing.search import answer
from gpufit.sizing.weights import ladder, published_weights, weights_in
from gpufit.sources.catalogue import all_models, find_model
from gpufit.sources.gguf import Window, parse
from gpufit.sources.gguf_model import model_of_header
from gpufit.sources.gpuspec import parse_specs
from gpufit.workload import Workload


def named(slug: str) -> Model:
    """A model of the catalogue."""
    found = find_model(slug)
    assert found is not None, slug
    return found


def gigabytes(slug: str, mix: str) -> float:
    """The weights of a model in a mix, GB."""
    return int(weights_in(named(slug), mix).bytes) / 1e9


def types(slug: str, mix: str, part: str) -> dict[int, str]:
    """The tensor type of a part in each of its layers."""
    model = named(slug)
    recipe = gguf_recipe(mix, model)
    return {i: recipe.format_of(p, i).name for p in model.parts if p.name == part for i in p.layers}


# Bits per weight of Llama 3.1 8B and 70B, from the quantiser's rules worked out by hand over their shapes.
TABLE = {
    "q2_k": (3.158, 2.989), "q3_k_s": (3.642, 3.504), "q3_k_m": (3.995, 3.884), "q3_k_l": (4.297, 4.210), "iq4_xs": (4.459, 4.338),
    "q4_k_s": (4.666, 4.574), "q4_k_m": (4.893, 4.820), "q5_k_s": (5.570, 5.516), "q5_k_m": (5.703, 5.662), "q6_k": (6.562, 6.562),
    "q8_0": (8.500, 8.500),
}  # fmt: skip


@pytest.mark.parametrize("mix", TABLE)
def test_bits_per_weight_of_llama(mix: str) -> None:
    """Llama 3.1 8B and 70B have the bits per weight of the reference table, to a thousandth of a bit and its rounding."""
    for slug, expected in zip(("llama-3.1-8b", "llama-3.1-70b"), TABLE[mix], strict=True):
        model = named(slug)
        bits = int(weights_in(model, mix).bytes) * 8 / int(model.total_params)
        assert bits == pytest.approx(expected, abs=0.0025), slug


# Sizes in GB that makers of GGUF files state for their files (tokenizer and header included, some MB). Files made with an importance
# matrix are left out where it changes types (IQ4, Q4_0), and so are fused-attention models in Q5_K_M: see the next table.
FILES = {
    "llama-3.1-70b": {"q8_0": 74.98, "q6_k": 57.89, "q5_k_m": 49.95, "q5_k_s": 48.66, "q4_k_m": 42.52, "q4_k_s": 40.35,
                      "q3_k_l": 37.14, "q3_k_m": 34.27, "q3_k_s": 30.91, "iq3_m": 31.94},
    "mixtral-8x22b": {"q5_k_m": 99.96, "q5_k_s": 96.97, "q4_k_m": 85.58, "q4_k_s": 80.47, "iq4_nl": 80.47, "iq4_xs": 76.35,
                      "q3_k_l": 72.57, "q3_k_m": 67.78, "iq3_m": 64.49, "iq3_s": 61.49, "q3_k_s": 61.49, "iq3_xs": 58.22, "q2_k": 52.10},
    "deepseek-v3": {"q8_0": 713.29, "q6_k": 550.80, "q5_k_m": 475.40, "q5_k_s": 461.81, "q4_k_m": 404.43, "q4_1": 419.94},
    "qwen3-30b-a3b": {"q8_0": 32.48, "q6_k": 25.10, "q5_k_m": 21.74, "q5_k_s": 21.10},
    "phi-4": {"q8_0": 15.58, "q6_k": 12.03, "q5_k_s": 10.15, "q4_k_m": 9.05, "q4_1": 9.27},
    "gemma-2-9b": {"q8_0": 9.82},
    "llama-3.2-1b": {"q4_k_m": 0.80},
}  # fmt: skip


@pytest.mark.parametrize(("slug", "mix"), [(slug, mix) for slug, mixes in FILES.items() for mix in mixes])
def test_published_files(slug: str, mix: str) -> None:
    """Sizes are those of published files within 0.15 %, dense, with experts, with latent attention, tied and fused alike."""
    assert gigabytes(slug, mix) == pytest.approx(FILES[slug][mix], rel=0.0015, abs=0.005)


def test_older_files_of_fused_attention_differ_by_a_percent() -> None:
    """Phi-4's published Q5_K_M (10.60 GB) was made when attn_qkv had a rule of its own; today's rules are within 1 % of it."""
    assert gigabytes("phi-4", "q5_k_m") == pytest.approx(10.60, rel=0.01)


def test_same_bytes_as_the_tensors_of_a_file() -> None:
    """Llama 3.1 8B by the rules and a Q4_K_M header written out tensor by tensor have the same bytes, rotary table apart."""
    front, _ = gguf(
        llama_metadata(layers=32, hidden=4096, heads=32, kv_heads=8, width=14336, context=131072, tokens=100),
        llama_q4_k_m(layers=32, hidden=4096, heads=32, kv_heads=8, width=14336, dim=128, vocab=128256),
    )
    header = parse(Window("test.gguf", lambda at, size: front[at : at + size]))
    stored = sum(t.bytes for t in header.tensors if not t.name.startswith("rope"))
    assert int(weights_in(named("llama-3.1-8b"), "q4_k_m").bytes) == stored


# -- types by layer ---------------------------------------------------------------------------------------------------------------


def test_more_bits_layers() -> None:
    """Of 36 layers the first and last eighth and every third between have Q6_K values and down projections in Q4_K_M."""
    more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35}
    for part in ("v_proj", "down_proj"):
        assert {i for i, kind in types("qwen3-8b", "q4_k_m", part).items() if kind == "Q6_K"} == more
    assert set(types("qwen3-8b", "q4_k_m", "o_proj").values()) == {"Q4_K"}


def test_hybrid_counts_its_linear_attention() -> None:
    """A hybrid counts the fused projections of linear attention as values: Q4_K_S widens layers 0 to 3, of which one is full."""
    linear, full = types("qwen3-next-80b-a3b", "q4_k_s", "in_proj_qkvz"), types("qwen3-next-80b-a3b", "q4_k_s", "v_proj")
    assert {i for i, kind in (linear | full).items() if kind == "Q5_K"} == {0, 1, 2, 3}


def test_no_attention_in_layer_0() -> None:
    """Nemotron 3 Nano has no KV heads in layer 0, so values are not widened in Q2_K, and rows of 2,688 fall back to blocks of 32."""
    assert set(types("nemotron-3-nano-30b-a3b", "q2_k", "v_proj").values()) == {"Q4_0"}
    assert set(types("nemotron-3-nano-30b-a3b", "q2_k", "o_proj").values()) == {"Q3_K"}
    assert set(types("nemotron-3-nano-30b-a3b", "q2_k", "in_proj").values()) == {"Q4_0"}
    down = types("nemotron-3-nano-30b-a3b", "q3_k_m", "expert down_proj")
    assert (down[1], down[3]) == ("Q5_1", "Q5_0")


def test_seventy_billion() -> None:
    """The 70B shape of Llama and Qwen 2 never has values narrower than Q5_K in K-quants; other models of 80 layers' size do."""
    assert set(types("llama-3.3-70b", "q3_k_s", "v_proj").values()) == {"Q5_K"}
    assert set(types("qwen2.5-72b", "q2_k", "v_proj").values()) == {"Q5_K"}
    assert set(types("qwen3-32b", "q3_k_s", "v_proj").values()) == {"Q3_K"}


def test_eight_experts() -> None:
    """Models with eight experts have keys and values at Q8_0 and attention outputs at Q5_K; others do not."""
    for part, kind in (("v_proj", "Q8_0"), ("k_proj", "Q8_0"), ("o_proj", "Q5_K"), ("q_proj", "Q4_K")):
        assert set(types("mixtral-8x7b", "q4_k_m", part).values()) == {kind}
    assert set(types("qwen3-30b-a3b", "q4_k_m", "k_proj").values()) == {"Q4_K"}


def test_latents_are_stored_transposed() -> None:
    """DeepSeek's absorbed keys have rows of 128, no whole block of 256, and become Q5_0 in Q4_K_M; the values stay Q4_K."""
    model = named("deepseek-v3")
    recipe = gguf_recipe("q4_k_m", model)
    part = next(p for p in model.parts if p.name == "kv_b_proj")
    form = recipe.format_of(part, 5)
    assert form.name == "Q5_0 keys, Q4_K values"
    keys, values = 128 * 512 * 128 // 32 * 22, 128 * 128 * 512 // 256 * 144
    assert int(form.tensor_bytes(part.rows, part.columns)) == keys + values


def test_native_mxfp4_stays() -> None:
    """gpt-oss is published in MXFP4, which llama.cpp does not quantise again: its experts are MXFP4 in every mix, the head Q8_0."""
    for mix in ("q2_k", "q4_k_m", "q8_0", "mxfp4_moe", "f16"):
        assert set(types("gpt-oss-20b", mix, "expert down_proj").values()) == {"MXFP4"}
    model = named("gpt-oss-20b")
    head = next(p for p in model.parts if p.name == "output head")
    assert gguf_recipe("q4_k_m", model).format_of(head, None).name == "Q8_0"
    assert gigabytes("gpt-oss-20b", "mxfp4_moe") == pytest.approx(12.1, rel=0.002)


def test_mixture_in_mxfp4() -> None:
    """MXFP4_MOE has experts in MXFP4 and all other matrices in Q8_0; without experts that is Q8_0."""
    assert set(types("qwen3-30b-a3b", "mxfp4_moe", "expert up_proj").values()) == {"MXFP4"}
    assert set(types("qwen3-30b-a3b", "mxfp4_moe", "q_proj").values()) == {"Q8_0"}
    model = named("llama-3.1-8b")
    assert weights_in(model, "mxfp4_moe").bytes.value == weights_in(model, "q8_0").bytes.value


@pytest.mark.parametrize("mix", GGUF_MIXES)
def test_vectors_routers_and_towers(mix: str) -> None:
    """In every mix vectors and routers are F32 and vision towers 16 bit."""
    for slug, part, kind in (
        ("qwen3-30b-a3b", "input norm", "fp32"),
        ("qwen3-30b-a3b", "router", "fp32"),
        ("qwen2.5-7b", "q_proj bias", "fp32"),
        ("qwen3-next-80b-a3b", "conv1d", "fp32"),
    ):
        found = types(slug, mix, part)
        assert set(found.values()) == {kind}, slug
    model = named("gemma-3-4b")
    recipe = gguf_recipe(mix, model)
    towers = {f.name for p in model.parts if p.role.value == "vision tower" and p.linear and p.columns for f, _ in recipe.stored(p)}
    assert towers == {"fp16"}


def test_embeddings() -> None:
    """A tied embedding has the head's type, an own one the mix's: Q6_K against Q4_K in Q4_K_M."""
    for slug, kind in (("llama-3.2-1b", "Q6_K"), ("llama-3.1-8b", "Q4_K")):
        model = named(slug)
        embedding = next(p for p in model.parts if p.name == "token embedding")
        assert gguf_recipe("q4_k_m", model).format_of(embedding, None).name == kind
    model = named("gemma-4-e2b")
    table = next(p for p in model.parts if p.name == "per-layer embedding")
    assert gguf_recipe("q4_k_m", model).format_of(table, None).name == "Q6_K"


@pytest.mark.parametrize(
    ("meant", "columns", "stored"),
    [
        ("Q4_K", 4096, "Q4_K"),
        ("Q4_K", 2880, "Q5_0"),
        ("Q5_K", 2880, "Q5_1"),
        ("Q6_K", 2880, "Q8_0"),
        ("Q3_K", 2880, "Q4_0"),
        ("Q2_K", 2880, "Q4_0"),
        ("IQ4_XS", 2880, "IQ4_NL"),
        ("IQ3_S", 2880, "IQ4_NL"),
        ("Q8_0", 2880, "Q8_0"),
        ("Q4_K", 4304, "F16"),
        ("Q8_0", 4304, "F16"),
    ],
)
def test_rows_that_fit_no_block(meant: str, columns: int, stored: str) -> None:
    """Rows that are no multiple of 256 take llama.cpp's fallback in blocks of 32, and F16 where that fits neither."""
    assert fitting(meant, columns) == stored


def test_block_bytes() -> None:
    """A matrix of 3 rows of 512 in Q4_K takes two blocks of 144 bytes a row; F32 takes four bytes an element."""
    rows, columns = (fact(n, NUMBER, symbol=s, name=s, origin="test") for n, s in ((3, "n"), (512, "k")))
    assert int(ggml_format("Q4_K").tensor_bytes(rows, columns)) == 3 * 2 * 144
    assert int(ggml_format("F32").tensor_bytes(columns, None)) == 2048
    assert ggml_format("Q4_K") is ggml_format("Q4_K")


@pytest.mark.parametrize("mix", GGUF_MIXES)
def test_every_model_has_every_mix(mix: str) -> None:
    """Each catalogue model has a size in each mix, whose parts in their layers add up, between the base type's bits and 16."""
    for model in all_models():
        choice = weights_in(model, mix)
        recipe = choice.recipe
        if mix == model.published.format:
            continue
        assert isinstance(recipe, GgufRecipe)
        assert (choice.gguf, choice.published, bool(choice.note)) == (True, False, True)
        assert min(4.0, GGUF_MIXES[mix].bits) * 0.9 < int(choice.bytes) * 8 / int(model.total_params) < 16.5, model.slug
        for part in model.parts[:12]:
            assert sum(n for _, n in recipe.stored(part)) == max(1, len(part.layers))


def test_derivation_names_types() -> None:
    """The derivation of a mix has a line for each part and type, with the bytes of a block as facts with an origin."""
    found = steps(weights_in(named("llama-3.1-8b"), "q4_k_m").bytes)
    names = {s.name for s in found}
    assert {"v_proj, Q6_K", "v_proj, Q4_K", "output head, Q6_K", "token embedding, Q4_K", "weights in q4_k_m"} <= names
    assert all("GGML_QUANT_SIZES" in s.origin for s in found if "block" in s.name)


@pytest.mark.parametrize("slug", ["deepseek-v3", "gpt-oss-20b", "mixtral-8x7b", "nemotron-3-nano-30b-a3b", "gemma-3-4b"])
def test_derivation_calculates(slug: str) -> None:
    """Every line of a mix's derivation, put into a calculator, gives its own value."""
    for mix in ("q4_k_m", "iq3_xs", "mxfp4_moe"):
        for step in steps(weights_in(named(slug), mix).bytes):
            if step.formula:
                assert calculate(step.substitution) == step.value, step


def test_names() -> None:
    """Names are taken in any case and in llama-quantize's short forms; an unknown one lists what there is."""
    for text, name in (("Q4_K_M", "q4_k_m"), ("q4_k", "q4_k_m"), ("q5_K", "q5_k_m"), (" q3_k ", "q3_k_m"), ("IQ4_XS", "iq4_xs")):
        assert gguf_mix(text) is GGUF_MIXES[name]
    assert gguf_mix("q4_k_x") is None
    ended = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "q4_k_x")
    assert ended.returncode == 2
    assert "did you mean q4_k_" in ended.stderr


# -- files, and who serves them -----------------------------------------------------------------------------------------------------


def from_file() -> Model:
    """A small Llama read from a Q4_K_M file."""
    shape: dict[str, Any] = {"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 2, "width": 1024}
    front, _ = gguf(llama_metadata(**shape, context=4096, tokens=100), llama_q4_k_m(**shape, dim=64, vocab=1000))
    return model_of_header(parse(Window("test.gguf", lambda at, size: front[at : at + size])), id="test")


def test_file_is_taken_as_it_is() -> None:
    """A file's own mix is what its header says, under any spelling; below it `auto` tries narrower mixes, never int8."""
    model = from_file()
    assert model.published.method == "gguf"
    for name in ("published", "q4_k_m", "Q4_K_M"):
        choice = weights_in(model, name)
        assert (choice.published, choice.gguf, choice.bytes.value) == (True, True, published_weights(model).bytes.value)
    assert ladder(model, hardware_fp8=True) == ("published", "q3_k_m", "q2_k")
    assert int(weights_in(model, "q8_0").bytes) > int(choice.bytes)


def test_nothing_fits_below_a_file() -> None:
    """Where `auto` finds no mix that fits, the answer does not claim that the narrowest was asked for."""
    model = from_file()
    question = Question(
        model=model,
        hardware=parse_specs(["8MiB"]),
        workload=Workload(context=None, kv_cache_dtype=None, utilization=None, min_concurrency=1),
        engine=Arithmetic(),
    )
    found = answer(question)
    assert not found.fits
    assert [w for w in found.warnings if "as asked" in w] == []


def test_sixteen_bit_file() -> None:
    """A file in BF16 is sized by its tensors, norms in F32 included, and not as parameters times two."""
    model = from_file()
    plain = replace(model, published=replace(model.published, format="bf16"))
    assert published_weights(plain).bytes.value == published_weights(model).bytes.value


def test_vllm_refuses() -> None:
    """vLLM 0.33 refuses GGUF weights and says which version listed them last; llama.cpp's cache types are no option of it."""
    asked = ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "q4_k_m", "--engine")
    found = gpufit_json(*asked, "vllm")["models"][0]
    assert not found["fits"]
    assert "vLLM 0.33 does not load GGUF files (0.23" in found["reason"]
    assert "GGUF" in gpufit_json(*asked, "vllm@0.20")["models"][0]["reason"]
    ended = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--kv-cache-dtype", "q8_0", "--engine", "vllm")
    assert ended.returncode == 2
    assert "q8_0 is a cache type of llama.cpp" in ended.stderr


def screen(*words: str) -> str:
    """What `fit` prints for Llama 3.1 8B."""
    ended = gpufit("fit", "llama-3.1-8b", *words, width=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_llama_server_line() -> None:
    """GGUF weights and llama.cpp's caches print a llama-server line: -c is the slots' total, plain integers, no vllm serve."""
    shown = screen("--gpu", "rtx-4090", "--weights", "q4_k_m", "--kv-cache-dtype", "q8_0", "--context", "16k")
    words = shown[shown.index("llama-server ") :].split("\n\n")[0].replace("\\\n", " ").split()
    assert words[words.index("-c") + 1] == str(16384 * int(words[words.index("-np") + 1]))
    for flag, value in (("-m", "FILE.gguf"), ("-ngl", "999"), ("--cache-type-k", "q8_0"), ("--cache-type-v", "q8_0")):
        assert words[words.index(flag) + 1] == value
    assert "vllm serve" not in shown
    assert "a q8_0 cache changes attention numerics" in shown
    assert "--cache-type-k f16" in screen("--gpu", "rtx-4090", "--weights", "q4_k_m")
    assert "llama-server" in screen("--gpu", "rtx-4090", "--weights", "bf16", "--kv-cache-dtype", "q4_0", "--context", "4k")


def test_slots_are_limited() -> None:
    """llama.cpp has at most 256 slots, so the line never asks for more."""
    shown = screen("--gpu", "h100-sxm", "--weights", "q4_k_m", "--kv-cache-dtype", "q4_0", "--context", "512")
    assert "-np 256 " in shown
    assert "at most 256 slots" in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpu", "rtx-4090:2", "--tp", "2", "--weights", "q4_k_m"), "splits no model over 2 GPUs"),
        (("--gpu", "h100-sxm", "--weights", "q4_k_m", "--kv-cache-dtype", "fp8"), "has no fp8 cache"),
        (("--gpu", "h100-sxm", "--weights", "int4", "--kv-cache-dtype", "q8_0"), "loads no int4 weights"),
    ],
)
def test_no_line_and_why(words: tuple[str, ...], why: str) -> None:
    """Where neither vLLM nor llama.cpp serves the answer as it stands, no command is printed and the reason is."""
    shown = screen(*words)
    assert "vllm serve" not in shown
    assert "llama-server" not in shown
    assert why in shown


def test_lossy_and_eight_bit_caches() -> None:
    """fp8 wants hardware and changes numerics; llama.cpp's block types only change numerics; 16 bit does neither."""
    kinds = {name: (f.eight_bit, f.lossy) for name, f in CACHE_FORMATS.items()}
    assert kinds["fp8"] == (True, True)
    assert kinds["bf16"] == kinds["fp16"] == kinds["fp32"] == (False, False)
    assert {kinds[name] for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")} == {(False, True)}
    assert engine_format("nvfp4").lossy
    assert {t: CACHE_FORMATS[t].bytes_per_element.value * 32 for t in ("q8_0", "q4_0")} == {"q8_0": 34, "q4_0": 18}
    assert TYPES["Q8_0"].size == 34
    shown = gpufit("kv", "llama-3.1-8b", "--kv-cache-dtype", "q4_0").stdout
    assert "a q4_0 cache changes attention numerics" in shown
    assert "fp8" not in shown


def test_choices_that_are_no_gguf() -> None:
    """Ordinary formats are no GGUF files."""
    assert not weights_in(named("llama-3.1-8b"), "int4").gguf
    assert isinstance(published_weights(named("llama-3.1-8b")), WeightChoice)
