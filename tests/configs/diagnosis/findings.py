"""Rules and messages of the errors and warnings that a config gets."""

from typing import Any

from whorl.configs import diagnosis
from whorl.configs.diagnosis.engine import LLAMA

ORIGINAL = "original_max_position_embeddings"
YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}
LISTS = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}


def said(**keys: Any) -> list[tuple[str, str]]:
    return said_of({**LLAMA, **keys})


def said_of(config: dict[str, Any]) -> list[tuple[str, str]]:
    found = diagnosis.diagnose(config)
    return [(f.rule, f.message) for f in (*found.errors, *found.warnings)]
