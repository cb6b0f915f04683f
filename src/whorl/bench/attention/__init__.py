"""Benchmark of attention, speed and peak memory: with biases, in training, linear, streaming.

    report = run(Plan.quick(), sink="report.json")    measures and saves after every cell
    print(report.render_markdown())

Every cell has 8 heads of 64 channels, batch size 1 and float32. Times are divided by that of
PyTorch's causal scaled_dot_product_attention (SDPA) without a bias, which has the least to compute.
"""

from .plan import Cell, CellResult, Plan, Result
from .report import Report
from .runner import run
from .targets import check_targets

__all__ = ["Cell", "CellResult", "Plan", "Report", "Result", "check_targets", "run"]
