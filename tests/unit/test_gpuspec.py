"""SPEC: every form in which people name hardware, and every form that is refused."""

from __future__ import annotations

import stat
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpufit.errors import GpufitError, UnknownGpuError, UsageError
from gpufit.hardware import Hardware
from gpufit.sources import local_gpus
from gpufit.sources.gpus import gpu_rows, nearest_names
from gpufit.sources.gpuspec import MAX_COUNT, parse_spec, parse_specs
from gpufit.sources.instances import instance_names, instances
from gpufit.sources.local_gpus import parse_listing

MIB = 1024 * 1024
IDS = tuple(row.id for row in gpu_rows())


@pytest.mark.parametrize(
    ("spec", "gpu", "count"),
    [
        ("h100-sxm", "h100-sxm", 1),
        ("h100-sxm:4", "h100-sxm", 4),
        ("H100-SXM:4", "h100-sxm", 4),
        ("h100:4", "h100-sxm", 4),
        ("h100 : 4", "h100-sxm", 4),
        (" h100 ", "h100-sxm", 1),
        ("4xH100", "h100-sxm", 4),
        ("4 x h100", "h100-sxm", 4),
        ("4X H100", "h100-sxm", 4),
        ("8×H100", "h100-sxm", 8),
        ("4*h100", "h100-sxm", 4),
        ("h100x8", "h100-sxm", 8),
        ("H100 x 8", "h100-sxm", 8),
        ("2x RTX 4090", "rtx-4090", 2),
        ("4090x2", "rtx-4090", 2),
        ("8xA100-80GB", "a100-sxm4-80gb", 8),
        ("A100 80GB PCIe", "a100-pcie-80gb", 1),
        ("NVIDIA H100 80GB HBM3", "h100-sxm", 1),
        ("H100 80GB HBM3:2", "h100-sxm", 2),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb", 1),
        ("Tesla T4", "t4", 1),
        ("nvidia t4", "t4", 1),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb", 1),
        ("GeForce RTX 3090", "rtx-3090", 1),
        ("RTX 6000 Ada", "rtx-6000-ada", 1),
        ("Quadro RTX 6000", "quadro-rtx-6000", 1),
        ("RTX A6000", "rtx-a6000", 1),
        ("NVIDIA GH200 480GB", "gh200-96gb", 1),
        ("NVIDIA GH200 120GB", "gh200-96gb", 1),
        ("8x AMD Instinct MI300X", "mi300x", 8),
        ("MI300X:8", "mi300x", 8),
        ("7900xtx", "rx-7900-xtx", 1),
        ("2x7900xtx", "rx-7900-xtx", 2),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "arc-pro-b60", 1),
        ("h100-80-mig-3g.40gb", "h100-80-mig-3g.40gb", 1),
        ("dgx-spark", "gb10", 1),
    ],
)
def test_forms_of_a_name(spec: str, gpu: str, count: int) -> None:
    """Id, alias, printed name or everyday spelling, with the count behind or in front, means one part and that many."""
    hardware = parse_spec(spec)
    assert (hardware.gpu.id, hardware.count, hardware.instance) == (gpu, count, None)


@pytest.mark.parametrize(
    ("alias", "gpu"),
    [("h100", "h100-sxm"), ("a100", "a100-sxm4-40gb"), ("v100", "v100-sxm2-16gb"), ("h20", "h20-96gb"), ("gh200", "gh200-96gb")],
)
def test_bare_names_follow_the_table(alias: str, gpu: str) -> None:
    """A short name of a part with several editions is what the catalogue's alias says, never a choice made in code."""
    assert parse_spec(alias).gpu.id == gpu
    assert alias in next(row.aliases for row in gpu_rows() if row.id == gpu)


def test_memory_is_what_nvidia_smi_prints() -> None:
    """An H100 SXM has the 81,559 MiB that nvidia-smi prints, in bytes, and the figure names its place."""
    memory = parse_spec("h100-sxm:4").gpu.memory
    assert memory.value == 81559 * MIB
    assert memory.origin == "gpus.toml: h100-sxm.memory_mib (81,559 MiB)"
    assert parse_spec("h100-sxm:4").total_memory.value == 4 * 81559 * MIB


