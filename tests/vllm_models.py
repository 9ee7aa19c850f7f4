"""Models and settings for tests of the vLLM policy: published shapes, written out by hand, without weight parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpufit.engines.vllm.constants import Constants
from gpufit.engines.vllm.plan import CachePlan, NoPlan, plan_cache
from gpufit.engines.vllm.settings import vllm_settings
from gpufit.layers.base import LayerKind
from gpufit.layers.chunked import Chunked
from gpufit.layers.compressed import Compressed, SlidingLatent
from gpufit.layers.full import Full
from gpufit.layers.gated_delta import GatedDelta
from gpufit.layers.latent import Latent
from gpufit.layers.mamba2 import Mamba2
from gpufit.layers.sliding import Sliding
from gpufit.layers.sparse import SparseLatent, fp8_index
from gpufit.layers.state import STATE_UNIT
from gpufit.model import LayerGroup, Model, Published, Role, WeightPart
from gpufit.quantity import BYTE, BYTE_PER_TOKEN, NUMBER, TOKEN_PER_SEQUENCE, Q, Unit, fact
from gpufit.sources.engine_constants import engine_rows
from gpufit.sources.gpus import find_gpu

SINKS = WeightPart(
    name="sinks",
    role=Role.ATTENTION,
    module="layers.{i}.self_attn.sinks",
    rows=fact(64, NUMBER, symbol="n", name="n", origin="test"),
)


def n(value: int, unit: Unit = NUMBER, symbol: str = "n") -> Q:
    return fact(value, unit, symbol=symbol, name=f"test {symbol}", origin="test")


def model(
    family: str,
    groups: Iterable[tuple[LayerKind, Iterable[int]]],
    *,
    heads: int,
    kv_heads: int | None = None,
    architecture: str = "TestForCausalLM",
    context: int = 131072,
    layers: int | None = None,
    draft: Iterable[tuple[LayerKind, Iterable[int]]] = (),
    published: Published | None = None,
    parts: tuple[WeightPart, ...] = (),
    extras: dict[str, Q] | None = None,
) -> Model:
    made = tuple(LayerGroup(kind=k, indices=tuple(i)) for k, i in groups)
    count = layers if layers is not None else 1 + max(i for g in made for i in g.indices)
    return Model(
        id=f"test/{family}",
        name=family,
        slug=family,
        family=family,
        architecture=architecture,
        num_layers=n(count, symbol="L_n"),
        layers=made,
        hidden_size=n(4096, symbol="h"),
        vocab_size=None,
        tied=False,
        attention_heads=n(heads, symbol="n_q"),
        kv_heads=None if kv_heads is None else n(kv_heads, symbol="n_kv"),
        head_dim=None,
        max_context=n(context, TOKEN_PER_SEQUENCE, "n_max"),
        dtype="bf16",
        parts=parts,
        total_params=n(1, symbol="N"),
        active_params=None,
        published=published or Published(format="bf16"),
        draft_layers=tuple(LayerGroup(kind=k, indices=tuple(i)) for k, i in draft),
        extras=extras or {},
    )


def full(heads: int, kv_heads: int, dim: int, value: int | None = None) -> Full:
    return Full(
        kv_heads=n(kv_heads, symbol="n_kv"),
        head_dim=n(dim, symbol="d"),
        attention_heads=n(heads, symbol="n_q"),
        value_dim=None if value is None else n(value, symbol="d_v"),
    )


def sliding(heads: int, kv_heads: int, dim: int, window: int) -> Sliding:
    return Sliding(
        kv_heads=n(kv_heads, symbol="n_kv"),
        head_dim=n(dim, symbol="d"),
        attention_heads=n(heads, symbol="n_q"),
        window=n(window, TOKEN_PER_SEQUENCE, "w"),
    )


def chunked(heads: int, kv_heads: int, dim: int, chunk: int) -> Chunked:
    return Chunked(
        kv_heads=n(kv_heads, symbol="n_kv"),
        head_dim=n(dim, symbol="d"),
        attention_heads=n(heads, symbol="n_q"),
        chunk=n(chunk, TOKEN_PER_SEQUENCE, "c"),
    )


def state(kind: str) -> GatedDelta | Mamba2:
    bf16 = n(2, STATE_UNIT, "b_s")
    if kind == "mamba2":
        return Mamba2(
            heads=n(64),
            head_dim=n(64),
            state_size=n(128),
            groups=n(8),
            kernel=n(4),
            conv_bytes=bf16,
            recurrent_bytes=n(4, STATE_UNIT, "b_r"),
        )
    return GatedDelta(
        key_heads=n(16), value_heads=n(32), key_dim=n(128), value_dim=n(128), kernel=n(4), conv_bytes=bf16, recurrent_bytes=bf16
    )


def llama_8b() -> Model:
    return model("llama", [(full(32, 8, 128), range(32))], heads=32, kv_heads=8)


def gpt_oss_120b() -> Model:
    groups = [(sliding(64, 8, 64, 128), range(0, 36, 2)), (full(64, 8, 64), range(1, 36, 2))]
    return model("gpt_oss", groups, heads=64, kv_heads=8, parts=(SINKS,))


def gemma3_27b() -> Model:
    whole = [i for i in range(62) if i % 6 == 5]
    groups = [(full(32, 16, 128), whole), (sliding(32, 16, 128, 1024), [i for i in range(62) if i not in whole])]
    return model("gemma3", groups, heads=32, kv_heads=16, architecture="Gemma3ForConditionalGeneration")


def qwen3_next() -> Model:
    groups = [(state("gated_delta"), [i for i in range(48) if i % 4 != 3]), (full(16, 2, 256), range(3, 48, 4))]
    return model("qwen3_next", groups, heads=16, kv_heads=2, context=262144, draft=[(full(16, 2, 256), [48])])


def deepseek_v3() -> Model:
    latent = Latent(latent_rank=n(512, symbol="r"), rope_dim=n(64, symbol="d_r"), attention_heads=n(128, symbol="n_q"))
    return model("deepseek_v3", [(latent, range(61))], heads=128, context=163840, draft=[(latent, [61])])


def deepseek_v32() -> Model:
    latent = SparseLatent(
        latent_rank=n(512, symbol="r"), rope_dim=n(64, symbol="d_r"), attention_heads=n(128, symbol="n_q"), index=fp8_index(n(128))
    )
    return model("deepseek_v32", [(latent, range(61))], heads=128, context=163840)


def deepseek_v4_flash() -> Model:
    """43 layers: two with a window alone, then 21 that compress 4 to 1 and 20 that compress 128 to 1, in turn."""

    def compressed(ratio: int, waiting: int, width: int, index: int | None) -> Compressed:
        return Compressed(
            ratio=n(ratio, symbol="r"),
            entry_dim=n(512),
            attention_heads=n(64),
            state_tokens=n(waiting, TOKEN_PER_SEQUENCE, "z"),
            state_width=n(width),
            state_bytes=n(4, BYTE_PER_TOKEN, "b_z"),
            index=None if index is None else fp8_index(n(128)),
            index_state_width=None if index is None else n(index),
        )

    window = SlidingLatent(entry_dim=n(512), window=n(128, TOKEN_PER_SEQUENCE, "w"), attention_heads=n(64))
    groups: list[tuple[LayerKind, Iterable[int]]] = [
        (window, range(43)),
        (compressed(4, 8, 2048, 512), range(2, 43, 2)),
        (compressed(128, 128, 1024, None), range(3, 43, 2)),
    ]
    return model("deepseek_v4", groups, heads=64, context=1048576)


def llama4_scout() -> Model:
    groups = [(chunked(40, 8, 128, 8192), [i for i in range(48) if i % 4 != 3]), (full(40, 8, 128), range(3, 48, 4))]
    return model("llama4", groups, heads=40, kv_heads=8, context=1048576)


def constants(version: str = "0.33") -> Constants:
    return Constants(version=version, rows=engine_rows("vllm"))


def outcome(of: Model, *, gpu: str = "h100-sxm", gib: int = 60, version: str = "0.33", **options: Any) -> CachePlan | NoPlan:
    available = fact(gib * 2**30, BYTE, symbol="P", name="memory for the cache", origin="test")
    return plan_cache(of, find_gpu(gpu), vllm_settings(**options), available, constants=constants(version))


def plan(of: Model, **options: Any) -> CachePlan:
    made = outcome(of, **options)
    assert isinstance(made, CachePlan), made
    return made


def refused(of: Model, **options: Any) -> str:
    made = outcome(of, **options)
    assert isinstance(made, NoPlan), "a plan where a refusal was expected"
    return "; ".join(r.reason for r in made.refusals)
