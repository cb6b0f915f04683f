"""What a model's positions really are: ``inspect(config)``, and ``whorl inspect`` on terminals."""

from whorl.scaling.aliasing import Alias

from .extension import Extension
from .frameworks import Comparison, Remark
from .lengths import AtLength
from .look import inspect
from .pairs import Turns
from .report import GroupReport, Inspection

__all__ = [
    "Alias",
    "AtLength",
    "Comparison",
    "Extension",
    "GroupReport",
    "Inspection",
    "Remark",
    "Turns",
    "inspect",
]
