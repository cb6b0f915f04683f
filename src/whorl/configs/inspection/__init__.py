"""Inspect the positions of a model: ``inspect(config)``, and ``whorl inspect`` as a command."""

from whorl.scaling.aliasing import Alias

from .extension import ModelExtension
from .frameworks import FrameworkComparison, Remark
from .inspector import inspect
from .lengths import LengthReport
from .pairs import CompletePairs
from .report import GroupReport, Inspection

__all__ = [
    "Alias",
    "CompletePairs",
    "FrameworkComparison",
    "GroupReport",
    "Inspection",
    "LengthReport",
    "ModelExtension",
    "Remark",
    "inspect",
]
