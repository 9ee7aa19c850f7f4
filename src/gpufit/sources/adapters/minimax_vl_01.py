"""MiniMax-VL-01: MiniMax-Text-01 behind LLaVA-NeXT's CLIP tower, projection and image newline."""

from __future__ import annotations

from gpufit.sources.adapters import llava, minimax_m1
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder

ARCHITECTURES = ("MiniMaxVL01ForConditionalGeneration",)
INERT: frozenset[str] = llava.INERT | minimax_m1.INERT | {"process_image_mode"}


def read(config: Config) -> Decoder:
    """The text model is that of `text_config`; everything before it has LLaVA-NeXT's shapes."""
    return llava.read(config)