@given(st.sampled_from(IDS), st.integers(1, MAX_COUNT), st.sampled_from(["{id}:{n}", "{n}x{id}", "{n} x {id}", "{id} x{n}"]))
def test_any_legal_count(gpu_id: str, count: int, form: str) -> None:
    """Any id with any legal count, in any order, is read as exactly that."""
    hardware = parse_spec(form.format(id=gpu_id, n=count))
    assert (hardware.gpu.id, hardware.count) == (gpu_id, count)


@given(
    st.one_of(st.integers(max_value=0), st.integers(min_value=MAX_COUNT + 1)),
    st.sampled_from(["h100:{n}", "{n}xh100", "{n}x80GiB"]),
)
@example(10**5000, "h100:{n}")
def test_illegal_counts(count: int, form: str) -> None:
    """Nought, a negative or an absurd count is a usage error that says which counts are legal."""
    digits = str(count) if abs(count) < 10**4000 else "1" + "0" * 5000
    with pytest.raises(UsageError) as caught:
        parse_spec(form.format(n=digits))
    assert caught.value.exit_code == 2
    assert "1 to 100,000" in caught.value.hint


@pytest.mark.parametrize(
    "spec", ["h100:", "h100:2.5", "h100:two", "h100:4:2", "h100:1e3", "h100:²", "h100:1,000", "1.5xh100", "h100:+4", ""]
)
def test_specs_without_sense(spec: str) -> None:
    """A part of a GPU, a negative number of them, or no name at all is a usage error."""
    with pytest.raises(UsageError):
        parse_spec(spec)


@given(st.text(max_size=30))
@example("x")
@example(":")
@example("4x")
@example("\x00:2")
@example("4xx4")
def test_any_text_is_answered_or_refused(text: str) -> None:
    """No text crashes the parser: it is hardware, or an error of gpufit with a hint."""
    if "local" in text.lower():
        return
    outcome: Hardware | GpufitError
    try:
        outcome = parse_spec(text)
    except GpufitError as error:
        outcome = error
    if isinstance(outcome, Hardware):
        assert 1 <= outcome.count <= MAX_COUNT
        assert int(outcome.gpu.memory) > 0
    else:
        assert outcome.exit_code in (2, 3)
        assert outcome.hint


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("24564MiB", 24564 * MIB),
        ("24564mib", 24564 * MIB),
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("80GB", 80_000_000_000),
        ("79.65GiB", int(Fraction("79.65") * 2**30)),
        ("1TB", 10**12),
    ],
)
def test_sizes_of_ones_own(spec: str, size: int) -> None:
    """A bare size is a GPU of exactly that many bytes and of nothing else known: GiB is 2**30, GB is 10**9."""
    gpu = parse_spec(spec).gpu
    assert gpu.memory.value == size
    assert gpu.memory.origin == f"--gpu {spec}"
    assert (gpu.kind, gpu.architecture, gpu.fp8, gpu.bandwidth_gb_s, gpu.allocator_total) == ("custom", None, None, None, None)


def test_decimal_sizes_are_said() -> None:
    """GB is taken at its word and the answer says what it came to and how to write the binary unit."""
    (note,) = parse_spec("80GB").notes
    assert "80,000,000,000 bytes" in note
    assert "74.5 GiB" in note
    assert "80GiB" in note
    assert parse_spec("80GiB").notes == ()


def test_own_sizes_with_a_count() -> None:
    """Several GPUs of a bare size carry the assumption made about their servers."""
    hardware = parse_spec("24564MiB:2")
    assert (hardware.count, hardware.gpus_per_node) == (2, 8)
    assert any("share a server" in note for note in hardware.notes)


@pytest.mark.parametrize("spec", ["0GiB", "-80GiB", "80G", "80m:2", "99999TiB"])
def test_sizes_that_are_none(spec: str) -> None:
    """A size of nothing, below nothing, beyond reason or without a byte in its unit is a usage error naming what would work."""
    with pytest.raises(UsageError) as caught:
        parse_spec(spec)
    assert "GiB" in caught.value.hint or "MiB" in caught.value.hint or "MIB" in caught.value.hint.upper()


@pytest.mark.parametrize("unit", ["G", "g"])
def test_a_unit_without_a_byte_is_asked_about(unit: str) -> None:
    """80G may be either unit: both are offered and none is picked."""
    with pytest.raises(UsageError) as caught:
        parse_spec(f"80{unit}")
    assert caught.value.hint == "write 80GiB or 80GB"


