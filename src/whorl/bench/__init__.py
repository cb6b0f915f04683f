"""What ``whorl bench`` measures: rotation, attention and training, each a folder with one shape.

    plan = Plan.quick()                       what is measured
    report = run(plan, sink="report.json")    measures it, saving after every cell
    print(report.markdown())

The names here are those of the rotation: whorl against the memory limit and other libraries. Every
peer is optional: the ones that import are measured. Needs ``whorl[bench]`` for all of them.

    plan        cells and effort               results    what a cell yields
    runner      verifies, then times           judge      the targets
    report      results as JSON                render     and as tables

What they share lies here: ``_run`` takes cell after cell, ``_report`` keeps them, ``_render`` shows
them, ``measure`` is the clock.
"""

from ._report import Target
from .rotation import Accuracy, Cell, Loss, Plan, Report, Shape, accuracy, run

__all__ = ["Accuracy", "Cell", "Loss", "Plan", "Report", "Shape", "Target", "accuracy", "run"]
