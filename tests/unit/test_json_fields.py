"""What `--json` prints: the fields that scripts rely on, the shipped schemas, and JSON that reads back as it was."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from strategies import QUICK, questions, vllm_questions
from support import ROOT

from gpufit.cli.app import run
from gpufit.report.result import explain_result, fit_result, kv_result, to_json
from gpufit.sizing.advice import with_changes
from gpufit.sizing.cost import cache_cost
from gpufit.sizing.question import Question
from gpufit.sizing.search import answer
from gpufit.sizing.trail import derivation
from gpufit.sources.data import data_text

# The fields of version 1, as the interface promises them, written out by hand: `[]` stands for each entry of a list. They may become
# null where a value is not known, but they stay.
FIELDS = {
    "fit": """
        schema question.context question.gpu_memory_utilization question.engine
        hardware[].gpu hardware[].name hardware[].count hardware[].memory_bytes hardware[].architecture hardware[].compute_capability
        hardware[].bandwidth_gb_s
        models[].model models[].slug models[].fits models[].reason models[].parameters.total models[].parameters.active
        models[].weights.format models[].weights.bytes models[].weights.bytes_per_gpu
        models[].placement.gpu models[].placement.tensor_parallel models[].placement.pipeline_parallel models[].placement.replicas
        models[].kv_cache.dtype models[].kv_cache.bytes_per_token models[].kv_cache.bytes_per_sequence
        models[].kv_cache.bytes_per_sequence_per_gpu models[].kv_cache.pool_bytes_per_gpu
        models[].concurrency.per_replica models[].concurrency.total models[].warnings
    """,
    "fit with vllm": """
        models[].engine.name models[].engine.version models[].engine.requested_bytes models[].engine.overhead_bytes
        models[].engine.overhead_low_bytes models[].engine.overhead_high_bytes models[].engine.kv_cache_bytes
        models[].engine.block_bytes models[].engine.blocks models[].engine.blocks_per_request models[].engine.kv_cache_tokens
        models[].engine.max_concurrency models[].engine.max_concurrency_low_overhead models[].engine.max_concurrency_high_overhead
    """,
    "kv": """
        schema models[].model models[].slug models[].layers models[].attention_heads models[].kv_heads models[].head_dim
        models[].kv_cache.dtype models[].kv_cache.bytes_per_token models[].kv_cache.bytes_per_token_per_gpu
        models[].kv_cache.fixed_bytes_per_sequence models[].contexts[].context models[].contexts[].bytes_per_sequence
        models[].kinds[].kind models[].kinds[].layers
    """,
    "explain": """
        schema model steps[].id steps[].symbol steps[].name steps[].unit steps[].value steps[].formula steps[].substitution steps[].inputs
        steps[].origin
    """,
    "catalogue": "schema models[] gpus[] instances[]",
    "plan": """
        schema question plans[].gpu plans[].count plans[].placement.gpu plans[].placement.tensor_parallel
        plans[].placement.pipeline_parallel plans[].placement.replicas plans[].concurrency.per_replica plans[].concurrency.total
        plans[].instances
    """,
    "check": """
        schema run.model run.gpu run.tensor_parallel run.vllm_version lines[].quantity lines[].predicted lines[].logged lines[].difference
        lines[].relative
    """,
    "error": "schema error.message error.hint error.exit_code",
}

SCHEMAS = ("fit", "kv", "explain", "catalogue", "plan", "check", "error")

COMMANDS = {
    "fit": "fit --gpu h100-sxm:4",
    "fit one": "fit llama-3.1-8b --gpu l4:2 --context max",
    "fit none legal": "fit qwen2.5-7b --gpu h100-sxm:8 --tp 8",
    "fit offers": "fit llama-3.3-70b --gpu rtx-4090 --weights bf16",
    "fit own size": "fit gpt-oss-20b --gpu 24564MiB:2",
    "fit instance": "fit mixtral-8x7b --gpu p5.48xlarge --kv-cache-dtype fp8",
    "fit with vllm": "fit llama-3.1-8b gpt-oss-120b deepseek-v3 --gpu h100-sxm:8 --engine vllm",
    "fit with vllm, refused": "fit qwen2.5-7b --gpu h100-sxm:8 --tp 8 --engine vllm@0.19",
    "kv": "kv",
    "kv split": "kv deepseek-v3 gemma-3-27b --tp 8 --kv-cache-dtype fp8 --context 1k --context max",
    "explain": "explain gpt-oss-120b --gpu h100-sxm:4",
    "explain without hardware": "explain deepseek-v3",
    "explain step": "explain llama-3.1-8b --gpu h100-sxm --step P",
    "explain vllm": "explain llama-3.1-8b --gpu h100-sxm --engine vllm",
    "explain method": "explain",
    "catalogue": "catalogue",
    "catalogue gpus": "catalogue gpus h100",
    "plan": "plan llama-3.1-8b --context 8k --concurrency 100",
    "plan max": "plan llama-3.1-8b --context max --gpu h100-sxm --gpu l4",
}

FAILURES = {
    "usage": "fit --gpu h100-sxm:0",
    "option": "fit --nonsense",
    "gpu": "fit --gpu h1000-sxm",
    "model": "fit llama-3.1-8bb --gpu h100-sxm --offline",
    "filter": "catalogue gpus nothing-has-this-name",
}


def schema(name: str) -> Any:
    """A shipped schema, found as an installed program finds its data."""
    return json.loads(data_text(f"schema/{name}.json"))


def strict(of: Any) -> Any:
    """The same schema, refusing fields that it does not describe."""
    if isinstance(of, dict):
        return {k: False if k == "additionalProperties" else strict(v) for k, v in of.items()}
    return [strict(v) for v in of] if isinstance(of, list) else of


def parsed(text: str) -> Any:
    """The one JSON value of a text; NaN and Infinity, which JSON does not have, fail."""

    def not_json(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=not_json)


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """The object that a command prints on stdout with --json, run in this process."""
    code = run([*command.split(), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return parsed(out)


def found_at(value: Any, path: str) -> list[Any]:
    """Every value at a dotted path; fails where a field is missing, passes by what is null on the way."""
    at = [value]
    for part in path.split("."):
        name = part.removesuffix("[]")
        at = [v for v in at if v is not None]
        for v in at:
            assert name in v, f"{path}: {name} is missing"
        at = [v[name] for v in at]
        if part.endswith("[]"):
            at = [entry for v in at for entry in v]
    return at


def walk(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value with the name of its field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, name)
    else:
        yield name, value


def checked(name: str, value: Any) -> None:
    """An output validates against its shipped schema, has no field that the schema does not describe, and whole bytes."""
    described = schema(name)
    Draft202012Validator(described).validate(value)
    Draft202012Validator(strict(described)).validate(value)
    for field, plain in walk(value):
        if "bytes" in field.split("_"):
            assert plain is None or type(plain) is int, f"{field} is {plain!r}"


@pytest.mark.parametrize("which", COMMANDS)
def test_outputs_validate(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a command prints with --json validates against the shipped schema of its name, which describes every field of it."""
    value = printed(COMMANDS[which], capsys)
    name = which.split()[0]
    assert value["schema"] == f"gpufit.{name}/1"
    checked(name, value)


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        ("", {"weights": "auto", "tensor_parallel": None, "pipeline_parallel": None, "data_parallel": None, "engine_flags": []}),
        ("--weights fp8 --tp 2 --pp 1", {"weights": "fp8", "tensor_parallel": 2, "pipeline_parallel": 1, "max_num_seqs": None}),
        (
            "--engine vllm --dp 2 --max-num-seqs 64 --enforce-eager --block-size 32",
            {
                "data_parallel": 2,
                "max_num_seqs": 64,
                "max_num_batched_tokens": None,
                "engine_flags": ["--block-size 32", "--enforce-eager"],
            },
        ),
    ],
)
def test_the_question_tells_what_was_fixed(words: str, fixed: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The question of a fit repeats each option that changes its answer; null where the placement rule or the engine chooses."""
    value = printed(f"fit llama-3.1-8b --gpu h100-sxm:4 {words}", capsys)
    checked("fit", value)
    assert {name: value["question"][name] for name in fixed} == fixed


@pytest.mark.parametrize("which", FAILURES)
def test_errors_validate(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure with --json is one object on stderr that validates, with the exit code of the process, and stdout stays empty."""
    code = run([*FAILURES[which].split(), "--json"])
    out, err = capsys.readouterr()
    assert out == ""
    value = parsed(err)
    assert value["error"]["exit_code"] == code
    checked("error", value)
    for path in FIELDS["error"].split():
        assert found_at(value, path)


LOG = """\
INFO Initializing a V1 LLM engine (v0.10.1) with config: model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, \
max_seq_len=131072, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO Model loading took 14.9889 GiB and 3.1 seconds
INFO Available KV cache memory: 19.25 GiB
INFO GPU KV cache size: 157,648 tokens
"""


def test_a_check_validates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison with a log validates and has the promised fields."""
    log = tmp_path / "server.log"
    log.write_text(LOG, encoding="utf-8")
    value = printed(f"check {log} --gpu a100-sxm4-40gb", capsys)
    checked("check", value)
    for path in FIELDS["check"].split():
        assert found_at(value, path)


@pytest.mark.parametrize("which", [w for w in FIELDS if w in COMMANDS])
def test_promised_fields_are_there(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every field of the hand-written list is in the output, for every entry of every list."""
    value = printed(COMMANDS[which], capsys)
    for path in FIELDS[which].split():
        assert found_at(value, path), path


def test_refused_models_have_the_fields_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that the engine cannot serve so has the engine's fields too, as null."""
    value = printed(COMMANDS["fit with vllm, refused"], capsys)
    (model,) = value["models"]
    assert model["weights"] is None
    assert model["engine"]["version"] == "0.19"
    for path in FIELDS["fit with vllm"].split():
        assert found_at(value, path)
    assert model["engine"]["blocks"] is None


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas_that_require_the_promised_fields(name: str) -> None:
    """Each shipped file is a JSON Schema of 2020-12 that requires the promised fields, and lets others come."""
    described = schema(name)
    assert described["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(described)
    for path in " ".join(text for which, text in FIELDS.items() if which.split()[0] == name).split():
        at = described
        for part in path.split("."):
            field = part.removesuffix("[]")
            optional = (name == "catalogue" and field != "schema") or (path.startswith("models[].engine") and field == "engine")
            assert optional or field in at["required"], path
            assert at["additionalProperties"] is True
            at = at["properties"][field]
            if part.endswith("[]"):
                at = at["items"]


def test_no_other_schema_is_shipped() -> None:
    """The folder holds the schemas of the commands and nothing else."""
    assert sorted(p.stem for p in (ROOT / "data" / "schema").iterdir()) == sorted(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_files_are_what_the_description_makes(name: str) -> None:
    """Each schema file is what tools/make_schemas.py writes."""
    spec = importlib.util.spec_from_file_location("make_schemas", ROOT / "tools" / "make_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert data_text(f"schema/{name}.json") == tool.written(name)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("hardware", 0, "memory_bytes"), 1.5),
        (("models", 0, "weights", "bytes"), "16060522496"),
        (("models", 0, "weights", "bytes"), None),
        (("models", 0, "fits"), "yes"),
        (("schema",), "gpufit.fit/2"),
        (("models", 0, "warnings"), None),
    ],
)
def test_a_wrong_value_is_refused(path: tuple[str | int, ...], wrong: object, capsys: pytest.CaptureFixture[str]) -> None:
    """A schema refuses bytes that are no integers, words in place of values, another version, and a missing field."""
    value = printed(COMMANDS["fit one"], capsys)
    validator = Draft202012Validator(schema("fit"))
    for change in ("replace", "remove"):
        broken = copy.deepcopy(value)
        at = broken
        for part in path[:-1]:
            at = at[part]
        if change == "replace":
            at[path[-1]] = wrong
        else:
            del at[path[-1]]
        assert not validator.is_valid(broken)


def same(value: Any) -> Any:
    """JSON out, JSON in: the object that the text of an object reads as."""
    text = to_json(value)
    again = parsed(text)
    assert to_json(again) == text
    return again


def held(question: Question) -> None:
    """The fit of any question reads back equal, of equal types, and validates."""
    value = fit_result([with_changes(answer(question))], question.hardware, question.workload, question.engine)
    again = same(value)
    assert again == value
    assert [type(v) for _, v in walk(again)] == [type(v) for _, v in walk(value)]
    checked("fit", again)


@QUICK
@given(questions())
def test_any_fit_reads_back_equal(question: Question) -> None:
    """The fit of any model on any hardware, fitting or not, reads back equal and validates."""
    held(question)


@QUICK
@given(vllm_questions())
def test_any_fit_with_vllm_reads_back_equal(question: Question) -> None:
    """The same under --engine vllm, served or refused."""
    held(question)


@QUICK
@given(questions())
def test_any_derivation_and_cost_read_back_equal(question: Question) -> None:
    """Steps and cache costs of any model read back equal and validate; a step's inputs are ids of earlier steps."""
    steps = derivation(Question(**{f: getattr(question, f) for f in ("model", "workload", "engine", "weights")}, hardware=())).steps
    value = explain_result(question.model, steps)
    assert same(value) == value
    checked("explain", value)
    cost = kv_result([cache_cost(question.model, dtype=question.workload.kv_cache_dtype, tp=1, contexts=None)])
    assert same(cost) == cost
    checked("kv", cost)


def test_the_catalogue_reads_back_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """Every section of the catalogue reads back to the same text."""
    value = printed(COMMANDS["catalogue"], capsys)
    assert same(value) == value
    assert {"models", "gpus", "instances", "formats"} < set(value)
