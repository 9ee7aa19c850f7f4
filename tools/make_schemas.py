"""Writes data/schema/*.json, the JSON Schemas of what `--json` prints, from the one description below.

    python tools/make_schemas.py [--check]

`--check` writes nothing and ends with 1 when a file differs. Required are the fields that scripts rely on (the interface of version 1);
the others are described, may be absent, and more may come. Bytes are integers; null means that a value is not known or has no meaning here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "data" / "schema"

Schema = dict[str, Any]

# -- words of the description ---------------------------------------------------------------------------------------------------


def text(about: str) -> Schema:
    """A string."""
    return {"type": "string", "description": about}


def count(about: str) -> Schema:
    """A whole number from 0."""
    return {"type": "integer", "minimum": 0, "description": about}


def size(about: str) -> Schema:
    """Bytes, which are never negative."""
    return count(f"{about}, in bytes")


def balance(about: str) -> Schema:
    """Bytes that may be short."""
    return {"type": "integer", "description": f"{about}, in bytes; negative where memory is short"}


def number(about: str) -> Schema:
    """Any number."""
    return {"type": "number", "description": about}


def flag(about: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": about}


def unknown(of: Schema) -> Schema:
    """The same, or null where it is not known or has no meaning."""
    kind = of["type"]
    return of | {"type": [*(kind if isinstance(kind, list) else [kind]), "null"]}


def rows(of: Schema, about: str) -> Schema:
    """A list."""
    return {"type": "array", "items": of, "description": about}


def lines(about: str) -> Schema:
    """A list of sentences or names."""
    return rows({"type": "string"}, about)


def fields(required: dict[str, Schema], more: dict[str, Schema] | None = None, about: str = "") -> Schema:
    """An object: fields that are always there, fields that may be, and any others."""
    found: Schema = {"type": "object"}
    if about:
        found["description"] = about
    return found | {"properties": required | (more or {}), "required": list(required), "additionalProperties": True}


def named(command: str) -> Schema:
    """The name and version of the schema, in every object."""
    return {"const": f"gpufit.{command}/1", "description": "name and version of this schema"}


# -- what the objects share -----------------------------------------------------------------------------------------------------

ACTIVE = "parameters that one token uses: all but the routed experts it does not visit, so all rows of the embeddings are counted"
PARAMETERS = fields(
    {"total": count("all parameters"), "active": unknown(count(ACTIVE))},
    {"vision": unknown(count("parameters of towers and projectors, inside the total"))},
    "counts of the model's parameters",
)
PLACEMENT = fields(
    {
        "gpu": text("id of the GPU"),
        "tensor_parallel": count("tensor parallel degree of one replica"),
        "pipeline_parallel": count("pipeline parallel degree of one replica"),
        "replicas": unknown(count("replicas on all GPUs")),
    },
    {"data_parallel": count("data parallel ranks of one replica, where the engine joins them")},
    "where one replica stands",
)
CONCURRENCY = fields(
    {
        "per_replica": unknown(count("sequences at the full context that one replica holds; null where no cache limits them")),
        "total": unknown(count("the same over all replicas")),
    },
    about="sequences whose whole cache fits at once",
)
CHANGE = fields(
    {
        "what": text("the change"),
        "option": text("the option that asks for it"),
        "total_concurrency": unknown(count("what it holds")),
    }
)
ENGINE = fields(
    {
        "name": text("the engine"),
        "version": text("the version whose rules these are"),
        "requested_bytes": unknown(size("memory that the engine asks for on one GPU")),
        "overhead_bytes": unknown(size("what it needs beside weights and cache, as used")),
        "overhead_low_bytes": unknown(size("the same, low end")),
        "overhead_high_bytes": unknown(size("the same, high end")),
        "kv_cache_bytes": unknown(size("blocks times their size")),
        "block_bytes": unknown(size("one block, all layers of the widest stage")),
        "blocks": unknown(count("blocks of the cache")),
        "blocks_per_request": unknown(count("blocks of one sequence at the full context")),
        "kv_cache_tokens": unknown(count("tokens of the cache, as the server prints them")),
        "max_concurrency": unknown(number("sequences at the full context, as the server prints them")),
        "max_concurrency_low_overhead": unknown(number("the same at the low end of the overhead")),
        "max_concurrency_high_overhead": unknown(number("the same at the high end of the overhead")),
    },
    {
        "weights_created_bytes": size("weights on one GPU before they are repacked"),
        "block_size": count("tokens in one block"),
        "needed_bytes_per_sequence_per_gpu": size("what the cache of one sequence takes"),
        "reserved_bytes_per_sequence_per_gpu": size("what the engine sets aside for one sequence"),
        "kv_cache_dtype": text("the cache dtype by the engine's name"),
        "max_num_batched_tokens": count("tokens in one batch"),
        "max_num_seqs": count("sequences in one batch"),
    },
    "the engine's own figures, with --engine vllm; null where it would not start so",
)

# -- the objects ----------------------------------------------------------------------------------------------------------------

QUESTION = fields(
    {
        "context": unknown(count("tokens of one sequence; null for each model's own limit")),
        "gpu_memory_utilization": number("share of memory that may be used"),
        "engine": text("the engine, with its version where it has one"),
    },
    {
        "kv_cache_dtype": text("the cache dtype asked for"),
        "weights": unknown(text("the weight format asked for, auto, or published")),
        "tensor_parallel": unknown(count("the tensor parallel degree asked for; null where the placement rule chooses")),
        "pipeline_parallel": unknown(count("the pipeline stages asked for; null where the placement rule chooses")),
        "data_parallel": unknown(count("the data parallel ranks asked for; null for one")),
        "max_num_seqs": unknown(count("sequences in one batch asked for; null where the engine chooses")),
        "max_num_batched_tokens": unknown(count("tokens in one batch asked for; null where the engine chooses")),
        "engine_flags": lines("further flags of the engine that were given, as it takes them"),
        "min_concurrency": count("what the placement rule wants one replica to hold"),
        "notes": lines("what a pasted command line was taken to mean"),
    },
    "the question as it was understood",
)
HARDWARE = fields(
    {
        "gpu": text("id of the GPU"),
        "name": text("its name"),
        "count": count("how many"),
        "memory_bytes": size("memory of one GPU, as its vendor's tool prints it"),
        "architecture": unknown(text("architecture")),
        "compute_capability": unknown(text("CUDA compute capability, as in 9.0")),
        "bandwidth_gb_s": unknown(number("memory bandwidth in GB/s, from the datasheet")),
    },
    {
        "memory_basis": text("whose figure the memory is"),
        "allocator_total_bytes": unknown(size("what CUDA or HIP reports as the total")),
        "gpus_per_node": count("GPUs that share a server"),
        "instance": unknown(text("cloud instance that was named")),
        "notes": lines("what was assumed of the hardware"),
    },
)
FITTED = fields(
    {
        "model": text("id on the Hub"),
        "slug": text("short name"),
        "fits": flag("whether at least one sequence at the full context fits"),
        "reason": unknown(text("why it does not fit")),
        "parameters": PARAMETERS,
        "weights": unknown(
            fields(
                {
                    "format": text("weight format"),
                    "bytes": size("weights of the whole model"),
                    "bytes_per_gpu": size("weights on the fullest GPU"),
                },
                {"published": flag("whether this is the published checkpoint")},
                "the weights; null where no placement is legal",
            )
        ),
        "placement": unknown(PLACEMENT),
        "kv_cache": unknown(
            fields(
                {
                    "dtype": text("cache dtype"),
                    "bytes_per_token": unknown(size("one more token, windowed layers while their window fills")),
                    "bytes_per_sequence": size("one sequence in the whole model"),
                    "bytes_per_sequence_per_gpu": size("one sequence on the fullest GPU"),
                    "pool_bytes_per_gpu": balance("what weights leave for the cache on that GPU"),
                },
                {"context": count("tokens of one sequence")},
                "the cache; null where no placement is legal",
            )
        ),
        "concurrency": CONCURRENCY,
        "warnings": lines("what has to be said of this answer"),
    },
    {
        "short_by_bytes_per_gpu": unknown(size("bytes missing on one GPU for the first sequence")),
        "changes": rows(CHANGE, "single changes that would make it fit"),
        "engine": ENGINE,
    },
)
FIT = fields(
    {
        "schema": named("fit"),
        "question": QUESTION,
        "hardware": rows(HARDWARE, "the hardware asked about"),
        "models": rows(FITTED, "one answer a model"),
    },
    about="which models fit on this hardware, where, and how many sequences at once",
)

SHAPE = {
    name: count(about)
    for name, about in {
        "kv_heads": "KV heads", "head_dim": "width of a head", "value_dim": "width of a value head where it differs",
        "window": "tokens of the window", "chunk": "tokens of a chunk", "latent_rank": "width of the latent",
        "rope_dim": "width of the rotary key beside it", "state_size": "state of one channel", "heads": "heads of a state mixer",
        "groups": "groups of a state mixer", "kernel": "width of its convolution",
    }.items()
}  # fmt: skip
KIND = fields(
    {"kind": text("kind of layer"), "layers": count("how many layers are of it")},
    {
        "bytes_per_token_per_layer_per_gpu": unknown(size("one token in one layer on one GPU")),
        "fixed_bytes_per_layer_per_gpu": unknown(size("what one layer holds whatever the length")),
        **SHAPE,
    },
)
COST = fields(
    {
        "model": text("id on the Hub"),
        "slug": text("short name"),
        "layers": count("decoder layers"),
        "attention_heads": unknown(count("attention heads")),
        "kv_heads": unknown(count("KV heads; null where they are not kept or differ by layer")),
        "head_dim": unknown(count("width of a head")),
        "kv_cache": fields(
            {
                "dtype": text("cache dtype"),
                "bytes_per_token": size("one more token in the whole model, windowed layers while their window fills"),
                "bytes_per_token_per_gpu": size("the same on one GPU"),
                "fixed_bytes_per_sequence": size("what a sequence of any length keeps"),
            },
            {"bytes_per_token_past_windows": size("one more token once every window is full")},
        ),
        "contexts": rows(
            fields(
                {"context": count("tokens"), "bytes_per_sequence": size("one sequence in the whole model")},
                {"bytes_per_sequence_per_gpu": size("one sequence on one GPU")},
            ),
            "the cost at several lengths",
        ),
        "kinds": rows(KIND, "the layers by kind"),
    },
    {
        "parameters": PARAMETERS,
        "max_context": unknown(count("the model's own limit")),
        "tensor_parallel": count("the degree that figures per GPU are for"),
        "assumptions": lines("what had to be assumed"),
        "notes": lines("what is to be known of the model"),
    },
)
KV = fields({"schema": named("kv"), "models": rows(COST, "one entry a model")}, about="what the KV cache costs")

STEP = fields(
    {
        "id": text("unique in this list"),
        "symbol": text("the symbol that formulas use"),
        "name": text("what the value is"),
        "unit": text("its unit, 1 for a plain number"),
        "value": number("the value; whole ones are integers"),
        "formula": unknown(text("the formula in symbols; null for a fact")),
        "substitution": unknown(text("the same with the values of its symbols")),
        "inputs": lines("ids of the steps that the formula reads, all earlier in the list"),
        "origin": unknown(text("where a fact comes from; null for a formula")),
    },
    {"note": unknown(text("which branch of a rule was taken"))},
)
EXPLAIN = fields(
    {
        "schema": named("explain"),
        "model": unknown(text("id on the Hub; null for the method in general")),
        "steps": rows(STEP, "facts and formulas in the order in which they depend on each other"),
    },
    {"text": text("the method in words, without a model")},
    "the arithmetic, line by line",
)

CATALOGUE = fields(
    {"schema": named("catalogue")},
    {
        "models": rows(
            fields(
                {"model": text("id on the Hub"), "slug": text("short name"), "checked": text("day of the check, as 2026-11-01")},
                {
                    "name": text("name"),
                    "aliases": lines("other names"),
                    "parameters": count("all parameters"),
                    "active_parameters": count(ACTIVE),
                    "vision_parameters": unknown(count("parameters of towers and projectors")),
                    "published": text("format of the published checkpoint"),
                    "source": text("where the config was seen"),
                    "parameters_source": text("where the counts come from"),
                },
            ),
            "models",
        ),
        "gpus": rows(
            fields(
                {
                    "gpu": text("id"),
                    "name": text("name"),
                    "memory_bytes": size("memory of one GPU"),
                    "checked": text("day of the check"),
                },
                {
                    "aliases": lines("other names"),
                    "memory_basis": text("whose figure the memory is"),
                    "allocator_total_bytes": unknown(size("what CUDA or HIP reports as the total")),
                    "architecture": unknown(text("architecture")),
                    "compute_capability": unknown(text("CUDA compute capability")),
                    "bandwidth_gb_s": unknown(number("memory bandwidth in GB/s")),
                    "fp8": unknown(flag("whether it computes in fp8")),
                    "fp4": unknown(flag("whether it computes in fp4")),
                    "gpus_per_node": count("GPUs that usually share a server at most"),
                    "source": text("where the memory was seen"),
                    "sightings": count("how often"),
                    "notes": text("what is to be known of it"),
                },
            ),
            "GPUs",
        ),
        "instances": rows(
            fields(
                {"instance": text("name"), "gpu": text("id of its GPU"), "count": unknown(count("GPUs; null for a share of one"))},
                {
                    "cloud": text("who rents it"),
                    "share": unknown({"type": ["string", "number"], "description": "share of one GPU"}),
                    "source": text("where it was seen"),
                    "checked": text("day of the check"),
                    "note": unknown(text("what is to be known of it")),
                },
            ),
            "cloud instances",
        ),
        "formats": rows(
            fields(
                {"format": text("name"), "bits_per_parameter": number("bits of one parameter with its share of the scales")},
                {
                    "title": text("what it is"),
                    "keeps_embeddings_at_16_bit": flag("whether embedding and head stay at 16 bit"),
                    "embeddings_and_head": text("what embedding and head are stored in"),
                    "source": text("the rule"),
                },
            ),
            "weight formats",
        ),
    },
    "what is built in: the sections asked for, all of them without a section",
)

PLAN = fields(
    {
        "schema": named("plan"),
        "question": fields(
            {},
            {
                "model": text("id on the Hub"),
                "slug": text("short name"),
                "context": unknown(count("tokens of one sequence; null for the model's own limit")),
                "concurrency": count("sequences wanted at once"),
                "weights": text("weights asked for"),
                "kv_cache_dtype": text("cache dtype asked for"),
                "gpu_memory_utilization": number("share of memory that may be used"),
                "engine": text("the engine"),
            },
            "the question as it was understood",
        ),
        "plans": rows(
            fields(
                {
                    "gpu": text("id of the GPU"),
                    "count": count("how many"),
                    "placement": PLACEMENT,
                    "concurrency": CONCURRENCY,
                    "instances": rows(
                        fields({}, {"instance": text("name"), "count": count("how many of it")}),
                        "cloud instances that hold the plan",
                    ),
                },
                {
                    "servers": count("servers that the GPUs fill"),
                    "memory_bytes": size("memory of all GPUs"),
                    "weights": fields({}, {"format": text("weight format"), "bytes": size("weights of the whole model")}),
                },
            ),
            "the smallest hardware of each GPU that serves it",
        ),
    },
    about="the smallest hardware that serves a model",
)

CHECK = fields(
    {
        "schema": named("check"),
        "run": fields(
            {
                "model": text("id on the Hub"),
                "gpu": text("id of the GPU"),
                "tensor_parallel": count("tensor parallel degree"),
                "vllm_version": unknown(text("version in the log")),
            },
            {
                "pipeline_parallel": count("pipeline parallel degree"),
                "rules_of": text("version whose rules were applied"),
                "max_model_len": count("tokens of one sequence"),
            },
            "the run as the log and the options tell it",
        ),
        "lines": rows(
            fields(
                {
                    "quantity": text("what the log prints"),
                    "predicted": number("predicted; memory in bytes"),
                    "logged": number("as logged; memory in bytes"),
                    "difference": number("predicted less logged"),
                    "relative": unknown(number("the difference by what was logged; null where that is zero")),
                },
                {"agrees_as_printed": flag("whether the two agree in the digits that the log prints")},
            ),
            "one entry a line of the log",
        ),
    },
    {"warnings": lines("what has to be said of the prediction")},
    "a vLLM start-up log against the prediction",
)

ERROR = fields(
    {
        "schema": named("error"),
        "error": fields(
            {
                "message": text("what failed, and the value"),
                "hint": text("what would work; may be empty"),
                "exit_code": {"type": "integer", "minimum": 1, "maximum": 255, "description": "the exit code of the process"},
            }
        ),
    },
    about="what goes to stderr with --json when a command fails",
)

SCHEMAS = {
    "fit": FIT, "kv": KV, "explain": EXPLAIN, "catalogue": CATALOGUE, "plan": PLAN, "check": CHECK, "error": ERROR,
}  # fmt: skip


def written(name: str) -> str:
    """The text of one schema file."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:gpufit:{name}:1",
        "title": f"gpufit.{name}/1",
    }
    return json.dumps(head | SCHEMAS[name], indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Writes the files, or with --check names those that differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file differs")
    only_check = parser.parse_args().check
    differing = []
    for name in SCHEMAS:
        path = FOLDER / f"{name}.json"
        if path.is_file() and path.read_text(encoding="utf-8") == written(name):
            continue
        differing.append(path.name)
        if not only_check:
            path.write_text(written(name), encoding="utf-8")
    print(f"{'differ' if only_check else 'written'}: {', '.join(differing) or 'none'}")
    return 1 if only_check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
