"""Serve lines: those that fit prints serve what was sized, and pasted ones are understood or refused, never half read."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from support import gpufit, gpufit_json

from gpufit.cli.asked import Asked
from gpufit.report.command import Named, named_as, vllm_serve
from gpufit.sizing.search import answer
from gpufit.sources.catalogue import find_model

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def printed(*words: str) -> str:
    """The serve line of an answer with the notes below it, on one line."""
    screen = gpufit("fit", *words, width=200).stdout
    return screen[screen.index("To serve it so") :].split("\n\n")[0].replace("\\\n", " ").replace("\n", " ")


def line_words(*words: str) -> list[str]:
    """The serve line alone, as the words of a shell."""
    screen = gpufit("fit", *words, width=200).stdout
    lines = screen[screen.index("To serve it so") :].splitlines()[1:]
    last = next(i for i, text in enumerate(lines) if not text.endswith("\\"))
    return shlex.split(" ".join(text.rstrip("\\") for text in lines[: last + 1]))


def pasted(*line: str, before: tuple[str, ...] = ("--gpu", "h100-sxm:8")) -> dict[str, Any]:
    ended = gpufit("fit", *before, "--json", "--", *line)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def notes(found: dict[str, Any]) -> str:
    return " ".join(found["question"]["notes"])


def test_a_format_of_another_checkpoint_is_never_served_from_the_published_one() -> None:
    """gpt-oss sized in bf16 names a bf16 checkpoint: serving the published one with --dtype bfloat16 would load MXFP4."""
    said = printed("gpt-oss-120b", "--gpu", "h100-sxm:4", "--weights", "bf16")
    assert "vllm serve YOUR-BF16-CHECKPOINT-OF/gpt-oss-120b " in said
    cast = printed("llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "fp16")
    assert f"vllm serve {LLAMA} " in cast
    assert "--dtype float16" in cast


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        # nvidia/Llama-3.1-70B-Instruct-FP8 declares an fp8 cache, which is what auto makes of it.
        (("llama-3.1-70b-fp8", "--gpu", "h100-sxm:4", "--kv-cache-dtype", "bf16"), "bfloat16"),
        (("llama-3.1-70b-fp8", "--gpu", "h100-sxm:4"), "fp8"),
        (("llama-3.1-8b", "--gpu", "h100-sxm"), "auto"),
        # With --dtype float32 auto keeps four bytes an element, and two were sized.
        (("llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "fp32"), "bfloat16"),
        (("llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "fp32", "--engine", "vllm"), "bfloat16"),
        (("llama-3.1-8b", "--gpu", "h100-sxm", "--weights", "fp32", "--kv-cache-dtype", "fp32"), "auto"),
    ],
)
def test_auto_is_printed_where_it_makes_the_sized_cache(words: tuple[str, ...], dtype: str) -> None:
    """The line says `auto` only where vLLM makes the sized cache dtype of it, else the dtype itself."""
    found = line_words(*words)
    assert found[found.index("--kv-cache-dtype") + 1] == dtype


def test_an_fp32_cache_beside_bf16_has_no_command() -> None:
    """vLLM has no option for an fp32 cache under bf16 weights, so no line is printed and the reason is."""
    screen = gpufit("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--kv-cache-dtype", "fp32").stdout
    assert "No command: " in screen
    assert "vllm serve" not in screen


def test_gpus_without_bf16_are_served_in_float16() -> None:
    """A T4 (compute capability 7.5) gets --dtype float16 with the reason, and gemma3, which vLLM refuses in float16, no command."""
    said = printed("llama-3.1-8b", "--gpu", "t4:2")
    assert "--dtype float16" in said
    assert "--kv-cache-dtype auto" in said
    assert "compute capability 7.5" in said
    again = gpufit("fit", "--gpu", "t4:2", "--", "vllm", "serve", LLAMA, "--dtype", "bfloat16")
    assert again.returncode == 2
    assert "--dtype float16" in again.stderr
    assert "No command: vLLM serves gemma3" in gpufit("fit", "gemma-3-27b", "--gpu", "t4:8").stdout


def test_replicas_share_neither_gpus_nor_port() -> None:
    """Of four replicas the line serves the first, on its own GPU and port, and says what the next one takes."""
    said = printed("llama-3.1-8b", "--gpu", "h100-sxm:4")
    assert f"CUDA_VISIBLE_DEVICES=0 vllm serve {LLAMA} " in said
    assert "--port 8000" in said
    assert "CUDA_VISIBLE_DEVICES=1 and --port 8001" in said
    one = printed("llama-3.1-8b", "--gpu", "h100-sxm")
    assert "CUDA_VISIBLE_DEVICES" not in one


def test_a_printed_line_with_gpus_and_port_pastes_back() -> None:
    """The line of the first replica, variable and port included, gives the answer that it was printed with."""
    words = ("llama-3.1-8b", "--gpu", "h100-sxm:4", "--tp", "1", "--engine", "vllm")
    line = line_words(*words)
    assert line[0] == "CUDA_VISIBLE_DEVICES=0"
    again = pasted(*line, before=("--gpu", "h100-sxm:4"))["models"][0]
    first = gpufit_json("fit", *words)["models"][0]
    assert {k: again[k] for k in ("weights", "placement", "kv_cache", "concurrency", "engine")} == {
        k: first[k] for k in ("weights", "placement", "kv_cache", "concurrency", "engine")
    }


def test_more_sequences_than_a_default_batch_has_tokens() -> None:
    """vLLM refuses fewer tokens in a batch than sequences, so a line with thousands of sequences names the tokens too."""
    found = line_words("llama-3.2-1b", "--gpu", "h200-sxm", "--context", "512")
    sequences = int(found[found.index("--max-num-seqs") + 1])
    assert sequences > 2048
    assert int(found[found.index("--max-num-batched-tokens") + 1]) >= sequences


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


def test_what_is_on_disk_is_served_from_there(tmp_path: Path) -> None:
    """A folder is printed as it was typed, a config.json as its folder, and a config on stdin as a placeholder."""
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for typed in (folder, folder / "config.json"):
        found = line_words(str(typed), "--gpu", "h100-sxm")
        assert found[:3] == ["vllm", "serve", str(folder)]
    ended = gpufit("fit", "-", "--gpu", "h100-sxm", stdin=json.dumps(CONFIG))
    assert "vllm serve YOUR-CHECKPOINT " in ended.stdout
    ended = gpufit("fit", "-", "--gpu", "h100-sxm", "--weights", "int4", stdin=json.dumps(CONFIG))
    assert "vllm serve YOUR-INT4-CHECKPOINT " in ended.stdout


def test_a_revision_is_kept() -> None:
    """ORG/NAME@REVISION, and the address of a revision's page, become --revision; a catalogue name has none."""
    assert named_as("org/name@v1.0", of_catalogue=False) == Named(revision="v1.0")
    assert named_as("https://huggingface.co/org/name/tree/abc123", of_catalogue=False) == Named(revision="abc123")
    assert named_as("org/name", of_catalogue=False) == Named()
    assert named_as("llama-3.1-8b", of_catalogue=True) == Named()
    asked = Asked(gpu=["h100-sxm"])
    model = find_model("llama-3.1-8b")
    assert model is not None
    found = answer(asked.question(model, asked.hardware(), asked.workload(), asked.policy()))
    assert vllm_serve(found, Named(revision="v1.0"))[:2] == (f"vllm serve {LLAMA}", "--revision v1.0")


