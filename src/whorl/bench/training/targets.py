"""Targets of the training benchmark, on one thread."""

from collections.abc import Sequence

from whorl.bench.targets import BenchmarkTarget

from .plan import Plan
from .results import CellResult

__all__ = ["SLOWEST", "check_targets"]

# RMSNorm and SwiGLU are several operators each, the baseline's LayerNorm and GELU one each.
SLOWEST = 1.15


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread.

    RoPE should take at most ``SLOWEST`` of the baseline's time at every shape, and ALiBi at most
    1.25 of RoPE's at 1024 tokens and a width of 512 or more.
    """
    single = {cell.cell: cell for cell in cells if cell.cell.threads == 1}
    shapes = dict.fromkeys([*Plan().select(threads=[1]).list_cells(), *single])
    found = []
    for shape in shapes:
        cell = single.get(shape)
        ratio = None if cell is None else cell.compute_ratio("rope")
        name = f"RoPE / plain GPT, {shape.size}"
        found.append(BenchmarkTarget.at_most(name, SLOWEST, ratio))
    wide = [c for s, c in single.items() if s.length == 1024 and s.width >= 512]
    ratios = [r for c in wide if (r := c.compute_ratio("alibi", "rope")) is not None]
    name = "ALiBi / RoPE, width >= 512, 1024 tokens"
    return [*found, BenchmarkTarget.at_most(name, 1.25, max(ratios, default=None))]
