"""Options that several commands share, and the words of people turned into numbers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from gpufit.errors import UsageError

if TYPE_CHECKING:
    from gpufit.quantity import Q

MOST_CONTEXT = 1_000_000_000
CONTEXT_FORMS = "a whole number of tokens from 1 to 1,000,000,000, as in 8192, 8_192, 8k (8,192) or 1m (1,048,576), or max"


class Format(str, Enum):
    """How an answer is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", metavar="SPEC", help="Hardware: h100-sxm:4, 4xH100, p5.48xlarge, local, 24564MiB:2. Repeat for other kinds."
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="TOKENS",
        help="Context length: 8k = 8,192; max = the model's own limit. 8k by default, or the limit where that is shorter.",
    ),
]
DEFAULT_CONTEXT = "8k"
Weights = Annotated[
    str,
    typer.Option(
        "--weights",
        metavar="FORMAT",
        help="auto, published, or bf16, fp16, fp32, fp8, int8, int4, mxfp4, nvfp4, or a GGUF mix such as q4_k_m.",
    ),
]
CacheDtype = Annotated[
    str, typer.Option("--kv-cache-dtype", metavar="DTYPE", help="auto, bf16, fp16, fp8, or one of llama.cpp's such as q8_0.")
]
Utilization = Annotated[
    str | None,
    typer.Option("--gpu-memory-utilization", metavar="SHARE", help="Share of each GPU's memory that may be used, above 0 up to 1."),
]
TensorParallel = Annotated[
    int | None, typer.Option("--tensor-parallel-size", "--tp", metavar="N", help="Fix the tensor parallel degree.")
]
PipelineParallel = Annotated[
    int | None, typer.Option("--pipeline-parallel-size", "--pp", metavar="N", help="Fix the number of pipeline stages.")
]
MinConcurrency = Annotated[
    int, typer.Option("--min-concurrency", metavar="N", help="Sequences one replica should hold before fewer GPUs are preferred.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never ask the network.")]
AssumeDense = Annotated[
    bool,
    typer.Option(
        "--assume-dense", help="Size an unknown family as plain full attention, when nothing in its config hints otherwise."
    ),
]
Exact = Annotated[bool, typer.Option("--exact", help="Read the weight files' headers for exact bytes by tensor.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]


def output_format(chosen: Format, as_json: bool) -> Format:
    """The format asked for; --json wins over the default and contradicts another choice."""
    if as_json and chosen not in (Format.TABLE, Format.JSON):
        raise UsageError(f"--json and --format {chosen.value} ask for two formats", hint="give one of them")
    return Format.JSON if as_json else chosen


def tokens(text: str) -> int | None:
    """A context length as people write it; None for `max`. `8k` and `8K` mean 8,192, what people who size caches mean."""
    word = text.strip().lower().replace(",", "").replace("_", "")
    if word == "max":
        return None
    scale = {"k": 1024, "m": 1024 * 1024}.get(word[-1:], 1)
    digits = word[:-1] if scale > 1 else word
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 12 or not 1 <= int(digits) * scale <= MOST_CONTEXT:
        raise UsageError(f"--context {text!r} is not a context length", hint=CONTEXT_FORMS)
    return int(digits) * scale


def context_fact(text: str | None) -> Q | None:
    """The context as a traced fact, the default where none was typed; None for `max`."""
    from gpufit.quantity import TOKEN_PER_SEQUENCE, fact

    origin = f"--context {text}" if text is not None else f"default of --context, {DEFAULT_CONTEXT}"
    count = tokens(text if text is not None else DEFAULT_CONTEXT)
    if count is None:
        return None
    return fact(count, TOKEN_PER_SEQUENCE, symbol="n", name="context length", origin=origin)


def utilization_fact(text: str | None) -> Q | None:
    """The share of memory as an exact traced fact; None when not given."""
    if text is None:
        return None
    from gpufit.quantity import NUMBER, fact

    word = text.strip()
    plain = word.replace(".", "", 1)
    # The length keeps an absurd number of digits from becoming an absurd fraction.
    if not (plain.isascii() and plain.isdigit()) or len(word) > 12:
        raise UsageError(f"--gpu-memory-utilization {text!r} is not a share", hint="a decimal above 0 up to 1, as in 0.9")
    share = fact(word, NUMBER, symbol="u", name="share of memory that may be used", origin="--gpu-memory-utilization")
    if not 0 < share.value <= 1:
        raise UsageError(f"--gpu-memory-utilization {text} is outside (0, 1]", hint="a decimal above 0 up to 1, as in 0.9")
    return share


def positive(value: int | None, option: str) -> int | None:
    """A count that must be at least 1."""
    if value is not None and value < 1:
        raise UsageError(f"{option} {value} is not a count", hint="a whole number from 1")
    return value


def cache_dtype(text: str) -> str | None:
    """The short name of a cache dtype; None for `auto`."""
    from gpufit.formats.cache import ALIASES, CACHE_FORMATS

    word = text.strip().lower()
    if word == "auto":
        return None
    short = ALIASES.get(word, word)
    if short not in CACHE_FORMATS:
        raise UsageError(f"unknown cache dtype {text!r}", hint=f"one of auto, {', '.join(CACHE_FORMATS)}")
    return short


def weight_format(text: str) -> str:
    """A weight format's name, checked."""
    from gpufit.formats.weights import WEIGHT_FORMATS

    word = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "f32": "fp32"}.get(
        text.strip().lower(), text.strip().lower()
    )
    if word in ("auto", "published", *WEIGHT_FORMATS):
        return word
    from gpufit.formats.gguf_mixes import GGUF_MIXES, gguf_mix

    mix = gguf_mix(word)
    if mix is not None:
        return mix.name
    import difflib

    names = (*WEIGHT_FORMATS, *GGUF_MIXES)
    near = difflib.get_close_matches(word, names, n=2)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"unknown weight format {text!r}", hint=f"{hint}one of auto, published, {', '.join(names)}")