def test_advice_for_a_pasted_line_is_in_its_own_flags() -> None:
    """What would make a pasted line fit is said in vLLM's flags, and each piece of advice applied to the line fits."""
    line = ("vllm", "serve", LLAMA)
    changes = pasted(*line, before=("--gpu", "rtx-4090"))["models"][0]["changes"]
    options = [c["option"] for c in changes]
    assert options == ["--max-model-len 45056", "--tensor-parallel-size 2"]
    assert "--gpu rtx-4090:2" in changes[1]["what"]
    for option, gpu in zip(options, ("rtx-4090", "rtx-4090:2"), strict=True):
        assert pasted(*line, *option.split(), before=("--gpu", gpu))["models"][0]["fits"] is True
    wider = pasted(*line, before=("--gpu", "rtx-4090:2"))["models"][0]["changes"]
    assert wider[0]["option"] == "--tensor-parallel-size 2"


def test_a_context_beyond_the_limit_is_told_in_the_lines_words() -> None:
    """A --max-model-len beyond the model's limit is refused by that name, not by an option that the line has not."""
    ended = gpufit("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", LLAMA, "--max-model-len", "999999")
    assert ended.returncode == 2
    assert "--max-model-len 999999" in ended.stderr
    assert "--context" not in ended.stderr


@pytest.mark.parametrize(
    ("before", "line", "said"),
    [
        (("--context", "4k"), ("--max-model-len", "8192"), ("--context 4k", "--max-model-len 8192")),
        (("--tp", "8"), ("--tensor-parallel-size", "2"), ("--tensor-parallel-size 8", "--tensor-parallel-size 2")),
        (("--kv-cache-dtype", "auto"), ("--kv-cache-dtype", "fp8"), ("--kv-cache-dtype auto", "--kv-cache-dtype fp8")),
        (("--enforce-eager",), ("--no-enforce-eager",), ("--enforce-eager", "--no-enforce-eager")),
        (("--engine", "arithmetic"), (), ("--engine arithmetic",)),
        (("llama-3.1-8b",), (), ("llama-3.1-8b and a pasted line",)),
    ],
)
def test_options_before_a_line_that_contradict_it(before: tuple[str, ...], line: tuple[str, ...], said: tuple[str, ...]) -> None:
    """An option or a model before `--` that the pasted line contradicts ends with 2 and names both, never dropped."""
    ended = gpufit("fit", "--gpu", "h100-sxm:8", *before, "--", "vllm", "serve", LLAMA, *line)
    assert ended.returncode == 2, ended.stdout
    for word in said:
        assert word in ended.stderr


