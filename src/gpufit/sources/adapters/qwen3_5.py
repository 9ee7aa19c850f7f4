"""Qwen3.5 and 3.6: the hybrid text model of this line below a vision tower like Qwen3-VL's."""

from __future__ import annotations

from gpufit.sources.adapters.qwen3_5_text import read_text
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder
from gpufit.sources.qwen_towers import qwen3 as tower

MODEL_TYPES = ("qwen3_5", "qwen3_5_moe")


def read(config: Config) -> Decoder:
    """Text model and tower. A file without a `text_config` is a text model alone.

    Without `deepstack_visual_indexes` the tower has no further mergers: Qwen3_5VisionConfig (transformers 5.24.0) knows no such field.
    """
    sparse = config.text("model_type") == "qwen3_5_moe"
    text = config.sub("text_config")
    if text is None:
        return read_text(config, sparse=sparse)
    d = read_text(text, tie_from=config, prefix="model.language_model.", sparse=sparse)
    if (v := config.sub("vision_config")) is not None:
        v.data = {"deepstack_visual_indexes": [], **v.data}
        tower(d, v, "model.visual.")
    return d
