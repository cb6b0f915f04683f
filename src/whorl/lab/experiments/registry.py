"""All experiments by name. An experiment is one line here, NAME.py and NAME.toml beside this file.

A hyphen in a name is an underscore in the names of its files.
"""

from importlib import import_module
from pathlib import Path

from whorl._support.words import quote, suggest_name

from .definition import Experiment

__all__ = ["NAMES", "find_experiment", "get_toml_path"]

#: In the order in which they are listed.
NAMES = (
    "base",
    "frequencies",
    "partial",
    "layouts",
    "normalisation",
    "hybrids",
    "linear-attention",
    "mlm",
    "performer",
    "roformer-stages",
    "noise",
    "migration",
    "vision",
    "matching",
)


def find_experiment(name: str) -> Experiment:
    """The experiment ``name``; ValueError with the known names if there is none."""
    if name not in NAMES:
        raise ValueError(
            f"experiment {quote(name)} is unknown{suggest_name(name, NAMES)} Known:"
            f" {', '.join(NAMES)}."
        )
    found: Experiment = import_module(f"{__package__}.{name.replace('-', '_')}").EXPERIMENT
    return found


def get_toml_path(name: str) -> Path:
    """The file with the question, the rows and the settings of an experiment."""
    return Path(__file__).parent / f"{name.replace('-', '_')}.toml"
