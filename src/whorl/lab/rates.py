"""Learning rates of each encoding, from the trials in learning_rates.json."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

from .config import EncodingSpec, TrainingConfig
from .encodings import split_spec

__all__ = ["choose_learning_rates", "load_trials", "set_learning_rates"]


def choose_learning_rates(spec: EncodingSpec, width: int) -> dict[str, float]:
    """The best learning rates of the trials, by the name of the option in ``TrainingConfig``.

    A composition gets the smallest rates of its parts, an encoding that is not in the trials those
    of RoPE. The encoding's own parameters keep their rate in a wider model; matrices do too,
    because Muon's update has the same size at every width (Jordan et al. 2024).
    """
    found = load_trials()
    chosen = found["chosen"]
    parts = [chosen.get(part["name"], chosen["rope"]) for part in split_spec(spec)]
    rates = {name: min(part[name] for part in parts if name in part) for name in parts[0]}
    embedding = found["settings"]["training"]["embedding_learning_rate"]
    rates["embedding_learning_rate"] = embedding * min(1.0, found["width"] / width)
    return {name: float(f"{rate:.6g}") for name, rate in rates.items()}


def set_learning_rates(training: TrainingConfig, spec: EncodingSpec, width: int) -> TrainingConfig:
    """``training`` with the learning rates of an encoding in a model of ``width``."""
    rates: dict[str, Any] = dict(choose_learning_rates(spec, width))
    return replace(training, **rates)


def load_trials() -> dict[str, Any]:
    """The trials: losses by encoding and learning rates, and the rates chosen for each encoding."""
    text = resources.files("whorl.lab").joinpath("learning_rates.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
