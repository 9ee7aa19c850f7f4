"""Models at hand: folders, files, standard input; what they hold is read, what they lack is said."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hub.conftest import LLAMA, LLAMA_PARAMETERS
from hub.server import safetensors

from gpufit.errors import ConfigError, UnknownModelError
from gpufit.formats.cache import CACHE_FORMATS
from gpufit.model import Model
from gpufit.sources.resolve import hub_name, resolve_model


def folder(path: Path, **more: Any) -> Path:
    """A folder with the small Llama's config."""
    (path / "m").mkdir()
    (path / "m" / "config.json").write_text(json.dumps({**LLAMA, **more}))
    return path / "m"


def weights(path: Path, name: str, head: bytes, size: int) -> None:
    """A safetensors file that is as long as it says, with a hole where the weights would be."""
    with (path / name).open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)


def read(text: str, **more: Any) -> Model:
    """The Model, offline."""
    return resolve_model(text, offline=True, **more)


def tensor_bytes(model: Model) -> int:
    """The bytes of the checkpoint's tensors."""
    assert model.published.bytes is not None
    return int(model.published.bytes)


def test_folder_with_its_checkpoint(tmp_path: Path) -> None:
    """A folder's bytes are those of its tensors by their headers, and the headers' parameters are held against the config's."""
    path = folder(tmp_path)
    weights(path, "model-00001-of-00002.safetensors", safetensors({"a": ("BF16", (1000, 10), 2)}), 20_000)
    weights(path, "model-00002-of-00002.safetensors", safetensors({"b": ("F32", (500,), 4)}), 2_000)
    model = read(str(path))
    assert (tensor_bytes(model), model.total_params.value, model.id) == (22_000, LLAMA_PARAMETERS, "m")
    assert "tensors: BF16 10,000 elements in 20,000 bytes, F32 500 elements in 2,000 bytes" in model.notes
    assert any(f"10,500 parameters, the config's shapes make {LLAMA_PARAMETERS:,}" in n for n in model.notes)


def test_config_file_alone(tmp_path: Path) -> None:
    """A config file by itself is enough for the cache; the size of its checkpoint is unknown and not made up."""
    path = folder(tmp_path) / "config.json"
    model = read(str(path))
    assert (model.published.bytes, model.kv_heads and model.kv_heads.value) == (None, 2)
    (tmp_path / "other.json").write_text("\ufeff" + path.read_text())
    assert read(str(tmp_path / "other.json")).id == "other"


def test_standard_input() -> None:
    """A config on standard input is read, and called by its own name where it has one."""
    model = read("-", stdin=io.StringIO(json.dumps({**LLAMA, "_name_or_path": "org/name"})))
    assert (model.id, model.total_params.value) == ("org/name", LLAMA_PARAMETERS)
    assert read("-", stdin=io.StringIO(json.dumps(LLAMA))).id == "stdin"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("Access to model x is restricted.", "begins 'Access to model x is restricted.'"),
        ("<html>", "begins '<html>'"),
        ('{"a": ', "is not JSON"),
        ("[1, 2]", "JSON list"),
        ("3", "JSON value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model_type": "llama"}', "hidden_size"),
        ('{"model_type": ["llama"]}', "unknown family"),
        ("{}", "no model_type"),
    ],
)
def test_what_is_no_config(text: str, words: str) -> None:
    """What is no config, or not a whole one, is refused with what it is."""
    with pytest.raises(ConfigError) as caught:
        read("-", stdin=io.StringIO(text))
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["/no/such/place", "./nothing", "~/nothing.json", "../x.gguf", "missing.json"])
def test_paths_that_are_not_there(text: str) -> None:
    """What can only be a path and does not exist is said to be missing, and no Hub is asked."""
    with pytest.raises(UnknownModelError, match="there is no file or folder"):
        read(text)


def test_folder_without_config(tmp_path: Path) -> None:
    """A folder without config.json says so; an adapter's says what to name instead."""
    with pytest.raises(UnknownModelError, match=r"has no config\.json"):
        read(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UnknownModelError) as caught:
        read(str(tmp_path))
    assert "adapter" in caught.value.hint


def test_unfinished_checkpoints(tmp_path: Path) -> None:
    """A file that ends before its last tensor is an error; shards that are missing leave the size to the index, and are said."""
    path = folder(tmp_path)
    head = safetensors({"a": ("BF16", (1000, 10), 2)})
    weights(path, "model-00001-of-00002.safetensors", head, 19_999)
    with pytest.raises(ConfigError, match="is cut short: "):
        read(str(path))
    weights(path, "model-00001-of-00002.safetensors", head, 20_000)
    model = read(str(path))
    assert model.published.bytes is None
    assert any("1 of 2 shards are not there (number 2)" in n for n in model.notes)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 40_000}}))
    assert tensor_bytes(read(str(path))) == 40_000


