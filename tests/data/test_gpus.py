"""The hardware catalogue, held to its own rules and, where the collected facts lie beside the checkout, to those."""

from __future__ import annotations

import csv
import re
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from gpufit.errors import DataError, UnknownGpuError
from gpufit.quantity import BYTE
from gpufit.sources import gpu_schema, gpus, instances, toml_rows
from gpufit.sources.data import data_text
from gpufit.sources.gpus import find_gpu, gpu_rows, load_gpus, name_key

MIB = 1024 * 1024


def collected(name: str) -> list[dict[str, str]]:
    """The rows of one file of collected facts, or none in a clone that lacks them."""
    path = Path(__file__).resolve().parents[3] / "shared" / "gpus" / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


COLLECTED_GPUS = collected("gpus.tsv")
COLLECTED_INSTANCES = collected("instances.tsv")
SEEN = [row for row in COLLECTED_GPUS if row["status"] == "verified" and (row["memory_mib"] or row["torch_total_gib"])]
ROWS = {row.id: row for row in gpu_rows()}


@pytest.mark.parametrize("file", [gpus.FILE, instances.FILE])
def test_schema(file: str) -> None:
    """Both files pass the strict schema: no unknown key, no missing one, no future date, sorted, no row twice."""
    assert gpu_schema.file_problems(file) == []


def test_names_are_unique() -> None:
    """An id, alias, catalogue name or instance name stands for one thing, however it is spelled."""
    owners: dict[str, set[str]] = {}
    for row in gpu_rows():
        for name in (row.id, *row.aliases, row.name):
            owners.setdefault(name_key(name), set()).add(row.id)
    for instance in instances.instances():
        owners.setdefault(name_key(instance.name), set()).add(f"instance {instance.name}")
    assert {key: found for key, found in owners.items() if len(found) > 1} == {}
    keys = Counter(instances.instance_key(instance.name) for instance in instances.instances())
    assert [key for key, times in keys.items() if times > 1] == []


def test_aliases_are_written_once() -> None:
    """No row lists an alias twice or its own id as an alias."""
    for row in gpu_rows():
        assert len({row.id, *row.aliases}) == 1 + len(row.aliases), row.id


def test_printed_names_that_are_shared_say_so() -> None:
    """Whole devices that print one name each say with what they share it; slices are told by their ids."""
    printed = Counter(row.nvidia_smi_name for row in gpu_rows() if row.nvidia_smi_name and row.kind != "mig")
    for row in gpu_rows():
        if row.nvidia_smi_name and printed[row.nvidia_smi_name] > 1:
            assert row.name_shared_with, row.id


def test_an_aliased_printed_name_reaches_a_row_that_prints_it() -> None:
    """Where a printed name is also somebody's id or alias, that row is among those that print it."""
    for row in gpu_rows():
        if row.nvidia_smi_name is None or row.kind == "mig":
            continue
        try:
            found = find_gpu(row.nvidia_smi_name)
        except UnknownGpuError:
            assert row.name_shared_with, row.id
        else:
            assert ROWS[found.id].nvidia_smi_name == row.nvidia_smi_name


def test_sources_count_their_sightings() -> None:
    """A source is named for each figure, and public files alone never count for more than the stated sightings."""
    for row in gpu_rows():
        counted = re.search(r"\((\d+) sightings?\)", row.memory_source)
        assert counted or row.memory_source, row.id
        assert not counted or int(counted[1]) <= row.memory_sightings, row.id


@pytest.mark.parametrize("file", [gpus.FILE, instances.FILE])
def test_no_private_marks(file: str) -> None:
    """Sources are told in words that a reader elsewhere can use: no search marks, no absolute paths."""
    assert not re.search(r"\bfs:\d|[\s\"']/\w", data_text(file))


def test_memory_is_exact_bytes() -> None:
    """Memory is a whole number of bytes, a whole number of MiB where a tool printed it, and knows its row."""
    for gpu in load_gpus():
        assert isinstance(gpu.memory.value, int)
        assert gpu.memory.unit is BYTE
        assert gpu.memory.symbol == "M"
        row = ROWS[gpu.id]
        if row.memory_mib is not None:
            assert gpu.memory.value == row.memory_mib * MIB
            assert gpu.memory.origin == f"gpus.toml: {gpu.id}.memory_mib ({row.memory_mib:,} MiB)"
        else:
            assert gpu.memory.origin.startswith(f"gpus.toml: {gpu.id}.allocator_")


def test_the_allocator_sees_no_more_than_the_tool_prints() -> None:
    """An allocator's total is the printed total less a reserve of a few percent, never above it."""
    for row in gpu_rows():
        gpu = gpus.gpu_of(row)
        if row.memory_mib is not None and gpu.allocator_total is not None:
            assert gpu.memory.value * 96 // 100 < gpu.allocator_total.value <= gpu.memory.value, row.id


def test_slices_stand_alone() -> None:
    """A MIG slice has no fast path to another one: one per node."""
    slices = [row for row in gpu_rows() if row.kind == "mig"]
    assert slices
    assert {row.gpus_per_node for row in slices} == {1}


