"""The targets of training, on one thread, as far as cells show them."""

from collections.abc import Sequence

from whorl.bench.targets import BenchmarkTarget

from .plan import Plan
from .results import CellResult

__all__ = ["SLOWEST", "check_targets"]

# RoPE with RMSNorm and SwiGLU of several operators each, against LayerNorm and GELU of one.
SLOWEST = 1.15


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """(name, limit, measured, ok) of every target; the last two are None where no cell shows it.

    Each divides two times. RoPE takes at most ``SLOWEST`` of the baseline's time at every
    shape, and ALiBi within 25 % of RoPE at 1024 tokens and a width of 512 or more.
    """
    single = {cell.cell: cell for cell in cells if cell.cell.threads == 1}
    shapes = dict.fromkeys([*Plan().only(threads=[1]).cells(), *single])
    found = []
    for shape in shapes:
        cell = single.get(shape)
        ratio = None if cell is None else cell.ratio("rope")
        name = f"RoPE / plain GPT, {shape.size}"
        found.append(BenchmarkTarget.most(name, SLOWEST, ratio))
    wide = [c for s, c in single.items() if s.length == 1024 and s.width >= 512]
    ratios = [r for c in wide if (r := c.ratio("alibi", "rope")) is not None]
    name = "ALiBi / RoPE, width >= 512, 1024 tokens"
    return [*found, BenchmarkTarget.most(name, 1.25, max(ratios, default=None))]
