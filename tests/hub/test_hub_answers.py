"""What a question to the Hub costs, and what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpufit.errors import AccessError, ConfigError, NetworkError, UnknownModelError
from gpufit.sources.hub import HubAnswer, age_words, fetch_model_files
from gpufit.sources.hub_http import Patience
from gpufit.sources.resolve import resolve_model
from hub.conftest import LLAMA, LLAMA_PARAMETERS, kept, sharded
from hub.server import LittleHub, Repository, safetensors


def tensor_bytes(answer: HubAnswer) -> int:
    """The size alone."""
    found = answer.tensor_bytes()
    assert found is not None
    return found[0]


def test_cold_answer_of_139_shards(hub: LittleHub) -> None:
    """A cold question costs two requests for 139 shards, reads no weights, and knows the exact bytes of the tensors."""
    hub.repositories["org/big"] = sharded(139)
    answer = fetch_model_files("org/big")
    assert (len(hub.rows), hub.weights) == (2, 0)
    assert answer.config == LLAMA
    assert tensor_bytes(answer) == 139 * 2_000_000


def test_packed_counts_are_not_bytes(hub: LittleHub) -> None:
    """Counts by dtype that the file sizes deny (packed words counted twice) give way to the index, in one request more."""
    hub.repositories["org/llama"].parameters = {"U8": 12_000_000}
    answer = fetch_model_files("org/llama")
    assert len(hub.rows) == 3
    assert answer.tensor_bytes() == (6_000_000, f"total_size in model.safetensors.index.json of org/llama@{answer.sha[:8]}")


def test_index_out_of_date_is_not_believed(hub: LittleHub) -> None:
    """An index whose total the file sizes deny is passed over for the file sizes, and the words say that headers are inside."""
    repository = hub.repositories["org/llama"]
    repository.parameters = {}
    repository.add("model.safetensors.index.json", {"metadata": {"total_size": 12_000_000}, "weight_map": {}})
    found = fetch_model_files("org/llama").tensor_bytes()
    assert found is not None
    assert found[0] == sum(f.size for n, f in repository.files.items() if n.endswith(".safetensors"))
    assert "headers included" in found[1]


def test_single_file_asks_for_its_header_length(hub: LittleHub) -> None:
    """One file without counts costs eight bytes more, and is then exact."""
    hub.repositories["org/one"] = Repository().add("config.json", LLAMA)
    hub.repositories["org/one"].add("model.safetensors", safetensors({"w": ("F16", (1000, 10), 2)}), weights=20_000)
    answer = fetch_model_files("org/one")
    assert (len(hub.rows), hub.weights, tensor_bytes(answer)) == (3, 0, 20_000)


def test_quantisers_own_file(hub: LittleHub) -> None:
    """hf_quant_config.json is read where config.json says nothing of quantisation, within three requests."""
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    hub.repositories["org/llama"].add("hf_quant_config.json", quant)
    answer = fetch_model_files("org/llama")
    assert (len(hub.rows), answer.hf_quant_config) == (3, quant)
    hub.heal()
    hub.repositories["org/llama"].add("config.json", {**LLAMA, "quantization_config": {"quant_method": "fp8"}})
    answer = fetch_model_files("org/llama")
    assert answer.hf_quant_config is None


def test_warm_answer_costs_one_head(hub: LittleHub) -> None:
    """A second question costs one HEAD and gives the same answer."""
    first = fetch_model_files("org/llama")
    hub.heal()
    again = fetch_model_files("org/llama")
    assert [r.method for r in hub.rows] == ["HEAD"]
    assert (again.config, again.files, again.source, again.remark) == (first.config, first.files, "cache", "")


def test_changed_config_is_seen(hub: LittleHub) -> None:
    """A config that changed on the Hub is read anew, however fresh the stored answer is."""
    fetch_model_files("org/llama")
    hub.repositories["org/llama"].add("config.json", {**LLAMA, "num_hidden_layers": 3})
    answer = fetch_model_files("org/llama")
    assert answer.config is not None
    assert answer.config["num_hidden_layers"] == 3


def test_whole_commit_is_never_asked_again(hub: LittleHub) -> None:
    """A whole commit hash cannot change, so its stored answer needs no request."""
    sha = hub.repositories["org/llama"].sha
    fetch_model_files("org/llama", sha)
    hub.heal()
    assert fetch_model_files("org/llama", sha).sha == sha
    assert hub.rows == []


def test_revision_is_honoured(hub: LittleHub) -> None:
    """@revision reaches the Hub, and one that does not exist is an unknown name."""
    hub.repositories["org/llama"].revisions["v2"] = "1" * 40
    assert fetch_model_files("org/llama", "v2").sha == "1" * 40
    with pytest.raises(UnknownModelError, match="no revision 'v3'"):
        fetch_model_files("org/llama", "v3")


@pytest.mark.parametrize("how", ["flag", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nothing(hub: LittleHub, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Offline, a stored answer costs no request and says that it was not checked; nothing stored is an error at once."""
    fetch_model_files("org/llama")
    hub.heal()
    if how != "flag":
        monkeypatch.setenv(how, "1")
    answer = fetch_model_files("org/llama", offline=how == "flag")
    assert answer.remark.startswith("less than a minute old and not checked")
    with pytest.raises(NetworkError, match="in no cache here"):
        fetch_model_files("org/other", offline=how == "flag")
    assert hub.rows == []