def test_options_before_a_line_that_it_does_not_set_are_used() -> None:
    """An option before `--` that the line leaves open is used and said; the same value twice is no contradiction."""
    found = pasted("vllm", "serve", LLAMA, "-tp", "2", before=("--gpu", "h100-sxm:8", "--context", "4k", "--tp", "2"))
    assert found["models"][0]["placement"]["tensor_parallel"] == 2
    assert found["question"]["context"] == 4096
    assert "--context 4k" in notes(found)
    assert "--tensor-parallel-size" not in notes(found)


LINES = [
    ("vllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --tensor-parallel-size 2 \\\n  --max-model-len 32768\n",),
    ("vllm", "serve", LLAMA, "\\", "--tensor-parallel-size", "2", "\\\n", "--max-model-len", "32768"),
    ("CUDA_VISIBLE_DEVICES=0,1", "vllm", "serve", LLAMA, "-tp", "2", "--max-model-len", "32768"),
    ("env CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-model-len=32768",),
    ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", LLAMA, "--tensor-parallel-size", "2", "--max-model-len", "32768"),
    ("/opt/venv/bin/python3 -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-8B-Instruct -tp 2 --max_model_len 32768",),
]  # fmt: skip


def test_one_line_in_many_dresses() -> None:
    """One string, stray line ends, leading variables and the module's own command all mean the plain line."""
    plain = pasted("vllm", "serve", LLAMA, "--tensor-parallel-size", "2", "--max-model-len", "32768")["models"]
    for line in LINES:
        assert pasted(*line)["models"] == plain, line


def test_variables_are_named() -> None:
    """A variable before the line that gpufit does not know is named in the answer: it may move memory."""
    said = notes(pasted("VLLM_ATTENTION_BACKEND=TRITON_ATTN", "vllm", "serve", LLAMA))
    assert "VLLM_ATTENTION_BACKEND=TRITON_ATTN is not known here" in said


