"""The benchmarks of ``whorl bench``: a package for each.

    plan = Plan.quick()                       what is measured
    report = run(plan, sink="report.json")    measures it and saves the report after every cell
    print(report.render_markdown())

    rotation     against copy_ and other libraries     attention   against PyTorch's
    training     against a plain GPT                   models      transformers with and without

The names in this module are those of the rotation benchmark, which compares whorl with ``copy_``
and with other libraries (peers). Every peer is optional: those that can be imported are measured.
``pip install whorl[bench]`` installs all of them.

The modules here hold what the benchmarks share:

    plan       which cells are measured, and for how long
    cells      one cell: its work, and the results of its contestants
    contestants   implementations, whose results are verified before they are timed
    measure    timing of calls            runner    measures one cell after another
    targets    figures to reach           report    results, as JSON and as tables
    environment   CPU and versions        render    tables as text

A benchmark's own package holds the rest: its plan, its contestants, its targets, its tables.
"""

from .rotation import Accuracy, Cell, Plan, Report, Shape, measure_accuracy, run
from .targets import BenchmarkTarget

__all__ = [
    "Accuracy",
    "BenchmarkTarget",
    "Cell",
    "Plan",
    "Report",
    "Shape",
    "measure_accuracy",
    "run",
]
