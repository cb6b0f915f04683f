"""Learning rates by encoding, from a sweep whose evidence is in learning_rates.json."""

import json
from importlib import resources
from typing import Any

from .config import EncodingSpec
from .encodings import split_spec

__all__ = ["choose_learning_rate", "load_sweep"]


def choose_learning_rate(spec: EncodingSpec, width: int) -> float:
    """The rate that was best for an encoding in the sweep, smaller in proportion if wider.

    Of a composition, the smallest of its parts'; for an encoding that was not swept, RoPE's.
    """
    found = load_sweep()
    chosen = found["chosen"]
    rates = [chosen.get(part["name"], chosen["rope"]) for part in split_spec(spec)]
    return float(f"{min(rates) * min(1.0, found['width'] / width):.6g}")


def load_sweep() -> dict[str, Any]:
    """What was tried: losses by encoding and rate, and the rate chosen for each."""
    text = resources.files("whorl.lab").joinpath("learning_rates.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