@pytest.mark.parametrize(
    ("spec", "gpu", "count", "node", "instance"),
    [
        ("p5.48xlarge", "h100-sxm", 8, 8, "p5.48xlarge"),
        ("P5.48XLARGE", "h100-sxm", 8, 8, "p5.48xlarge"),
        ("p5.48xlarge:2", "h100-sxm", 16, 8, "p5.48xlarge"),
        ("2x p5.48xlarge", "h100-sxm", 16, 8, "p5.48xlarge"),
        ("p5.4xlarge:8", "h100-sxm", 8, 1, "p5.4xlarge"),
        ("a2-megagpu-16g", "a100-sxm4-40gb", 16, 16, "a2-megagpu-16g"),
        ("Standard_ND96isr_H100_v5", "h100-sxm", 8, 8, "Standard_ND96isr_H100_v5"),
        ("nd96isr_h100_v5", "h100-sxm", 8, 8, "Standard_ND96isr_H100_v5"),
        ("BM.GPU.B300.8", "b300", 8, 8, "BM.GPU.B300.8"),
    ],
)
def test_cloud_instances(spec: str, gpu: str, count: int, node: int, instance: str) -> None:
    """An instance is the GPUs it holds, a count is that many instances, and one instance is one server."""
    found = parse_spec(spec)
    assert (found.gpu.id, found.count, found.gpus_per_node, found.instance) == (gpu, count, node, instance)


@pytest.mark.parametrize("name", instance_names())
def test_every_instance_is_sized_or_refused(name: str) -> None:
    """An instance with whole GPUs resolves; one that rents a part of a GPU is refused with the share and a way out."""
    instance = next(one for one in instances() if one.name == name)
    if instance.share is None:
        assert parse_spec(name).count == instance.count
        return
    with pytest.raises(UsageError) as caught:
        parse_spec(name)
    assert instance.share in caught.value.message
    assert "--gpu" in caught.value.hint


def test_uncertain_instances_say_so() -> None:
    """What the source of an instance leaves open is said with the answer: the count of a GB200 tray."""
    (note,) = parse_spec("p6e-gb200.36xlarge").notes
    assert "does not give the count" in note