@pytest.mark.parametrize(
    "line",
    [
        ("docker", "run", "--gpus", "all", "vllm/vllm-openai", "--model", LLAMA),
        ("docker run --gpus all vllm/vllm-openai --model meta-llama/Llama-3.1-8B-Instruct",),
        ("trtllm-serve", LLAMA),
        ("python", "-m", "sglang.launch_server", "--model-path", LLAMA),
        ("vllm", "bench", LLAMA),
        ("uv", "run", "vllm", "serve", LLAMA),
    ],
)
def test_other_beginnings_are_refused(line: tuple[str, ...]) -> None:
    """A line of another server or tool ends with 2 and says which lines are understood."""
    ended = gpufit("fit", "--gpu", "h100-sxm", "--", *line)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "a line that begins with" in ended.stderr
    assert "vllm serve MODEL" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--config", "serve.yaml"), "--config cannot be sized"),
        (("--config=serve.yaml",), "--config cannot be sized"),
        (("--hf-overrides", "{}"), "--hf-overrides cannot be sized"),
        (("--speculative-config.method", "mtp"), "as JSON"),
        (("--dtype", "float32"), "--kv-cache-dtype bfloat16"),
        (("--dtype", "int8"), "--dtype int8 is not known"),
        (("--quantization", "fp8"), "not the checkpoint's own"),
        (("--max-num-batched-tokens", "64", "--max-num-seqs", "128"), "--max-num-seqs up to 64"),
        (("--enable-lora", "--max-lora-rank", "24"), "1, 8, 16, 32, 64, 128, 256, 320, 512"),
        (("--mamba-cache-dtype", "int8"), "float32, float16, bfloat16"),
    ],
)
def test_flags_that_are_refused(flags: tuple[str, ...], said: str) -> None:
    """Flags that change what is loaded, and values that vLLM refuses, end with 2 and say why."""
    ended = gpufit("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", LLAMA, *flags)
    assert ended.returncode == 2, ended.stdout
    assert said in ended.stderr


def test_a_checkpoints_own_quantisation_is_no_change() -> None:
    """--quantization with the checkpoint's own method is accepted with a note and gives the same answer."""
    line = ("vllm", "serve", "openai/gpt-oss-120b", "--max-model-len", "8192")
    found = pasted(*line, "--quantization", "mxfp4")
    assert found["models"] == pasted(*line)["models"]
    assert "--quantization mxfp4 is the checkpoint's own" in notes(found)


def test_a_dtype_casts_a_plain_checkpoint() -> None:
    """--dtype float32 doubles bf16 weights; a checkpoint in fp32 is loaded in 16 bit unless the line says otherwise, as vLLM does."""
    line = ("vllm", "serve", LLAMA, "--max-model-len", "8192", "--kv-cache-dtype", "bfloat16")
    plain, wide = (pasted(*line, *more)["models"][0]["weights"] for more in ((), ("--dtype", "float32")))
    assert (plain["format"], wide["format"]) == ("bf16", "fp32")
    assert wide["bytes"] == 2 * plain["bytes"] == 4 * 8_030_261_248
    olmo = ("vllm", "serve", "allenai/OLMo-2-0325-32B", "--kv-cache-dtype", "bfloat16")
    narrow = pasted(*olmo)
    assert narrow["models"][0]["weights"]["format"] == "bf16"
    assert "without --dtype vLLM loads it in bfloat16" in notes(narrow)
    assert pasted(*olmo, "--dtype", "float32")["models"][0]["weights"]["format"] == "fp32"


def test_several_values_of_one_flag() -> None:
    """A flag that takes several values, as --served-model-name does, leaves none of them over as a second model."""
    found = pasted("vllm", "serve", LLAMA, "--served-model-name", "one", "two", "--max-model-len", "8192")
    assert found["models"][0]["model"] == LLAMA


def test_adapters_as_vllm_makes_them() -> None:
    """--enable-lora alone is one slot of rank 16, twice of it takes twice the bytes, and sizes without it make no slots."""
    line = ("vllm", "serve", LLAMA, "--max-model-len", "8192")
    alone, one, two, none, plain = (
        pasted(*line, *more)["models"][0]["weights"]["bytes_per_gpu"]
        for more in (("--enable-lora",), ("--enable-lora", "--max-loras", "1", "--max-lora-rank", "16"),
                     ("--enable-lora", "--max-loras", "2"), ("--max-loras", "2"), ())
    )  # fmt: skip
    assert alone == one
    assert two - plain == 2 * (one - plain) > 0
    assert none == plain
    assert "does nothing without --enable-lora" in notes(pasted(*line, "--max-loras", "2"))


def test_experts_that_stay_sharded() -> None:
    """--no-enable-expert-parallel is understood as the default, without a note that it was ignored."""
    line = ("vllm", "serve", "openai/gpt-oss-120b", "-tp", "2", "--max-model-len", "8192")
    found = pasted(*line, "--no-enable-expert-parallel")
    assert found["models"] == pasted(*line)["models"]
    assert "expert-parallel" not in notes(found)


def blocks_per_request(*words: str) -> int:
    found: int = gpufit_json("fit", *words, "--engine", "vllm")["models"][0]["engine"]["blocks_per_request"]
    return found


