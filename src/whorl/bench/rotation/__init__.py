"""Speed and accuracy of the rotation against ``copy_`` and against other libraries."""

from .accuracy import Accuracy, measure_accuracy
from .judge import Loss
from .plan import Cell, Plan, Shape
from .report import Report
from .runner import run

__all__ = ["Accuracy", "Cell", "Loss", "Plan", "Report", "Shape", "measure_accuracy", "run"]