def test_an_instance_of_an_absent_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance whose GPU has no row stays in the table and says so when it is named."""
    monkeypatch.setattr("gpufit.sources.gpuspec.row_by_id", lambda gpu_id: None)
    with pytest.raises(UnknownGpuError, match="no memory figure"):
        parse_spec("p5.48xlarge")


def test_too_many_instances() -> None:
    """The limit holds for GPUs, not for instances: 20,000 servers of eight are too many."""
    with pytest.raises(UsageError, match="160,000"):
        parse_spec("p5.48xlarge:20000")


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("h10", "h100-sxm"),
        ("4xh10", "h100-sxm"),
        ("mi300", "mi300x"),
        ("rtx6000", "rtx-6000-ada"),
        ("RTX 6000:2", "quadro-rtx-6000"),
        ("4060 ti", "rtx-4060-ti-16gb"),
        ("7900xtz", "rx-7900-xtx"),
        ("p5.48large", "p5.48xlarge"),
        ("gaudi", "gaudi2"),
        ("RTX 4090 Laptop", "rtx-4090"),
    ],
)
def test_near_misses(spec: str, near: str) -> None:
    """A name that nothing has is refused, never guessed, and the nearest names are offered."""
    with pytest.raises(UnknownGpuError) as caught:
        parse_spec(spec)
    assert caught.value.exit_code == 3
    assert near in caught.value.hint


def test_nothing_near() -> None:
    """A name like no other is refused without a made-up suggestion, and the hint says where the list is."""
    assert nearest_names("foo") == ()
    with pytest.raises(UnknownGpuError) as caught:
        parse_spec("foo")
    assert "did you mean" not in caught.value.hint
    assert "gpufit catalogue gpus" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("MIG 3g.40gb", ["a100-80-mig-3g.40gb", "h100-80-mig-3g.40gb"]),
        ("NVIDIA GeForce RTX 4060 Ti", ["rtx-4060-ti-16gb", "8 GB"]),
        ("RTX 5060 Ti", ["rtx-5060-ti-16gb", "8 GB"]),
        ("AMD Radeon Graphics", ["ryzen-ai-max-395"]),
    ],
)
def test_names_that_several_parts_print(name: str, parts: list[str]) -> None:
    """A printed name that does not tell its part is refused, listing every part that prints it."""
    with pytest.raises(UnknownGpuError) as caught:
        parse_spec(name)
    assert all(part in caught.value.message for part in parts)


def test_a_shared_name_with_an_alias_is_said() -> None:
    """The pasted name of an RTX 4090 is the 24 GB card, and the answer says that a modified one prints it too."""
    hardware = parse_spec("NVIDIA GeForce RTX 4090")
    assert hardware.gpu.id == "rtx-4090"
    assert any("48 GB" in note for note in hardware.notes)
    assert parse_spec("rtx-4090").notes == ()


def test_two_readings() -> None:
    """Text that names a GPU either way round is refused with both spellings."""
    with pytest.raises(UsageError) as caught:
        parse_spec("3090x4090")
    assert "4090:3090" in caught.value.hint
    assert "3090:4090" in caught.value.hint


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, for an nvidia-smi of one's own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def nvidia_smi(folder: Path, listing: str, *, mig: str = "[N/A]", code: int = 0, seconds: int = 0) -> None:
    """An nvidia-smi that prints this listing, and another text when asked for the MIG mode."""
    tool = folder / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable} -S\n"
        "import sys, time\n"
        f"time.sleep({seconds})\n"
        f"print({mig!r} if 'mig.mode' in ' '.join(sys.argv) else {listing!r})\n"
        f"sys.exit({code})\n",
        encoding="utf-8",
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def test_local(machine: Path) -> None:
    """This machine's GPUs are counted and joined with the catalogue, the memory being what nvidia-smi prints here."""
    nvidia_smi(machine, "NVIDIA H100 80GB HBM3, 81559\n" * 4)
    hardware = parse_spec("local")
    assert (hardware.gpu.id, hardware.count, hardware.gpus_per_node, hardware.notes) == ("h100-sxm", 4, 4, ())
    assert hardware.gpu.memory.value == 81559 * MIB
    assert hardware.gpu.memory.origin == "nvidia-smi of this machine: NVIDIA H100 80GB HBM3 (81,559 MiB)"
    assert hardware.gpu.allocator_total is not None
    assert parse_spec("local:2").count == 2
    with pytest.raises(UsageError, match="holds 4"):
        parse_spec("local:5")


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVIDIA GeForce RTX 4090, 24564", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090, 49140", "rtx-4090-48gb"),
        ("NVIDIA GeForce RTX 3080, 12288", "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 3080, 10240", "rtx-3080-10gb"),
        ("GeForce RTX 3090, 24258", "rtx-3090"),
        ("A100-SXM4-40GB, 40536", "a100-sxm4-40gb"),
        ("NVIDIA GH200 120GB, 97871", "gh200-96gb"),
    ],
)
def test_local_editions(machine: Path, line: str, gpu: str) -> None:
    """Editions that print one name are told apart by their memory, and old drivers' names and totals are recognised."""
    nvidia_smi(machine, line)
    assert parse_spec("local").gpu.id == gpu


def test_local_with_another_total(machine: Path) -> None:
    """With ECC off an A40 is still an A40, with the printed memory, no allocator figure of another setting, and a word about it."""
    nvidia_smi(machine, "NVIDIA A40, 49140")
    hardware = parse_spec("local")
    assert (hardware.gpu.id, hardware.gpu.memory.value, hardware.gpu.allocator_total) == ("a40", 49140 * MIB, None)
    assert any("46,068" in note for note in hardware.notes)


def test_local_edition_without_a_row(machine: Path) -> None:
    """An 8 GB RTX 4060 Ti is not taken for the 16 GB one: its chip is known, its bandwidth and box size are not."""
    nvidia_smi(machine, "NVIDIA GeForce RTX 4060 Ti, 8188")
    hardware = parse_spec("local")
    assert hardware.gpu.memory.value == 8188 * MIB
    assert (hardware.gpu.architecture, hardware.gpu.bandwidth_gb_s, hardware.gpu.marketed_gb) == ("Ada", None, None)
    assert hardware.notes