def test_pointers_of_git_lfs(tmp_path: Path) -> None:
    """git-lfs pointers in place of weights still tell the size of the files."""
    path = folder(tmp_path)
    (path / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
    )
    model = read(str(path))
    assert tensor_bytes(model) == 123_456
    assert any("git-lfs pointers" in n for n in model.notes)


@pytest.mark.parametrize("body", [b"", b"short", b"\xff" * 100, b"\x02" + bytes(7) + b"[]", b"\x08" + bytes(7) + b'{"a": 1}'])
def test_what_is_no_safetensors_file(tmp_path: Path, body: bytes) -> None:
    """A weight file without a header is refused by name."""
    path = folder(tmp_path)
    (path / "model.safetensors").write_bytes(body)
    with pytest.raises(ConfigError, match=r"model\.safetensors is no safetensors file"):
        read(str(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", ("org/name", None, None)),
        ("org/name@v1.0", ("org/name", "v1.0", None)),
        ("org/name@refs/pr/3", ("org/name", "refs/pr/3", None)),
        ("org/name-GGUF:Q4_K_M", ("org/name-GGUF", None, "Q4_K_M")),
        ("org/name@main:UD-Q4_K_XL", ("org/name", "main", "UD-Q4_K_XL")),
        ("hf.co/org/name", ("org/name", None, None)),
        ("https://huggingface.co/org/name/blob/dev/config.json", ("org/name", "dev", None)),
        ("name", None),
        ("a/b/c", None),
        ("org/na me", None),
        ("../name", None),
        ("org/..", None),
    ],
)
def test_names_on_the_hub(text: str, expected: tuple[str, str | None, str | None] | None) -> None:
    """What is an id on the Hub, and what is none."""
    found = hub_name(text)
    assert (None if found is None else (found.id, found.revision, found.quant)) == expected


# -- --assume-dense -------------------------------------------------------------------------------------------------------------------

STRANGE = {**LLAMA, "model_type": "newthing", "architectures": ["NewThingForCausalLM"]}


def test_assume_dense_says_so() -> None:
    """An unknown family is refused; under --assume-dense it is sized as full attention, and the answer says that it assumes it."""
    with pytest.raises(ConfigError, match="unknown family"):
        read("-", stdin=io.StringIO(json.dumps(STRANGE)))
    model = read("-", stdin=io.StringIO(json.dumps(STRANGE)), assume_dense=True)
    assert [(g.kind.kind, len(g.indices)) for g in model.layers] == [("full", 2)]
    assert (model.family, model.architecture) == ("newthing", "NewThingForCausalLM")
    assert model.assumptions[0].startswith("--assume-dense: model_type 'newthing' is not known")


@pytest.mark.parametrize(
    "more",
    [
        {"sliding_window": 4096},
        {"num_experts": 8},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"ssm_state_size": 16},
        {"kv_lora_rank": 512},
        {"num_kv_shared_layers": 1},
        {"mamba_config": {"d_state": 16}},
        {"text_config": {"hidden_size": 64}},
        {"is_encoder_decoder": True},
        {"architectures": ["NewThingModel"]},
        {"architectures": ["NewThingMoeForCausalLM"]},
        {"model_type": "newmamba"},
    ],
)
def test_assume_dense_does_not_hold(more: dict[str, Any]) -> None:
    """Whatever hints at another kind of layer forbids the assumption, and is named."""
    with pytest.raises(ConfigError, match="--assume-dense does not hold"):
        read("-", stdin=io.StringIO(json.dumps({**STRANGE, **more})), assume_dense=True)


def test_assume_dense_leaves_known_families_alone() -> None:
    """A known family is read by its own reader, whatever is assumed of unknown ones."""
    text = json.dumps(LLAMA)
    assert read("-", stdin=io.StringIO(text), assume_dense=True).assumptions == read("-", stdin=io.StringIO(text)).assumptions


# -- llama.cpp's caches ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mib"), [("fp16", 4096), ("q8_0", 2176), ("q5_1", 1536), ("q4_1", 1280), ("q4_0", 1152)])
def test_ggml_caches(name: str, mib: int) -> None:
    """Llama 3.1 8B at 32,768 tokens: 4 GiB at 16 bit, and by ggml's blocks of 34, 24, 20 and 18 bytes for 32 elements below it."""
    per_element = CACHE_FORMATS[name].bytes_per_element.value
    assert 2 * 8 * 128 * 32 * 32_768 * per_element == mib * 2**20


def test_pipe(tmp_path: Path) -> None:
    """A named pipe, as a shell's <(...) gives one, is read like standard input."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(json.dumps(LLAMA)))
    writer.start()
    assert read(str(pipe)).total_params.value == LLAMA_PARAMETERS
    writer.join()
