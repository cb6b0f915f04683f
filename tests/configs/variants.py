"""One config of each family written in many ways: the grid that readings are compared on.

A way of writing is a function of the family's types of layers and its number of pairs; it gives the
keys beside model_type and what switches the rotation on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import whorl

from .own_code import GATES

__all__ = ["VARIANTS", "variants"]

Variant = Callable[[Sequence[str], int], dict[str, Any]]
BASE, LOCAL = 2e5, 3e4
YARN = {"factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {**YARN, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def old(kind: str, key: str = "rope_type", **beside: Any) -> Variant:
    """Version 4: rope_scaling, and keys beside it."""
    options = {"yarn": YARN, "llama3": LLAMA3}.get(kind, {"factor": 8.0})
    return lambda names, pairs: {"rope_scaling": {key: kind, **options}, **beside}


def flat(rope: dict[str, Any], **beside: Any) -> Variant:
    """Version 5: one dictionary."""
    return lambda names, pairs: {"rope_parameters": dict(rope), **beside}


def nested(first: dict[str, Any], **beside: Any) -> Variant:
    """Version 5: a dictionary for each type, the last of them ``first``."""
    rest = {"rope_type": "default", "rope_theta": LOCAL}
    return lambda names, pairs: {
        "rope_parameters": {n: dict(first if n == names[-1] else rest) for n in names},
        **beside,
    }


def longrope(names: Sequence[str], pairs: int) -> dict[str, Any]:
    factors = {"short_factor": [1.5] * pairs, "long_factor": [3.0] * pairs}
    rope = {"rope_type": "longrope", "rope_theta": BASE, "short_mscale": 1.1, "long_mscale": 1.2}
    return {"rope_parameters": {**rope, **factors, "original_max_position_embeddings": 512}}


PLAIN = {"rope_type": "default", "rope_theta": BASE}
LINEAR = {"rope_type": "linear", "rope_theta": BASE, "factor": 4.0}
SCALED = {"rope_type": "yarn", "rope_theta": BASE, **YARN}

VARIANTS: dict[str, Variant] = {
    "base beside": lambda names, pairs: {"rope_theta": BASE},
    "null beside": lambda names, pairs: {"rope_theta": None},
    "two bases beside": lambda names, pairs: {"rope_theta": BASE, "rope_local_base_freq": LOCAL},
    "other name of the base": lambda names, pairs: {"rotary_emb_base": BASE},
    "old linear by type": old("linear", "type", rope_theta=BASE),
    "old linear": old("linear", rope_theta=BASE),
    "old yarn by type": old("yarn", "type", rope_theta=BASE),
    "old yarn": old("yarn", rope_theta=BASE),
    "old dynamic without base": old("dynamic", "type"),
    "old llama3 without base": old("llama3"),
    "old null": lambda names, pairs: {"rope_scaling": None, "rope_theta": BASE},
    "flat": flat(PLAIN),
    "flat empty": flat({}),
    "flat linear": flat(LINEAR),
    "flat linear by type": flat({"type": "linear", "rope_theta": BASE, "factor": 4.0}),
    "flat yarn": flat(SCALED),
    "flat llama3": flat({"rope_type": "llama3", "rope_theta": BASE, **LLAMA3}),
    "flat longrope": longrope,
    "flat proportional": flat(
        {"rope_type": "proportional", "rope_theta": BASE, "partial_rotary_factor": 0.5}
    ),
    "flat without base": flat({"rope_type": "linear", "factor": 4.0}),
    "flat, base beside": flat({"rope_type": "linear", "factor": 4.0}, rope_theta=BASE),
    "flat, other base beside": flat(LINEAR, rope_theta=LOCAL),
    "flat, null inside": flat({"rope_type": "default", "rope_theta": None}),
    "flat linear, null inside": flat({"rope_type": "linear", "factor": 4.0, "rope_theta": None}),
    "linear without factor": flat({"rope_type": "linear", "rope_theta": BASE}),
    "yarn without factor": flat(
        {"rope_type": "yarn", "rope_theta": BASE, "original_max_position_embeddings": 512}
    ),
    "yarn with null factor": flat({**SCALED, "factor": None}),
    "linear with null factor": flat({**LINEAR, "factor": None}),
    "yarn, original beside": flat(
        {"rope_type": "yarn", "rope_theta": BASE, "factor": 4.0},
        original_max_position_embeddings=256,
    ),
    "yarn, two originals": flat(SCALED, original_max_position_embeddings=256),
    "nested": nested(PLAIN),
    "nested linear": nested(LINEAR),
    "nested yarn": nested(SCALED),
    "nested by type": nested({"type": "linear", "rope_theta": BASE, "factor": 4.0}),
    "nested without base": nested({"rope_type": "linear", "factor": 4.0}, rope_theta=BASE),
    "nested default without base": nested({"rope_type": "default"}, rope_theta=BASE),
    "nested with null": nested({"rope_type": "default", "rope_theta": None}),
    "full attention only": lambda names, pairs: {"rope_parameters": {"full_attention": LINEAR}},
    "share beside": lambda names, pairs: {"partial_rotary_factor": 0.5},
    "share beside flat linear": flat(LINEAR, partial_rotary_factor=0.5),
    "share inside": flat({**PLAIN, "partial_rotary_factor": 0.5}),
    "share inside linear": flat({**LINEAR, "partial_rotary_factor": 0.5}),
    "two shares": flat({**LINEAR, "partial_rotary_factor": 0.5}, partial_rotary_factor=0.25),
    "share beside nested": nested(PLAIN, partial_rotary_factor=0.5),
    "share beside nested linear": nested(LINEAR, partial_rotary_factor=0.5),
    "share inside nested": nested({**PLAIN, "partial_rotary_factor": 0.5}),
    "old and flat": lambda names, pairs: {
        "rope_scaling": {"type": "linear", "factor": 8.0},
        "rope_parameters": dict(PLAIN),
    },
    "old and nested": lambda names, pairs: {
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        **nested(PLAIN)(names, pairs),
    },
}


def variants(model_type: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each way by its name, and the config without model_type."""
    gates = GATES.get(model_type, {})
    groups = whorl.read_config({"model_type": model_type, **gates}).groups
    turning = [group for group in groups if group.rotation is not None]
    names = list(dict.fromkeys(g.name for g in turning if g.name)) or ["full_attention"]
    pairs = len(turning[0].rotation.frequencies().inv_freq) if turning[0].rotation else 0
    for name, variant in VARIANTS.items():
        yield name, {**gates, **variant(names, pairs)}
