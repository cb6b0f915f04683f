"""Black-box tests of anybody's rotary function: ``check`` judges it, ``identify`` names it."""

from .check import check
from .identify import identify
from .report import CheckReport, Diagnosis, Measured
from .spec import Identification

__all__ = ["CheckReport", "Diagnosis", "Identification", "Measured", "check", "identify"]
