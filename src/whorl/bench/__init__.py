"""What ``whorl bench`` measures: rotation, attention and training, each a folder with one shape.

    plan = Plan.quick()                       what is measured
    report = run(plan, sink="report.json")    measures it, saving after every cell
    print(report.markdown())

The names here are those of the rotation: whorl against the memory limit and other libraries. Every
peer is optional: the ones that import are measured. Needs ``whorl[bench]`` for all of them.

    plan       cells and effort           contestants   verified before they are timed
    cells      what a cell yields         targets       what is to be reached
    runner     takes cell after cell      report        results as JSON and tables
    measure    the clock                  render        tables as text

These hold what the benchmarks share; a folder holds what is different in one of them, and its
``judge`` says what its targets are.
"""

from .rotation import Accuracy, Cell, Loss, Plan, Report, Shape, accuracy, run
from .targets import BenchmarkTarget

__all__ = [
    "Accuracy",
    "BenchmarkTarget",
    "Cell",
    "Loss",
    "Plan",
    "Report",
    "Shape",
    "accuracy",
    "run",
]