def test_cached_answer_needs_no_client(hub: LittleHub) -> None:
    """Neither a warm answer nor an offline one imports huggingface_hub."""
    fetch_model_files("org/llama")
    code = (
        "import sys; from gpufit.sources.hub import fetch_model_files as ask;"
        "a = ask('org/llama'); b = ask('org/llama', offline=True);"
        "print(a.source, b.source, 'huggingface_hub' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["cache", "cache", "False"], ended.stderr


def test_mirrors_are_kept_apart(hub: LittleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of one endpoint is not taken for another's."""
    fetch_model_files("org/llama")
    with LittleHub() as mirror:
        monkeypatch.setenv("HF_ENDPOINT", mirror.url + "/")
        with pytest.raises(UnknownModelError):
            fetch_model_files("org/llama")


def test_answers_stay_below_hf_home(hub: LittleHub, home: Path) -> None:
    """What is stored is one small file below HF_HOME, and nothing half written beside it."""
    fetch_model_files("org/llama")
    assert [p.parent.relative_to(home).as_posix() for p in kept(home)] == ["assets/gpufit"]


def test_folder_that_cannot_be_written(hub: LittleHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home that cannot be written costs nothing but the short cut."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "file"))
    assert fetch_model_files("org/llama").config == LLAMA


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema":1}', '{"schema":1,"files":[["a"]]}'])
def test_damaged_store_is_no_answer(hub: LittleHub, home: Path, damage: str) -> None:
    """A stored file that is cut or foreign is read over, and the question asked anew."""
    fetch_model_files("org/llama")
    kept(home)[0].write_text(damage)
    hub.heal()
    assert fetch_model_files("org/llama").config == LLAMA
    assert len(hub.rows) == 2


def test_clients_own_cache_answers(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A repository that the Hub's client has downloaded (here to HF_HUB_CACHE) answers offline."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    repository = tmp_path / "elsewhere" / "models--org--llama"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("a" * 40)
    (repository / "snapshots" / ("a" * 40)).mkdir(parents=True)
    (repository / "snapshots" / ("a" * 40) / "config.json").write_text(json.dumps(LLAMA))
    answer = fetch_model_files("org/llama", offline=True)
    assert (answer.config, answer.sha, answer.source) == (LLAMA, "a" * 40, "client cache")


# -- refusals of the Hub --------------------------------------------------------------------------------------------------------------


def test_gated_without_access(hub: LittleHub, home: Path) -> None:
    """A gated config is refused with what the Hub tells openly, what is missing, and what to do; nothing is stored."""
    hub.repositories["org/llama"].gated = True
    with pytest.raises(AccessError) as caught:
        fetch_model_files("org/llama")
    assert "3,000,000 BF16 parameters, 6,000,000 bytes of weights" in caught.value.message
    assert "KV cache is not known" in caught.value.message
    assert "HF_TOKEN" in caught.value.hint
    assert kept(home) == []


def test_token_opens_gated(hub: LittleHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN, or the token of a stored login, opens a gated repository; HF_HUB_DISABLE_IMPLICIT_TOKEN keeps it back."""
    hub.repositories["org/llama"].gated = True
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert fetch_model_files("org/llama").gated == "manual"
    assert {r.token for r in hub.rows} == {hub.token}
    hub.heal()
    assert fetch_model_files("org/llama").source == "cache"
    assert {r.token for r in hub.rows} == {hub.token}
    hub.heal()
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with pytest.raises(AccessError):
        fetch_model_files("org/llama")
    assert {r.token for r in hub.rows} == {""}


def test_wrong_token(hub: LittleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that the Hub does not know is an access error that does not repeat it."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    with pytest.raises(AccessError, match="does not accept the token") as caught:
        fetch_model_files("org/llama")
    assert "hf_wrong" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("token", ["hf_bad\ninjected: header", "hf_schlüssel☃"])
def test_token_that_cannot_be_sent(hub: LittleHub, monkeypatch: pytest.MonkeyPatch, token: str, patience: Patience) -> None:
    """A token with characters that no header holds is an access error that does not repeat it."""
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(AccessError) as caught:
        fetch_model_files("org/llama", patience=patience)
    assert "hf_" not in caught.value.message.replace("HF_TOKEN", "")


def test_missing_repository(hub: LittleHub) -> None:
    """A repository that is not there is an unknown name, also where the Hub answers 401 to callers without a token."""
    with pytest.raises(UnknownModelError, match="has no model org/nothing without a token"):
        fetch_model_files("org/nothing")


@pytest.mark.parametrize(
    ("name", "word"), [("adapter_config.json", "adapter"), ("params.json", "params"), ("README.md", "neither")]
)
def test_repository_without_config(hub: LittleHub, name: str, word: str) -> None:
    """A repository without config.json or GGUF says what it has instead."""
    hub.repositories["org/odd"] = Repository().add(name, "{}")
    with pytest.raises(ConfigError, match=r"has no config\.json") as caught:
        fetch_model_files("org/odd")
    assert word in caught.value.hint


def test_age_in_words() -> None:
    """Ages are said in the largest whole unit."""
    assert [age_words(s) for s in (5, 61, 7200, 86_400 * 3.5)] == ["less than a minute", "1 minute", "2 hours", "3 days"]


def test_parameters_of_the_small_llama() -> None:
    """The hand count that other tests lean on."""
    assert LLAMA_PARAMETERS == 86_848


# -- gated, but openly the same as a model that is known -------------------------------------------------------------------------------


def gated_llama(hub: LittleHub, parameters: int) -> str:
    """A gated repository that openly is a Llama of so many bf16 parameters."""
    found = hub.repositories["org/secret"] = Repository(gated=True, parameters={"BF16": parameters})
    found.add("config.json", {"model_type": "llama"}).add("model.safetensors", b"", weights=2 * parameters + 40_000)
    return "org/secret"


def test_gated_twin_of_a_known_model(hub: LittleHub) -> None:
    """An openly told class and exact count are enough where they are a known model's; the answer says what it took and what is missing."""
    model = resolve_model(gated_llama(hub, 8_030_261_248), offline=False)
    assert model.kv_heads is not None
    assert (model.id, model.kv_heads.value, model.max_context, len(model.layers[0].indices)) == ("org/secret", 8, None, 32)
    assert "config.json was not read" in model.assumptions[0]
    assert "Missing: the context limit" in model.assumptions[0]
    assert model.published.bytes is not None
    assert int(model.published.bytes) == 16_060_522_496


def test_gated_without_a_twin(hub: LittleHub) -> None:
    """One parameter more, and nothing is known: access is refused."""
    with pytest.raises(AccessError, match="org/secret is gated"):
        resolve_model(gated_llama(hub, 8_030_261_249), offline=False)
