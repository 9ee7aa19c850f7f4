"""Headers on the Hub: safetensors when asked for exactly, GGUF always; and that nothing past a header is read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from gguf_bytes import gguf, llama_metadata, llama_q4_k_m, sizes

from gpufit.errors import ConfigError, NetworkError, UnknownModelError
from gpufit.sources.hub_files import HubFile, checkpoint, gguf_choices
from gpufit.sources.resolve import resolve_model
from hub.conftest import LLAMA, LLAMA_PARAMETERS, sharded
from hub.server import LittleHub, Repository, safetensors

SHAPE: dict[str, Any] = {"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "width": 512}


def small_gguf(**more: Any) -> tuple[bytes, int]:
    """A GGUF file of four small Llama layers with a vocabulary of 5,000 tokens."""
    return gguf(llama_metadata(**SHAPE, context=4096, tokens=5000, **more), llama_q4_k_m(**SHAPE, dim=64, vocab=5000))


def test_exact_reads_headers_alone(hub: LittleHub) -> None:
    """--exact costs two range requests a file, no weights, and none the second time."""
    hub.repositories["org/llama"] = sharded(12)
    model = resolve_model("org/llama", offline=False, exact=True)
    assert model.published.bytes is not None
    assert int(model.published.bytes) == 24_000_000
    assert any("BF16 12,000,000 elements in 24,000,000 bytes" in note for note in model.notes)
    assert (len(hub.rows), hub.weights) == (2 + 24, 0)
    hub.heal()
    resolve_model("org/llama", offline=False, exact=True)
    assert [r.method for r in hub.rows] == ["HEAD"]
    assert resolve_model("org/llama", offline=True, exact=True).published.bytes is not None


def test_exact_offline_needs_stored_headers(hub: LittleHub) -> None:
    """--exact cannot be answered offline when the headers were never read."""
    resolve_model("org/llama", offline=False)
    with pytest.raises(NetworkError, match="headers of org/llama"):
        resolve_model("org/llama", offline=True, exact=True)


def test_counts_of_the_checkpoint_are_held_against_the_config(hub: LittleHub) -> None:
    """A checkpoint whose parameters differ from the config's shapes says by how many."""
    model = resolve_model("org/llama", offline=False)
    assert any(f"3,000,000 parameters, the config's shapes make {LLAMA_PARAMETERS:,}" in note for note in model.notes)


def test_gguf_on_the_hub(hub: LittleHub) -> None:
    """A repository with one GGUF file is read by its header alone, and from the store the second time."""
    front, data = small_gguf()
    hub.repositories["org/m-GGUF"] = Repository().add("m-Q4_K_M.gguf", front, weights=data)
    model = resolve_model("org/m-GGUF", offline=False)
    assert model.published.bytes is not None
    assert int(model.published.bytes) == sum(sizes(llama_q4_k_m(**SHAPE, dim=64, vocab=5000)))
    assert (model.published.format, model.num_layers.value) == ("q4_k_m", 4)
    assert hub.weights == 0
    # Requests go on from where the last one ended: nothing is read twice.
    assert len(hub.rows) < 40
    hub.heal()
    again = resolve_model("org/m-GGUF", offline=False)
    assert [r.method for r in hub.rows] == ["HEAD"]
    assert (again.total_params.value, again.published.detail) == (model.total_params.value, model.published.detail)


def test_gguf_choices_are_listed(hub: LittleHub) -> None:
    """Several GGUF models want a :QUANT; without one, or with a wrong one, the choices are listed with their sizes."""
    front, data = small_gguf()
    repository = hub.repositories["org/m-GGUF"] = Repository()
    for quant in ("Q4_K_M", "Q8_0"):
        repository.add(f"m-{quant}.gguf", front, weights=data)
    repository.add("mmproj-F16.gguf", b"GGUF").add("config.json", LLAMA)
    with pytest.raises(UnknownModelError, match="has no Q5_K_M") as caught:
        resolve_model("org/m-GGUF:Q5_K_M", offline=False)
    assert "org/m-GGUF:Q4_K_M (0.00 GB), org/m-GGUF:Q8_0 (0.00 GB)" in caught.value.hint
    assert resolve_model("org/m-GGUF:q4_k_m", offline=False).id == "org/m-GGUF:Q4_K_M"