def test_parts_without_a_printed_total_say_whose_figure_it_is() -> None:
    """Where nvidia-smi prints no total the memory is the allocator's and the basis says so."""
    spark = find_gpu("dgx-spark")
    assert spark.allocator_total is not None
    assert spark.memory.value == spark.allocator_total.value == 124610 * MIB
    assert "CUDA" in spark.memory_basis
    assert "nvidia-smi prints none" in spark.memory_basis


def test_rounded_allocator_figures_say_so() -> None:
    """A figure known to two decimals of a GiB is floored to bytes and its origin calls it rounded: 267.69 GiB on a B300."""
    total = find_gpu("b300").allocator_total
    assert total is not None
    assert total.value == 26769 * 2**30 // 100
    assert "267.69 GiB, a rounded figure" in total.origin


def test_instances_know_their_gpu() -> None:
    """Every instance has a GPU with a row, and either whole GPUs or a share below one."""
    for instance in instances.instances():
        assert instance.gpu in ROWS, instance.name
        if instance.share is not None:
            assert 0 < float(instance.share) < 1, instance.name


def test_broken_rows_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with several faults is refused once, with every fault in words: the misspelt key, the type, the missing figure."""
    good = dict(toml_rows.raw_rows(gpus.FILE, "gpu")[0])
    misspelt = {**good, "id": "b", "bandwith": 1}
    wrong = {**good, "id": "c", "memory_mib": "24564", "checked": date(2999, 1, 1)}
    wrong.pop("vendor")
    empty = {**good, "id": "d"}
    empty.pop("memory_mib")
    monkeypatch.setattr(gpu_schema, "raw_rows", lambda file, table: (misspelt, {**wrong, "memory_mib": 0}, empty))
    with pytest.raises(DataError) as caught:
        toml_rows.build_row(gpus.GpuRow, misspelt, gpus.FILE)
    said = caught.value.message
    for part in ("b.bandwith", "c.vendor", "c.memory_mib: 0", "c.checked: 2999-01-01 lies in the future", "d: no memory figure"):
        assert part in said
    typed = gpu_schema.row_problems(gpu_schema.GPU_ROWS, (wrong,), "id")
    assert any("c.memory_mib" in problem for problem in typed)


if SEEN and COLLECTED_INSTANCES:

    @pytest.mark.parametrize("row", SEEN, ids=[row["id"] for row in SEEN])
    def test_rows_equal_the_collected_facts(row: dict[str, str]) -> None:
        """Each row says what was collected, figure by figure, and leaves out what was not."""
        ours = ROWS[row["id"]]
        assert ours.name == row["name"]
        assert ours.aliases == [alias for alias in row["aliases"].split(";") if alias]
        assert ours.nvidia_smi_name == (row["nvidia_smi_name"] or None)
        assert ours.memory_mib == (int(row["memory_mib"]) if row["memory_mib"] else None)
        assert ours.marketed_gb == int(row["memory_box_gb"])
        assert ours.bandwidth_gb_s == (float(row["bandwidth_gb_s"]) if row["bandwidth_gb_s"] else None)
        assert ours.architecture == row["arch"]
        assert (ours.compute_capability or ours.gfx_name or "") == row["sm"]
        assert (ours.fp8, ours.fp4) == (row["fp8"] == "yes", row["fp4"] == "yes")
        assert ours.interconnect == row["nvlink"]
        assert ours.memory_type == row["memory_type"]
        assert ours.memory_tool == row["basis"]
        assert ours.memory_sightings == int(row["sightings"])
        gib = ours.allocator_gib if ours.allocator_mib is None else ours.allocator_mib / 1024
        assert (gib is None) == (row["torch_total_gib"] == "")
        if gib is not None:
            assert gib == pytest.approx(float(row["torch_total_gib"]), abs=0.0051)
        numbers = [int(number) for number in re.findall(r"\d+", row["gpus_per_node"])]
        if ours.kind == "mig":
            assert ours.gpus_per_node == 1
        elif row["gpus_per_node"] == "6-8 cards":
            assert ours.gpus_per_node == 16, "eight cards of two devices"
        else:
            assert ours.gpus_per_node == max(numbers)

    @pytest.mark.parametrize("row", COLLECTED_INSTANCES, ids=[row["instance"] for row in COLLECTED_INSTANCES])
    def test_instances_equal_the_collected_facts(row: dict[str, str]) -> None:
        """Each instance has the GPU and the count, or the share, that was collected."""
        ours = instances.find_instance(row["instance"])
        assert ours is not None
        assert (ours.cloud, ours.name, ours.gpu) == (row["cloud"], row["instance"], row["gpu id"])
        assert (ours.share or str(ours.count)) == row["count"]

    @pytest.mark.parametrize("collected_ids", [pytest.param({row["id"] for row in SEEN}, id="all")])
    def test_nothing_without_a_sighting(collected_ids: set[str]) -> None:
        """The catalogue has the collected parts with a seen figure and no other."""
        assert set(ROWS) == collected_ids
