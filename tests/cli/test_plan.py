"""`gpufit plan`: the smallest hardware, as JSON and as a screen."""

from __future__ import annotations

import pytest
from support import gpufit, gpufit_json


def test_one_gpu_more_than_the_reference_row() -> None:
    """4 x H100 hold 62 sequences of Llama 3.3 70B at 8k: 62 take 4 GPUs, 63 take 8."""
    for wanted, count in ((62, 4), (63, 8)):
        found = gpufit_json("plan", "llama-3.3-70b", "--context", "8k", "--concurrency", str(wanted), "--gpu", "h100-sxm")
        [plan] = found["plans"]
        assert (found["schema"], plan["gpu"], plan["count"]) == ("gpufit.plan/1", "h100-sxm", count)
        assert plan["concurrency"]["total"] >= wanted


def test_a_plan_holds_what_it_says() -> None:
    """fit on a plan's hardware, at its placement, gives its very figures, and one GPU's worth less does not hold what was wanted."""
    found = gpufit_json("plan", "gpt-oss-120b", "--context", "32k", "--concurrency", "100")
    assert len(found["plans"]) == 15
    for plan in found["plans"][:4]:
        p = plan["placement"]
        words = ("fit", "gpt-oss-120b", "--context", "32k", "--weights", "published", "--tp", str(p["tensor_parallel"]))
        more = ("--pp", str(p["pipeline_parallel"]), "--gpu", f"{plan['gpu']}:{plan['count']}")
        row = gpufit_json(*words, *more)["models"][0]
        assert row["concurrency"] == plan["concurrency"]
        assert plan["concurrency"]["total"] - plan["concurrency"]["per_replica"] < 100 <= plan["concurrency"]["total"]


def test_fewest_servers_come_first() -> None:
    """Plans are ordered by servers, then by memory."""
    plans = gpufit_json("plan", "llama-3.3-70b", "--concurrency", "64", "--all")["plans"]
    assert [(p["servers"], p["memory_bytes"]) for p in plans] == sorted((p["servers"], p["memory_bytes"]) for p in plans)


def test_instances_hold_a_whole_replica() -> None:
    """An instance is offered with the number of it that the plan takes; one that would cut a replica in two is not."""
    [plan] = gpufit_json("plan", "llama-3.3-70b", "--concurrency", "62", "--gpu", "h100-sxm")["plans"]
    assert {"instance": "p5.48xlarge", "count": 1} in plan["instances"]
    assert "p5.4xlarge" not in {i["instance"] for i in plan["instances"]}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan",), 2),
        (("plan", "llama-3.3-70b", "--concurrency", "0"), 2),
        (("plan", "llama-3.3-70b", "--context", "999999"), 2),
        (("plan", "llama-3.3-71b"), 3),
    ],
)
def test_bad_input(words: tuple[str, ...], code: int) -> None:
    """Bad input ends with its exit code and without a traceback."""
    ended = gpufit(*words)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_too_wide(width: int) -> None:
    """The screen fits its terminal."""
    lines = gpufit("plan", "llama-3.3-70b", "--concurrency", "64", width=width).stdout.splitlines()
    assert max(map(len, lines)) <= width
