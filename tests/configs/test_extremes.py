"""One rope parameter at a time as far out as a number can be: an answer or an error in words.

Damage of every kind is the matter of test_fuzz.py; here all parameters of all types of scaling meet
the largest and smallest numbers, which pass the checks of single values and overflow in sums,
powers and quotients.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.configs.test_fuzz import ask_the_doctor, outcome, read_and_build, read_as_transformers
from whorl.configs.diagnosis.rules._vocabulary import KEYS_BY_TYPE
from whorl.configs.inspection import inspect
from whorl.configs.inspection.verdict import write_verdict
from whorl.explore import api
from whorl.explore.state import ExplorerState

SIZES = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16384,
}
ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "longrope": {
        "short_factor": [1.0] * 32,
        "long_factor": [2.0] * 32,
        "original_max_position_embeddings": 4096,
    },
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 4096,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}
EXTREMES: list[Any] = [
    *(1e308, -1e308, 5e-324, 1e-300, 0, -0.0, 1 + 2**-52, math.nan, math.inf, 2**63, 10**200),
    *("4.0", [1e308] * 32, [5e-324] * 32, [1e308, 1e308], {"factor": 1e308}),
]
#: What Python says of numbers, which is no answer to a person.
RAW = re.compile(r"math (domain|range) error|cannot convert|out of range|overflow|division by")


def look(x: Any) -> None:
    for asked in ({}, {"length": 2**40}, {"extend": "yarn", "factor": 4.0}):
        found = inspect(x, **asked)
        json.dumps(found.to_dict(), allow_nan=False)
        write_verdict(found)


def open_the_page(x: Any) -> None:
    request = {"source": {"text": json.dumps(x)}, "length": 4096}
    api.answer_report(ExplorerState(), {**request, "choice": {"method": "yarn", "factor": 4.0}})
    api.answer_view(
        ExplorerState(), {**request, "choices": [{"method": "dynamic_ntk", "factor": 1e6}]}
    )


TARGETS: dict[str, Callable[[Any], None]] = {
    "read_config": read_and_build,
    "read_config, parity": read_as_transformers,
    "inspect": look,
    "doctor": ask_the_doctor,
    "explorer": open_the_page,
}


def failures(config: Any) -> list[str]:
    results = {name: outcome(target, config, None) for name, target in TARGETS.items()}
    return [f"{n}: {r}" for n, r in results.items() if r not in ("read", "refused")]


def mutants(kind: str) -> Iterator[dict[str, Any]]:
    for name in sorted(KEYS_BY_TYPE[kind] | {"rope_theta", "partial_rotary_factor"}):
        for value in EXTREMES:
            rope = {"rope_type": kind, **ROPES[kind], name: value}
            yield {**SIZES, "rope_scaling" if len(name) % 2 else "rope_parameters": rope}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 2.0, "short_factor": [1e308, 1e308]},
        {"rope_type": "longrope", **ROPES["longrope"], "short_factor": [1e308] * 32},
        {"rope_type": "yarn", "factor": 1e308, "original_max_position_embeddings": 4096},
        {"rope_type": "dynamic", "factor": 1e308},
        {"rope_type": "linear", "factor": 1.7e308, "rope_theta": 1e16},
        {"full_attention": {"rope_type": "su", "factor": 4.0, "rope_theta": 1e6}, "factor": 2},
    ],
)
def test_known_faults(rope: dict[str, Any]) -> None:
    assert failures({**SIZES, "rope_parameters": rope}) == []


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "max_position_embeddings"])
def test_a_size_beyond_all_integers(name: str) -> None:
    """Made an integer by a correction, it had 309 digits, which no reader takes."""
    assert failures({**SIZES, name: 1e308}) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROPES)
def test_every_parameter(kind: str) -> None:
    found = {json.dumps(one): bad for one in mutants(kind) if (bad := failures(one))}
    assert found == {}


@pytest.mark.parametrize("kind", ROPES)
def test_refusals_are_in_words(kind: str) -> None:
    raw = {}
    for one in mutants(kind):
        try:
            inspect(one)
        except ValueError as error:
            if RAW.search(str(error)):
                raw[json.dumps(one)] = str(error)
    assert raw == {}


def test_raw_words_are_seen() -> None:
    for code in ("math.log(0)", "math.floor(math.inf)", "1e308 ** 2", "1 / 0"):
        with pytest.raises(Exception, match=RAW):
            eval(code)
