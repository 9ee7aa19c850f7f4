"""`quant_method: mxfp4` (gpt-oss): the routed experts in MXFP4, everything else, their biases too, at 16 bit."""

from __future__ import annotations

from gpufit.formats.microscaling import MXFP4
from gpufit.formats.recipe import ByModule, Scope
from gpufit.sources.quant.base import Declared, Found, Kept

METHODS = ("mxfp4", "gpt_oss_mxfp4")


def read(d: Declared) -> Found:
    """Routed experts alone (gpt-oss model card, section 2.1); the list of exceptions names what is not an expert anyway."""
    kept = Kept(names=d.names("modules_to_not_convert", "ignored_layers"))
    recipe = ByModule(plain=d.plain, scope=Scope(experts_only=True), rules=kept.rules(), default=MXFP4)
    return Found(recipe=recipe, word="mxfp4", detail="MXFP4 experts")
