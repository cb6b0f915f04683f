"""What a model's positions really are: ``inspect(config)``, and ``whorl inspect`` on terminals."""

from whorl.scaling.aliasing import Alike

from .extension import ModelExtension
from .frameworks import FrameworkComparison, Remark
from .inspector import inspect
from .lengths import LengthReport
from .pairs import CompletePairs
from .report import GroupReport, Inspection

__all__ = [
    "Alike",
    "CompletePairs",
    "FrameworkComparison",
    "GroupReport",
    "Inspection",
    "LengthReport",
    "ModelExtension",
    "Remark",
    "inspect",
]
