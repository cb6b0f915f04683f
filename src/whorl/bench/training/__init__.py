"""Speed of training: the lab's model with each encoding against a plain GPT of the same shape.

    report = run(Plan.quick(), sink="report.json")    measures, saving after every cell
    print(report.markdown())

What is timed is a whole step in float32: forward, backward, clipping and AdamW. All contestants
share optimizer and tokens, so that only the model differs.
"""

from .judge import check_targets
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result
from .runner import run

__all__ = ["Cell", "CellResult", "Plan", "Report", "Result", "check_targets", "run"]
