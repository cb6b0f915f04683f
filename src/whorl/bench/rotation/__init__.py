"""Speed and accuracy of the rotation against ``copy_`` and against other libraries."""

from .accuracy import Accuracy, measure_accuracy
from .plan import Cell, Plan, Shape
from .report import Report
from .runner import run

__all__ = ["Accuracy", "Cell", "Plan", "Report", "Shape", "measure_accuracy", "run"]
