"""`quant_method: aqlm`, whose bytes follow from its numbers, and methods whose files alone tell their bytes."""

from __future__ import annotations

from gpufit.formats.integer_groups import Codebooks
from gpufit.formats.recipe import ByModule, Scope
from gpufit.quantity import BYTE, fact
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = (
    "aqlm", "exl2", "exl3", "vptq", "higgs", "spqr", "quip", "bitnet", "fp_quant", "sinq", "quanto", "gguf", "squeezellm", "omniquant",
)  # fmt: skip

_ONLY_FILES = "the config does not tell its bytes, the file list does"


def read(d: Declared) -> Found:
    """AQLM from its numbers; the others are recognised and their weights left unknown rather than guessed."""
    k = d.keys
    method = k.text("quant_method") or ""
    if method == "aqlm":
        return _aqlm(d)
    for name in k.data:
        k.ignore(name)
    if method in ("exl2", "exl3"):
        average = f"{k.raw('bits')} bits a weight on average, output head {k.raw('head_bits')}"
        return Found(recipe=None, word=method, detail=f"{method.upper()}: {average}; {_ONLY_FILES}")
    return Found(recipe=None, word=method, detail=f"{method}: {_ONLY_FILES}")


def _aqlm(d: Declared) -> Found:
    k = d.keys
    inside, outside = k.integer("in_group_size", default=8), k.integer("out_group_size", default=1)
    bits, books = k.integer("nbits_per_codebook", default=16), k.integer("num_codebooks", default=1)
    code = 1 if bits <= 8 else 2
    layout = Codebooks(
        name=f"AQLM {books}x{bits}, groups of {inside}",
        word="aqlm",
        group_in=d.number("in_group_size", inside, symbol="g_k", label="input features of a group"),
        group_out=d.number("out_group_size", outside, symbol="g_n", label="output features of a group"),
        codes=fact(books * code, BYTE, symbol="e", name="bytes of one group's codes", origin=d.origin("num_codebooks")),
        book=fact(
            books * 2**bits * inside * outside * 2,
            BYTE,
            symbol="m",
            name="bytes of a matrix's codebooks, 16 bit",
            origin=d.origin("nbits_per_codebook"),
        ),
        scale=fact(2, BYTE, symbol="z", name="bytes of one scale", origin="AQLM: 16-bit scales"),
    )
    kept = Kept(names=d.names("linear_weights_not_to_quantize", "modules_to_not_convert"))
    recipe = ByModule(plain=d.plain, scope=Scope(blocks_only=True, towers=False), rules=kept.rules(), default=layout)
    return Found(recipe=recipe, word="aqlm", detail=layout.name)
