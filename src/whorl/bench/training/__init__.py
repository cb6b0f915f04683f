"""Benchmark of training: the lab's model with each encoding against a plain GPT of its size.

    report = run(Plan.quick(), sink="report.json")    measures and saves after every cell
    print(report.render_markdown())

A whole training step in float32 is timed: forward, backward, clipping and AdamW. All contestants
have the same optimizer and tokens, so that only the model differs.
"""

from .plan import Cell, CellResult, Plan, Result
from .report import Report, check_targets
from .runner import run

__all__ = ["Cell", "CellResult", "Plan", "Report", "Result", "check_targets", "run"]
