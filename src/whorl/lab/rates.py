"""Learning rate of each encoding, from the sweep in learning_rates.json."""

import json
from importlib import resources
from typing import Any

from .config import EncodingSpec
from .encodings import split_spec

__all__ = ["choose_learning_rate", "load_sweep"]


def choose_learning_rate(spec: EncodingSpec, width: int) -> float:
    """The best learning rate of the sweep, divided by how much wider the model is.

    A composition gets the smallest of its parts; an encoding that is not in the sweep that of RoPE.
    """
    found = load_sweep()
    chosen = found["chosen"]
    rates = [chosen.get(part["name"], chosen["rope"]) for part in split_spec(spec)]
    return float(f"{min(rates) * min(1.0, found['width'] / width):.6g}")


def load_sweep() -> dict[str, Any]:
    """The sweep: losses by encoding and learning rate, and the rate chosen for each encoding."""
    text = resources.files("whorl.lab").joinpath("learning_rates.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
