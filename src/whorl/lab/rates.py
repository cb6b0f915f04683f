"""Learning rates by encoding, from a sweep whose evidence is in learning_rates.json."""

import json
from importlib import resources
from typing import Any

from .config import EncodingSpec
from .encodings import parts_of

__all__ = ["learning_rate", "sweep"]


def learning_rate(spec: EncodingSpec, width: int) -> float:
    """The rate that was best for an encoding in the sweep, smaller in proportion if wider.

    Of a composition, the smallest of its parts'; for an encoding that was not swept, RoPE's.
    """
    found = sweep()
    chosen = found["chosen"]
    rates = [chosen.get(part["name"], chosen["rope"]) for part in parts_of(spec)]
    return float(f"{min(rates) * min(1.0, found['width'] / width):.6g}")


def sweep() -> dict[str, Any]:
    """What was tried: losses by encoding and rate, and the rate chosen for each."""
    text = resources.files("whorl.lab").joinpath("learning_rates.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
