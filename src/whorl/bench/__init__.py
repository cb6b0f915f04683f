"""Speed and accuracy of whorl against the memory limit and against other libraries.

    plan = Plan.quick()                       what is measured
    report = run(plan, sink="report.json")    measures it, saving after every cell
    print(report.markdown())

Every peer is optional: the ones that import are measured. Needs ``whorl[bench]`` for all of them.
"""

from .accuracy import Accuracy, accuracy
from .judge import Loss, Target
from .plan import Cell, Plan, Shape
from .report import Report
from .runner import run

__all__ = ["Accuracy", "Cell", "Loss", "Plan", "Report", "Shape", "Target", "accuracy", "run"]
