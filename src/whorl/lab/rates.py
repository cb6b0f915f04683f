"""Learning rates of each encoding, from the trials in learning_rates.json."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

from .config import EncodingSpec, OptimizerName, TrainingConfig
from .encodings import split_spec

__all__ = ["choose_learning_rates", "load_trials", "set_learning_rates"]

# Best at that width for ten of fourteen encodings in 350 steps; wider models need less.
_ADAMW_RATE, _ADAMW_WIDTH = 0.002, 96


def choose_learning_rates(
    spec: EncodingSpec, width: int, *, optimizer: OptimizerName = "muon"
) -> dict[str, float]:
    """The best learning rates of the trials, by the name of the option in ``TrainingConfig``.

    A composition gets the smallest rates of those of its parts that have one, an encoding that is
    not in the trials those of RoPE. Options of an encoding do not change its rates; parameters that
    only an option gives it, such as trained frequencies, have the rate that the trials began with,
    0.01. The encoding's own parameters keep their rate in a wider model;
    matrices do too, because Muon's update has the same size at every width (Jordan et al. 2024).
    With AdamW, matrices get the rate that was best for most encodings in whorl 0.1.0.
    """
    found = load_trials()
    chosen, start = found["chosen"], found["settings"]["training"]
    parts = [chosen.get(part["name"], chosen["rope"]) for part in split_spec(spec)]
    own = [part["encoding_learning_rate"] for part in parts if "encoding_learning_rate" in part]
    matrices = min(part["learning_rate"] for part in parts)
    if optimizer == "adamw":
        matrices = _ADAMW_RATE * min(1.0, _ADAMW_WIDTH / width)
    rates = {
        "learning_rate": matrices,
        "encoding_learning_rate": min(own, default=start["encoding_learning_rate"]),
        "embedding_learning_rate": start["embedding_learning_rate"]
        * min(1.0, found["width"] / width),
    }
    return {name: float(f"{rate:.6g}") for name, rate in rates.items()}


def set_learning_rates(training: TrainingConfig, spec: EncodingSpec, width: int) -> TrainingConfig:
    """``training`` with the learning rates of an encoding in a model of ``width``."""
    found = choose_learning_rates(spec, width, optimizer=training.optimizer)
    rates: dict[str, Any] = dict(found)
    return replace(training, **rates)


def load_trials() -> dict[str, Any]:
    """The trials: losses by encoding and learning rates, and the rates chosen for each encoding."""
    text = resources.files("whorl.lab").joinpath("learning_rates.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