def test_local_unknown_gpu(machine: Path) -> None:
    """A GPU the catalogue does not have is sized by its printed memory, its architecture left unknown in words."""
    nvidia_smi(machine, "NVIDIA Something 9000, 12345")
    hardware = parse_spec("local")
    assert (hardware.gpu.memory.value, hardware.gpu.architecture, hardware.gpu.fp8) == (12345 * MIB, None, None)
    assert "not in the catalogue" in hardware.notes[0]


def test_local_without_a_total(machine: Path) -> None:
    """Where nvidia-smi prints no total the catalogue's figure is taken and said; for an unknown part it is an error."""
    nvidia_smi(machine, "NVIDIA GB10, [N/A]")
    hardware = parse_spec("local")
    assert (hardware.gpu.id, hardware.gpu.memory.value) == ("gb10", 124610 * MIB)
    assert "no memory total" in hardware.notes[0]
    nvidia_smi(machine, "Orin (nvgpu), [N/A]")
    with pytest.raises(UsageError, match="no memory total"):
        parse_spec("local")


def test_local_of_two_kinds(machine: Path) -> None:
    """GPUs of two kinds are two entries for a list and an error where one is asked for."""
    nvidia_smi(machine, "NVIDIA GeForce RTX 4090, 24564\nNVIDIA L4, 23034\nNVIDIA GeForce RTX 4090, 24564")
    assert [(part.gpu.id, part.count) for part in parse_specs(["local"])] == [("rtx-4090", 2), ("l4", 1)]
    with pytest.raises(UsageError) as caught:
        parse_spec("local")
    assert "--gpu rtx-4090:2 --gpu l4:1" in caught.value.hint


def test_local_hidden_gpus(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES does not change what is counted, and the answer says so."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    nvidia_smi(machine, "NVIDIA L4, 23034\n" * 2)
    hardware = parse_spec("local")
    assert hardware.count == 2
    assert any("CUDA_VISIBLE_DEVICES=0" in note for note in hardware.notes)


@pytest.mark.parametrize(
    ("listing", "mig", "code", "said"),
    [
        ("NVIDIA H100 80GB HBM3, 81559", "Enabled", 0, "MIG"),
        ("", "", 0, "no GPU"),
        ("NVIDIA-SMI has failed", "", 9, "code 9"),
        ("No devices were found", "", 0, "no GPU"),
        (", 81559", "", 0, "without a name"),
    ],
)
def test_local_refusals(machine: Path, listing: str, mig: str, code: int, said: str) -> None:
    """A cut, empty, failing or garbled listing is a usage error in words, with a way to name the hardware instead."""
    nvidia_smi(machine, listing, mig=mig, code=code)
    with pytest.raises(UsageError) as caught:
        parse_spec("local")
    assert said in caught.value.message
    assert "--gpu" in caught.value.hint


def test_local_without_the_tool(machine: Path) -> None:
    """Without nvidia-smi, exit 2 with a hint on what to write."""
    with pytest.raises(UsageError) as caught:
        parse_spec("local")
    assert caught.value.exit_code == 2
    assert "--gpu h100-sxm:4" in caught.value.hint


def test_local_that_hangs(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that does not answer is given up."""
    monkeypatch.setattr(local_gpus, "PATIENCE_SECONDS", 0.2)
    nvidia_smi(machine, "NVIDIA L4, 23034", seconds=5)
    with pytest.raises(UsageError, match="no answer"):
        parse_spec("local")


@given(st.lists(st.tuples(st.text("AB 019-", min_size=1, max_size=12).filter(str.strip), st.integers(1, 10**6)), max_size=8))
def test_listing_round_trip(cards: list[tuple[str, int]]) -> None:
    """Every line of a listing is one GPU, in order, with its name and total."""
    text = "\n".join(f"{name}, {total}" for name, total in cards)
    assert [(seen.name, seen.memory_mib) for seen in parse_listing(text)] == [(name.strip(), total) for name, total in cards]


def test_the_happy_path_stays_light() -> None:
    """Reading a SPEC loads neither pydantic nor the command line's libraries nor the tools of the error path."""
    code = (
        "import sys; from gpufit.sources.gpuspec import parse_specs; parse_specs(['4xH100', 'p5.48xlarge', '80GiB:2']);"
        "print([m for m in ('pydantic', 'typer', 'rich', 'huggingface_hub', 'subprocess', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
