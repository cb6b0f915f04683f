"""Targets of the attention benchmark, on one thread."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from whorl.bench.targets import BenchmarkTarget

from .plan import AttentionCellKind, CellResult

__all__ = ["check_targets"]


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread."""
    single = [cell for cell in cells if cell.cell.threads == 1]
    return [*_check_softmax(single), *_check_linear(single), *_check_decode(single)]


def _check_softmax(cells: Sequence[CellResult]) -> Iterator[BenchmarkTarget]:
    for length in (4096, 16384):
        name = f"biased forward at {length}, time / SDPA without bias"
        ratios = _compute_ratios(_select_cells(cells, "causal", length), "alibi", "t5")
        yield BenchmarkTarget.at_most(name, 1.2, *ratios)
    extra = [
        (peak - plain) / 1e6
        for cell in _select_cells(cells, "memory", 16384)
        if (plain := cell.get_value("sdpa")) is not None
        for biased in ("alibi", "t5")
        if (peak := cell.get_value(biased)) is not None
    ]
    name = "biased forward at 16384, MB beyond SDPA without bias"
    yield BenchmarkTarget.at_most(name, 64, *extra)
    for peer, what, limit in (
        ("matrix", "a bias as a matrix", 3.0),
        ("matrix-ready", "a matrix made before", 3.0),
        ("flex", "flex_attention compiled", 1.0),
    ):
        speedups = [
            cell.compute_ratio(peer, "alibi") for cell in _select_cells(cells, "causal", 4096)
        ]
        name = f"ALiBi at 4096, times faster than {what}"
        yield BenchmarkTarget.at_least(name, limit, *speedups)
    ratios = _compute_ratios(_select_cells(cells, "training", 4096), "t5", "kerple")
    name = "trained bias at 4096, fwd + bwd, time / SDPA without"
    yield BenchmarkTarget.at_most(name, 2.5, *ratios)


def _check_linear(cells: Sequence[CellResult]) -> Iterator[BenchmarkTarget]:
    steps: list[float] = []
    for cell in _select_cells(cells, "doubling"):
        values = [cell.get_value(str(n)) for n in sorted(cell.cell.lengths) if n >= 8192]
        steps += [b / a for a, b in pairwise(values) if a and b]
    yield BenchmarkTarget.at_most("linear attention, 2n / n from 8k to 64k", 2.2, *steps)
    speedups = [
        cell.compute_ratio("sdpa", name)
        for cell in _select_cells(cells, "linear")
        if cell.cell.length >= 2048
        for name in ("elu", "relu", "cosine")
    ]
    name = "linear attention from 2048 on, times faster than SDPA"
    yield BenchmarkTarget.at_least(name, 1.0, *speedups)
    name = "recurrent decode from 1k to 64k, slowest / fastest"
    yield BenchmarkTarget.at_most(name, 1.2, _compute_spread(cells, "recurrent"))


def _check_decode(cells: Sequence[CellResult]) -> Iterator[BenchmarkTarget]:
    name = "streaming decode from 1k to 64k, slowest / fastest"
    yield BenchmarkTarget.at_most(name, 1.2, _compute_spread(cells, "streaming"))
    speedups = [
        window / max(ours)
        for cell in _select_cells(cells, "streaming")
        if (ours := _get_values(cell)) and (window := cell.get_value("recomputed")) is not None
    ]
    name = "streaming decode, times faster than the window recomputed"
    yield BenchmarkTarget.at_least(name, 20.0, *speedups)
    stepped = _compute_ratios(cells, "follows-stepped")
    yield BenchmarkTarget.at_most("stepped frequencies, time / fixed ones", 1.2, *stepped)


def _select_cells(
    cells: Sequence[CellResult], kind: AttentionCellKind, length: int | None = None
) -> list[CellResult]:
    """The cells of a kind; only those of ``length`` if it is given."""
    return [c for c in cells if c.cell.kind == kind and length in (None, c.cell.length)]


def _compute_ratios(cells: Sequence[CellResult], *names: str) -> list[float | None]:
    """Ratios of these contestants to the units of the cells."""
    return [cell.compute_ratio(name) for cell in cells for name in names]


def _get_values(cell: CellResult) -> list[float]:
    """Seconds at each length of the cell that was measured."""
    return [v for n in cell.cell.lengths if (v := cell.get_value(str(n))) is not None]


def _compute_spread(cells: Sequence[CellResult], kind: AttentionCellKind) -> float | None:
    """Slowest time over fastest in the cell that has 65536 tokens, or None."""
    for cell in _select_cells(cells, kind):
        if cell.get_value("65536") is not None:
            return max(_get_values(cell)) / min(_get_values(cell))
    return None
