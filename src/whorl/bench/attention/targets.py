"""Targets of the attention benchmark, on one thread."""

from collections.abc import Sequence
from itertools import pairwise

from whorl.bench.targets import BenchmarkTarget

from .plan import AttentionCellKind
from .results import CellResult

__all__ = ["check_targets"]


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread."""
    single = [cell for cell in cells if cell.cell.threads == 1]
    return [*_check_softmax(single), *_check_linear(single), *_check_decode(single)]


def _check_softmax(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    found = []
    for length in (4096, 16384):
        worst = _find_worst(_find_cell(cells, "causal", length), ("alibi", "t5"))
        found.append(
            BenchmarkTarget.at_most(
                f"biased forward at {length}, time / SDPA without bias", 1.2, worst
            )
        )
    memory = _find_cell(cells, "memory", 16384)
    extra = None
    if memory is not None and (plain := memory.get_value("sdpa")) is not None:
        peaks = [p for n in ("alibi", "t5") if (p := memory.get_value(n)) is not None]
        extra = (max(peaks) - plain) / 1e6 if peaks else None
    found.append(
        BenchmarkTarget.at_most("biased forward at 16384, MB beyond SDPA without bias", 64, extra)
    )
    cell = _find_cell(cells, "causal", 4096)
    for peer, what, limit in (
        ("matrix", "a bias as a matrix", 3.0),
        ("matrix-ready", "a matrix made before", 3.0),
        ("flex", "flex_attention compiled", 1.0),
    ):
        ratio = None if cell is None else cell.compute_ratio(peer, "alibi")
        found.append(
            BenchmarkTarget.at_least(f"ALiBi at 4096, times faster than {what}", limit, ratio)
        )
    worst = _find_worst(_find_cell(cells, "training", 4096), ("t5", "kerple"))
    found.append(
        BenchmarkTarget.at_most("trained bias at 4096, fwd + bwd, time / SDPA without", 2.5, worst)
    )
    return found


def _check_linear(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    name = "linear attention, 2n / n from 8k to 64k"
    steps = []
    for cell in (c for c in cells if c.cell.kind == "doubling"):
        values = [cell.get_value(str(n)) for n in sorted(cell.cell.lengths) if n >= 8192]
        steps += [b / a for a, b in pairwise(values) if a and b]
    found = [BenchmarkTarget.at_most(name, 2.2, max(steps, default=None))]
    speedups = []
    for cell in (c for c in cells if c.cell.kind == "linear" and c.cell.length >= 2048):
        speedups += [
            s for n in ("elu", "relu", "cosine") if (s := cell.compute_ratio("sdpa", n)) is not None
        ]
    name = "linear attention from 2048 on, times faster than SDPA"
    found.append(BenchmarkTarget.at_least(name, 1.0, min(speedups, default=None)))
    flat = _compute_spread(cells, "recurrent")
    return [
        *found,
        BenchmarkTarget.at_most("recurrent decode from 1k to 64k, slowest / fastest", 1.2, flat),
    ]


def _check_decode(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    flat = _compute_spread(cells, "streaming")
    found = [
        BenchmarkTarget.at_most("streaming decode from 1k to 64k, slowest / fastest", 1.2, flat)
    ]
    speedup = None
    for cell in (c for c in cells if c.cell.kind == "streaming"):
        ours = [v for n in cell.cell.lengths if (v := cell.get_value(str(n))) is not None]
        window = cell.get_value("recomputed")
        speedup = window / max(ours) if ours and window is not None else None
    name = "streaming decode, times faster than the window recomputed"
    found.append(BenchmarkTarget.at_least(name, 20.0, speedup))
    stepped = [r for c in cells if (r := _find_worst(c, ("follows-stepped",))) is not None]
    name = "stepped frequencies, time / fixed ones"
    return [*found, BenchmarkTarget.at_most(name, 1.2, max(stepped, default=None))]


def _find_cell(
    cells: Sequence[CellResult], kind: AttentionCellKind, length: int
) -> CellResult | None:
    found = (c for c in cells if (c.cell.kind, c.cell.length) == (kind, length))
    return next(found, None)


def _find_worst(cell: CellResult | None, names: tuple[str, ...]) -> float | None:
    """The largest ratio of these contestants to the cell's unit, or None."""
    if cell is None:
        return None
    return max((r for n in names if (r := cell.compute_ratio(n)) is not None), default=None)


def _compute_spread(cells: Sequence[CellResult], kind: AttentionCellKind) -> float | None:
    """Slowest time over fastest in the cell that has 65536 tokens, or None."""
    for cell in cells:
        if cell.cell.kind == kind and cell.get_value("65536") is not None:
            values = [v for n in cell.cell.lengths if (v := cell.get_value(str(n))) is not None]
            return max(values) / min(values)
    return None