def test_scheduling_flags_have_their_effect() -> None:
    """gpt-oss-120b at 131,072: windows count the tokens of two batches in flight, of one without asynchronous scheduling."""
    words = ("gpt-oss-120b", "--gpu", "h100-sxm", "--context", "131072")
    # 8,192 blocks for the full layers; windows of 128 tokens and 8,192 tokens of each batch in flight, in blocks of 16 and one more.
    assert blocks_per_request(*words) == 8192 + -(-(127 + 2 * 8192) // 16) + 1
    assert blocks_per_request(*words, "--no-async-scheduling") == 8192 + -(-(127 + 8192) // 16) + 1
    # Without the hybrid manager windowed layers keep every token, in one group with the others.
    assert blocks_per_request(*words, "--disable-hybrid-kv-cache-manager") == 8192
    assert blocks_per_request(*words, "--async-scheduling") == blocks_per_request(*words)


def test_whole_prompts_make_longer_batches() -> None:
    """Without chunked prefill a batch holds the longest sequence, so that the scheduler's tokens are the context."""
    words = ("llama-3.1-8b", "--gpu", "h100-sxm", "--context", "32768", "--engine", "vllm")
    found = line_words(*words, "--no-enable-chunked-prefill")
    assert found[found.index("--max-num-batched-tokens") + 1] == "32768"
    assert "--no-enable-chunked-prefill" in found


def test_batches_that_vllm_refuses() -> None:
    """More sequences than the default batch has tokens, and a batch shorter than a whole prompt, are refused with the reason."""
    words = ("llama-3.1-8b", "--gpu", "h100-sxm", "--context", "32768", "--engine", "vllm")
    for more, said in (
        (("--max-num-seqs", "9000"), "8,192 tokens in one batch are fewer than its 9,000 sequences"),
        (("--no-enable-chunked-prefill", "--max-num-batched-tokens", "16384"), "16,384 tokens in one batch are fewer than the 32,768"),
    ):
        row = gpufit_json("fit", *words, *more)["models"][0]
        assert row["fits"] is False
        assert said in row["reason"]


def test_states_in_another_dtype() -> None:
    """The states of qwen3-next set the block: in float32 one takes 262 tokens of attention for 134, in steps of 64."""
    words = ("qwen3-next-80b-a3b", "--gpu", "h100-sxm:8", "--tp", "8", "--context", "8192", "--engine", "vllm")

    def block(*more: str) -> int:
        found: int = gpufit_json("fit", *words, *more)["models"][0]["engine"]["block_size"]
        return found

    def steps(bytes_of_element: int) -> int:
        # On a rank 4 value heads of 128 x 128 and 3 x 1,024 of the convolution; a token of attention is 2 x 256 elements of 2 bytes.
        return -(-(4 * 128 * 128 * bytes_of_element + 3 * 1024 * 2) // (1024 * 64)) * 64

    assert block() == block("--mamba-cache-dtype", "auto") == steps(2) == 192
    assert block("--mamba-ssm-cache-dtype", "float32") == steps(4) == 320
    assert "--mamba-ssm-cache-dtype float32" in printed(*words, "--mamba-ssm-cache-dtype", "float32")


def test_flags_of_the_line_are_those_typed() -> None:
    """The flags of scheduling, groups and states give the same answer in a pasted line as typed as options."""
    flags = ("--no-async-scheduling", "--disable-hybrid-kv-cache-manager", "--no-enable-chunked-prefill")
    line = pasted("vllm", "serve", "openai/gpt-oss-120b", "--max-model-len", "32768", *flags, before=("--gpu", "h200-sxm"))
    typed = ("openai/gpt-oss-120b", "--gpu", "h200-sxm", "--context", "32768", "--tp", "1", "--pp", "1", "--weights", "published")
    assert line["models"] == gpufit_json("fit", *typed, "--engine", "vllm", *flags)["models"]
    assert notes(line) == ""


def test_the_revision_of_a_line() -> None:
    """--revision R asks for MODEL@R, which offline cannot be had: its error names both."""
    ended = gpufit("fit", "--gpu", "h100-sxm", "--", "vllm", "serve", "some-org/some-model", "--revision", "v2")
    assert ended.returncode != 0
    assert "some-org/some-model@v2" in ended.stderr
