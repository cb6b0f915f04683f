"""What is wrong with a model's rotary config: rules over the raw keys, the reading and the weights.

    engine       rules, findings, severities
    patient      what rules look at
    rules        the rules, a file for each subject
    checkpoint   frequencies stored in safetensors files, layouts of their weights
    fix          a corrected config

>>> from whorl import doctor
>>> found = doctor.examine({"model_type": "llama", "hidden_size": 4096,
...     "num_attention_heads": 32, "rope_scaling": {"factor": 4.0}})
>>> [finding.rule for finding in found.errors]
['lone-factor']
"""

from collections.abc import Iterable
from typing import Any

from whorl._support.words import quote

from . import rules as _rules  # registers them
from .diagnosis import Diagnosis, diagnose
from .engine import RULES, SEVERITIES, Finding, Rule, Severity, find_rule

__all__ = [
    "RULES",
    "SEVERITIES",
    "Diagnosis",
    "Finding",
    "Rule",
    "Severity",
    "examine",
    "find_rule",
]

del _rules


def examine(x: Any, *, length: int | None = None, ignore: Iterable[str] = ()) -> Diagnosis:
    """Look a model over, and say what is wrong with its positions.

    Args:
        x: whatever ``read_config`` takes, a folder with weights, or a .safetensors file. Of weights
            only stored frequencies and q and k are read; pickles are never opened.
        length: tokens that the model is to be used with, if not its own context.
        ignore: ids of rules to leave out.
    """
    left_out = frozenset(find_rule(id).id for id in ignore)
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"examine: length must be a positive int, in tokens; got {quote(length)}.")
    return diagnose(x, length, left_out)
