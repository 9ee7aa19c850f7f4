"""A little Hub, an empty home, and patience that does not sleep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufit.sources.hub_http import Patience
from hub.server import LittleHub, Repository, safetensors

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
"""A model of 86,848 parameters: 2 x 100 x 64 of embedding and head, 2 layers of 64 x (64 + 2 x 32 + 64) + 3 x 64 x 128 + 2 x 64, 64."""
LLAMA_PARAMETERS = 2 * 100 * 64 + 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 2 * 64) + 64


def sharded(shards: int, *, config: dict[str, object] | None = None) -> Repository:
    """A repository of `shards` files with one bf16 tensor of 1000 x 1000 each."""
    found = Repository(parameters={"BF16": shards * 1_000_000})
    found.add("config.json", config or LLAMA)
    for i in range(1, shards + 1):
        found.add(
            f"model-{i:05d}-of-{shards:05d}.safetensors", safetensors({f"w{i}": ("BF16", (1000, 1000), 2)}), weights=2_000_000
        )
    index = {"metadata": {"total_size": shards * 2_000_000}, "weight_map": {f"w{i}": "x" * 200 for i in range(1, shards + 1)}}
    return found.add("model.safetensors.index.json", index)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HF_HOME, and no other setting of the Hub."""
    import os

    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_OFFLINE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LittleHub]:
    """A Hub with one small Llama of three shards."""
    with LittleHub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        found.repositories["org/llama"] = sharded(3)
        yield found


@pytest.fixture
def waits() -> list[float]:
    """The waits that a patience was asked for."""
    return []


@pytest.fixture
def patience(waits: list[float]) -> Patience:
    """Short silences, and waits that are noted instead of slept."""
    return Patience(total=2.0, silence=0.3, sleep=waits.append)


def kept(home: Path) -> list[Path]:
    """The answers that are stored below a home."""
    return sorted(p for p in home.rglob("*") if p.is_file())
