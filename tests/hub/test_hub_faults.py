"""What a fault of the network costs, and that it leaves nothing bad behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpufit.errors import NetworkError
from gpufit.sources import hub_env
from gpufit.sources.hub import fetch_model_files
from gpufit.sources.hub_http import Patience
from hub.conftest import LLAMA, kept
from hub.server import LittleHub

FAULTS = {
    "503": "it answered 503",
    "429": "it answered 429",
    "truncated": "broke off after",
    "html": "HTML page instead of JSON",
    "reset": "the connection was cut",
    "silent": "no answer within",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_that_passes(hub: LittleHub, patience: Patience, waits: list[float], fault: str) -> None:
    """A fault that hits one request is tried again and leaves no trace in the answer."""
    hub.fail(fault, 1, retry_after="0")
    answer = fetch_model_files("org/llama", patience=patience)
    assert (answer.config, answer.remark, len(waits)) == (LLAMA, "", 1)


@pytest.mark.parametrize("only", ["/api/", "/resolve/"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_that_stays(hub: LittleHub, home: Path, patience: Patience, fault: str, only: str) -> None:
    """A fault that stays ends in a network error that names it, in bounded time, with nothing stored."""
    hub.fail(fault, only=only, retry_after="0")
    started = time.monotonic()
    with pytest.raises(NetworkError, match=FAULTS[fault]):
        fetch_model_files("org/llama", patience=patience)
    assert time.monotonic() - started < patience.total + 1
    assert kept(home) == []


def test_refused(hub: LittleHub, home: Path, patience: Patience) -> None:
    """Nobody listening is a network error."""
    hub.refuse()
    with pytest.raises(NetworkError, match="connection refused"):
        fetch_model_files("org/llama", patience=patience)
    assert kept(home) == []


@pytest.mark.parametrize("fault", [*FAULTS, "refused"])
def test_warm_answer_outlives_the_hub(
    hub: LittleHub, home: Path, patience: Patience, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an answer stored, every fault that stays gives that answer, with its age and the reason, and keeps it as it was."""
    monkeypatch.setattr("gpufit.sources.hub_probe.SECONDS", 0.3)
    fetch_model_files("org/llama")
    before = kept(home)[0].read_bytes()
    if fault == "refused":
        hub.refuse()
    else:
        hub.fail(fault, retry_after="60")
    started = time.monotonic()
    answer = fetch_model_files("org/llama", patience=patience)
    # A HEAD has no body to cut, so a truncating Hub confirms the answer.
    assert answer.config == LLAMA
    assert fault == "truncated" or answer.remark.startswith("less than a minute old and not checked: 127.0.0.1")
    assert time.monotonic() - started < 2
    assert kept(home)[0].read_bytes() == before


def test_retry_after_is_waited_for(hub: LittleHub, patience: Patience, waits: list[float]) -> None:
    """Retry-After is waited for as asked."""
    hub.fail("429", 2, retry_after="1")
    fetch_model_files("org/llama", patience=patience)
    assert waits == [1.0, 1.0]


def test_long_retry_after_is_not(hub: LittleHub, patience: Patience, waits: list[float]) -> None:
    """A wait beyond all patience is not begun: the error says how long it would be."""
    hub.fail("429", retry_after="300")
    with pytest.raises(NetworkError, match="asks to wait 300 s") as caught:
        fetch_model_files("org/llama", patience=patience)
    assert (waits, "HF_TOKEN" in caught.value.hint) == ([], True)


def test_dripping_body_ends(hub: LittleHub, patience: Patience) -> None:
    """A body that comes byte by byte, never silent for long, still ends in time."""
    hub.fail("drip")
    started = time.monotonic()
    with pytest.raises(NetworkError, match=r"too slowly|no answer within"):  # older clients read in larger pieces
        fetch_model_files("org/llama", patience=patience)
    assert time.monotonic() - started < patience.total + 1


def test_optional_request_that_fails(hub: LittleHub, home: Path, patience: Patience) -> None:
    """When only the index cannot be read the model is answered with its file sizes, and not stored as if that were all."""
    hub.repositories["org/llama"].parameters = {}
    hub.fail("503", only=r"index\.json")
    answer = fetch_model_files("org/llama", patience=patience)
    found = answer.tensor_bytes()
    assert found is not None
    assert "headers included" in found[1]
    assert kept(home) == []


def test_endpoint_that_is_none(home: Path, monkeypatch: pytest.MonkeyPatch, patience: Patience) -> None:
    """An HF_ENDPOINT that is no address is named, and a password in it is not printed."""
    monkeypatch.setenv("HF_ENDPOINT", "ftp://user:secretword@mirror")
    with pytest.raises(NetworkError, match="HF_ENDPOINT is not an http") as caught:
        fetch_model_files("org/llama", patience=patience)
    assert "secretword" not in caught.value.message + caught.value.hint


def test_scrubbing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, authorisation headers and passwords in addresses are taken out of foreign text."""
    monkeypatch.setenv("HF_TOKEN", "plain-secret")
    text = hub_env.scrubbed("plain-secret hf_abcDEF123 Bearer xyz https://me:pw@host/x")
    assert text == "*** *** *** https://***host/x"
