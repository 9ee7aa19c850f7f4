"""The client against the larger stand-in for the Hub that the collected facts come with; collected only where they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import shared

from gpufit.errors import AccessError
from gpufit.sources.hub import fetch_model_files
from gpufit.sources.resolve import resolve_model

FAKEHUB = [found / "fakehub" for found in (shared(),) if found is not None]
DEEPSEEK, GPT_OSS, LLAMA = "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "meta-llama/Llama-3.1-8B-Instruct"
# Bytes of the published tensors: total_size in each repository's own index.
PUBLISHED = {DEEPSEEK: 688_574_839_360, GPT_OSS: 65_248_815_744, LLAMA: 16_060_522_496}


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three repositories with real headers, the Llama gated."""
    found = tmp_path_factory.mktemp("fakehub") / "repos"
    only = [word for id in PUBLISHED for word in ("--only", id)]
    configs = ["--configs", str(FAKEHUB[0] / "configs"), "--configs", str(FAKEHUB[0].parent / "configs")]
    words = [sys.executable, str(FAKEHUB[0] / "build.py"), *configs, "--out", str(found), "--gated", "meta-llama/", *only]
    subprocess.run(words, check=True, capture_output=True)
    return found


def started(folder: Path, repositories: Path, **options: Any) -> Any:
    """The stand-in, imported by its path."""
    spec = importlib.util.spec_from_file_location("fakehub", folder / "fakehub.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fakehub"] = module
    spec.loader.exec_module(module)
    return module.FakeHub(str(repositories), tokens=["hf_good"], weak_tokens=["hf_weak"], **options)


@pytest.mark.parametrize("folder", FAKEHUB)
def test_published_bytes(folder: Path, repositories: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold, at most three requests give the exact bytes of 139 shards, of packed MXFP4, and of a gated model with a token."""
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    with started(folder, repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for id, size in PUBLISHED.items():
            hub.reset()
            found = fetch_model_files(id).tensor_bytes()
            assert found is not None
            assert found[0] == size
            assert hub.counts()["requests"] <= 3
            assert hub.counts()["weight_bytes"] == 0


@pytest.mark.parametrize("folder", FAKEHUB)
@pytest.mark.parametrize("options", [{}, {"cdn_redirect": True}], ids=["direct", "redirected"])
def test_exact_headers(
    folder: Path, repositories: Path, home: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    """--exact finds the published bytes by the headers of all 139 shards, redirected or not, without any of their weights."""
    with started(folder, repositories, **options) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        model = resolve_model(DEEPSEEK, offline=False, exact=True)
        assert model.published.bytes is not None
        assert int(model.published.bytes) == PUBLISHED[DEEPSEEK]
        assert any("F8_E4M3 680,571,043,840 elements" in note for note in model.notes)
        assert hub.counts()["weight_bytes"] == 0


@pytest.mark.parametrize("folder", FAKEHUB)
def test_weak_token(folder: Path, repositories: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token without access to a gated model is told to ask for it."""
    monkeypatch.setenv("HF_TOKEN", "hf_weak")
    with started(folder, repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(AccessError, match="not shown to this token") as caught:
            fetch_model_files(LLAMA)
        assert "ask for access" in caught.value.hint
