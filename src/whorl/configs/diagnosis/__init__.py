"""What is wrong with a model's rotary config: rules about its keys, its reading and its weights.

    engine         rules, findings, severities
    model          the diagnosed model, its layer groups, and how it is loaded
    parts          its config and the parts of it, with their rope parameters
    checkpoint     frequencies stored in safetensors files, layouts of their weights
    rules          the rules, a file for each subject
    diagnosis      the findings, and the diagnosis of the corrected config
    fix            a corrected config
    page           the sections of docs/doctor.md

>>> from whorl.configs import diagnosis
>>> found = diagnosis.diagnose({"model_type": "llama", "hidden_size": 4096,
...     "num_attention_heads": 32, "rope_scaling": {"factor": 4.0}})
>>> [finding.rule for finding in found.errors]
['lone-factor']
"""

from collections.abc import Iterable
from typing import Any

from whorl._support.words import quote

from . import rules as _rules  # registers them
from .diagnosis import ConfigDiagnosis, diagnose_model
from .engine import RULES, SEVERITIES, DiagnosisRule, Finding, Severity, find_rule

__all__ = [
    "RULES",
    "SEVERITIES",
    "ConfigDiagnosis",
    "DiagnosisRule",
    "Finding",
    "Severity",
    "diagnose",
    "find_rule",
]

del _rules


def diagnose(x: Any, *, length: int | None = None, ignore: Iterable[str] = ()) -> ConfigDiagnosis:
    """Apply all rules to a model: what is wrong with its positions, where, and what to do.

    Args:
        x: what ``read_config`` takes, a folder with weights, or a .safetensors file. Of weights
            only stored frequencies and q and k are read; pickles are never opened.
        length: tokens that the model is to be used with; None stands for its own context length.
        ignore: ids of rules to leave out.
    """
    ignored = frozenset(find_rule(id).id for id in ignore)
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"length must be a positive int, in tokens; got {quote(length)}.")
    return diagnose_model(x, length, ignored)
