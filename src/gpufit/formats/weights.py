"""Weight formats that a user can ask for, independent of any checkpoint: bits per parameter and what stays at 16 bit."""

from __future__ import annotations

from dataclasses import dataclass

from gpufit.quantity import BIT, NUMBER, Q, fact


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A format in general, as used for checkpoints that may not exist yet.

    `bits` are those of one stored parameter; each group of `group` parameters carries `scale` bits more (scale, and zero point where
    the format has one). `keeps_embeddings` says that embedding and output head stay at 16 bit, as quantisers leave them.
    """

    name: str
    title: str
    bits: Q
    scale: Q | None = None
    group: Q | None = None
    keeps_embeddings: bool
    source: str

    def bits_per_param(self) -> Q:
        """Bits of one parameter, its share of the group's scale included."""
        if self.scale is None or self.group is None:
            return self.bits
        scale_bits = (self.scale / self.group).as_step("s_w", "scale bits per parameter")
        return (self.bits + scale_bits).as_step("b_w", f"bits of one {self.name} weight with its scale")


def _bits(name: str, bits: int, source: str) -> Q:
    return fact(bits, BIT, symbol="e_w", name=f"bits of one {name} element", origin=source)


def _grouped(name: str, title: str, bits: int, group: int, scale: int, scale_name: str, source: str) -> WeightFormat:
    return WeightFormat(
        name=name,
        title=title,
        bits=_bits(name, bits, source),
        scale=fact(scale, BIT, symbol="z_w", name=scale_name, origin=source),
        group=fact(group, NUMBER, symbol="g_w", name="weights that share a scale", origin=source),
        keeps_embeddings=True,
        source=source,
    )


def _plain(name: str, bits: int) -> WeightFormat:
    source = f"dtype {name}"
    return WeightFormat(
        name=name, title=f"{bits} bit floating point", bits=_bits(name, bits, source), keeps_embeddings=False, source=source
    )


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    f.name: f
    for f in (
        _plain("fp32", 32),
        _plain("bf16", 16),
        _plain("fp16", 16),
        _grouped("int8", "8 bit integers", 8, 128, 16, "bits of one scale (fp16)", "groups of 128 with an fp16 scale"),
        _grouped("fp8", "8 bit floating point", 8, 128 * 128, 32, "bits of one scale (fp32)", "blocks of 128x128 with an fp32 scale"),
        _grouped("nvfp4", "4 bit floating point", 4, 16, 8, "bits of one scale (fp8)", "NVFP4: groups of 16 with an fp8 scale"),
        _grouped("mxfp4", "4 bit floating point", 4, 32, 8, "bits of one scale (E8M0)", "OCP MX v1.0: groups of 32 with an E8M0 scale"),
        _grouped(
            "int4", "4 bit integers", 4, 128, 20, "bits of one scale and zero point",
            "groups of 128 with an fp16 scale and a 4 bit zero point (AWQ, GPTQ)",
        ),
    )
}  # fmt: skip
"""From the widest to the narrowest, by the name a user types."""
