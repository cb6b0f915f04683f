"""Speed and peak memory of attention: biased, trained, linear, streaming.

    report = run(Plan.quick(), sink="report.json")    measures, saving after every cell
    print(report.markdown())

Everything is 8 heads of 64 channels, batch 1, float32. The unit is PyTorch's causal SDPA without a
bias, which computes less than any of the others.
"""

from .judge import check_targets
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result
from .runner import run

__all__ = ["Cell", "CellResult", "Plan", "Report", "Result", "check_targets", "run"]
