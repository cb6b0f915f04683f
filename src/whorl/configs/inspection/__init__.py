"""Inspect the positions of a model: ``inspect(config)``, and ``whorl inspect`` as a command."""

from whorl.scaling.aliasing import Alias

from .difference import ComparedFact, ModelDifference, compare_models
from .extension import ModelExtension
from .frameworks import FrameworkComparison, Remark
from .inspector import inspect
from .lengths import LengthReport
from .pairs import CompletePairs
from .report import GroupReport, Inspection

__all__ = [
    "Alias",
    "ComparedFact",
    "CompletePairs",
    "FrameworkComparison",
    "GroupReport",
    "Inspection",
    "LengthReport",
    "ModelDifference",
    "ModelExtension",
    "Remark",
    "compare_models",
    "inspect",
]