def test_split_gguf(hub: LittleHub) -> None:
    """All files of a split model are read; its metadata stands in the first."""
    tensors = llama_q4_k_m(**SHAPE, dim=64, vocab=5000)
    repository = hub.repositories["org/m-GGUF"] = Repository()
    meta: dict[str, Any] = {"split.count": 2, "split.tensors.count": len(tensors)}
    split_no: dict[str, Any] = {"split.no": 0}
    first = llama_metadata(**SHAPE, context=4096, **meta, **split_no)
    for number, (metadata, part) in enumerate(((first, tensors[:10]), ({**meta, "split.no": 1}, tensors[10:])), 1):
        front, data = gguf(metadata, part)
        repository.add(f"Q4_K_M/m-Q4_K_M-{number:05d}-of-00002.gguf", front, weights=data)
    model = resolve_model("org/m-GGUF:Q4_K_M", offline=False)
    assert model.published.bytes is not None
    assert int(model.published.bytes) == sum(sizes(tensors))
    assert hub.weights == 0
    del repository.files["Q4_K_M/m-Q4_K_M-00002-of-00002.gguf"]
    with pytest.raises(ConfigError, match="one of 2 files, and number 2 is not there"):
        resolve_model("org/m-GGUF:Q4_K_M", offline=False)


def test_gguf_fault_leaves_nothing(hub: LittleHub) -> None:
    """A header that is a sign-in page is tried again; one that ends early is named as cut short."""
    front, data = small_gguf()
    hub.repositories["org/m-GGUF"] = Repository().add("m-Q4_K_M.gguf", front, weights=data)
    hub.fail("html", 1, only="resolve")
    assert resolve_model("org/m-GGUF", offline=False).num_layers.value == 4
    hub.heal()
    hub.repositories["org/cut-GGUF"] = Repository().add("m-Q4_K_M.gguf", front, weights=data // 2)
    with pytest.raises(ConfigError, match="is cut short"):
        resolve_model("org/cut-GGUF", offline=False)


def test_unknown_names_are_suggested_for(hub: LittleHub) -> None:
    """A name that is no catalogue entry, path or Hub id is unknown without any request; addresses of Hub pages are ids."""
    with pytest.raises(UnknownModelError):
        resolve_model("no-such-model-anywhere", offline=False)
    assert hub.rows == []
    assert resolve_model("https://huggingface.co/org/llama/tree/main", offline=False).id == "org/llama"


# -- which files are the checkpoint ---------------------------------------------------------------------------------------------------


def names(*listed: str) -> list[str]:
    """The names of the files that are chosen among these."""
    return [f.name for f in checkpoint(HubFile(name=n, size=1) for n in listed).files]


def test_choice_of_files() -> None:
    """A whole set named "model" goes before the vendor's copy, an unfinished set after others, and subfolders do not count."""
    pair = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert names(*pair, "consolidated.safetensors", "original/model.safetensors") == pair
    assert names("consolidated.safetensors", pair[0]) == ["consolidated.safetensors"]
    assert names("adapter_model.safetensors", "model.safetensors") == ["model.safetensors"]
    assert names("model.safetensors-00001-of-00001.safetensors") == ["model.safetensors-00001-of-00001.safetensors"]
    assert names("unet/model.safetensors") == []


def test_words_of_quantisations() -> None:
    """The quantisation is read out of a file's name, with folders and the dynamic mixes' prefix."""
    listed = [
        "a/UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf",
        "m.Q8_0.gguf",
        "m-IQ2_XXS.gguf",
        "m-bf16.gguf",
        "llama-3-q.gguf",
        "mmproj.gguf",
    ]
    found = gguf_choices(HubFile(name=n, size=None) for n in listed)
    assert sorted(c.quant for c in found) == ["", "BF16", "IQ2_XXS", "Q8_0", "UD-Q4_K_XL"]


def test_little_hubs_headers_are_whole() -> None:
    """The headers that these tests serve tile their files without gaps."""
    head = safetensors({"a": ("BF16", (2, 3), 2), "b": ("F32", (5,), 4)})
    import json

    entries = [e["data_offsets"] for k, e in json.loads(head[8:]).items() if k != "__metadata__"]
    assert all(a[1] == b[0] for a, b in pairwise(entries))
    assert entries[-1][1] == 12 + 20
