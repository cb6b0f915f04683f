"""Targets of the rotation benchmark, and the comparison of whorl with every peer.

Each of whorl's modes is compared with the same mode of a peer: ``out=`` with ``out=``, fresh with
fresh, training with training, bound once with bound once. In place is compared with the fastest
mode of a peer, because most peers have none in place. A target over several cells uses the worst.
"""

from collections.abc import Sequence
from typing import NamedTuple

from whorl.bench.targets import BenchmarkTarget

from .peers import COPY, OURS, TITLES
from .plan import DTYPES
from .results import FORMS, PAST, CellResult

__all__ = ["PeerComparison", "check_targets", "compare_with_peers", "find_losses"]

# Relative differences that a second run may not confirm, for calls of milliseconds and shorter.
NOISE_MS, NOISE_US = 0.05, 0.20


class PeerComparison(NamedTuple):
    """whorl's time divided by a peer's in one cell; whorl is faster if the ratio is below 1."""

    cell: str
    mode: str
    peer: str
    peer_mode: str
    ratio: float
    noise: float


def compare_with_peers(cell: CellResult) -> list[PeerComparison]:
    """The comparison of each of whorl's modes with each peer that was timed."""
    found = []
    peers = dict.fromkeys(r.name for r in cell.results if r.name not in (COPY, OURS))
    for mode in FORMS:
        ours = cell.get_seconds(OURS, mode)
        if ours is None:
            continue
        noise = NOISE_US if ours < 1e-3 else NOISE_MS
        for peer in peers:
            seconds = cell.get_seconds(peer, mode)
            other = cell.find_fastest(peer) if mode == "inplace" else seconds and (mode, seconds)
            if other:
                ratio = ours / other[1]
                found.append(PeerComparison(cell.cell.key, mode, peer, other[0], ratio, noise))
    return found


def find_losses(cells: Sequence[CellResult]) -> list[PeerComparison]:
    """Every comparison in which whorl is slower by more than noise, the worst first."""
    lost = [c for cell in cells for c in compare_with_peers(cell) if c.ratio > 1 + c.noise]
    return sorted(lost, key=lambda c: -c.ratio)


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread."""
    single = [cell for cell in cells if cell.cell.threads == 1]
    found = []
    for shape, dtype, mode, limit in _COPY_LIMITS:
        chosen = _select_cells(single, shape, dtype, (COPY, OURS))
        ratios = [cell.compute_copy_ratio(OURS, mode) for cell in chosen]
        name = f"{shape} {dtype} {FORMS[mode]}, time / copy_"
        found.append(BenchmarkTarget.at_most(name, limit, *ratios))
    for shape, mode, peer, limit in _SPEEDUPS:
        for dtype in DTYPES:
            speedups = [
                1 / comparison.ratio
                for cell in _select_cells(single, shape, dtype, (OURS, peer))
                for comparison in compare_with_peers(cell)
                if (comparison.mode, comparison.peer) == (mode, peer)
            ]
            name = f"{shape} {dtype} {FORMS[mode]}, times faster than {TITLES[peer]}"
            found.append(BenchmarkTarget.at_least(name, limit, *speedups))
    found += _check_past_targets(cells, single)
    known = any(map(compare_with_peers, single)) and not any(c.has_problem((OURS,)) for c in single)
    count = len(find_losses(single)) if known else None
    found.append(BenchmarkTarget.at_most("comparisons lost beyond noise", 0, count))
    return found


_COPY_LIMITS = (
    ("prefill-4096", "float32", "inplace", 0.9),
    ("prefill-4096", "float32", "out", 1.2),
    ("prefill-4096", "bfloat16", "inplace", 1.2),
    ("prefill-4096", "float16", "inplace", 1.2),
    ("prefill-512", "bfloat16", "inplace", 2.5),
    ("prefill-512", "float16", "inplace", 1.8),
)

# A shape without a number means all shapes of the kind. Decode: at most 0.4 of the peer's time.
_SPEEDUPS = (
    ("prefill-4096", "inplace", "hf", 15.0),
    ("prefill-4096", "inplace", "hf-compiled", 5.0),
    ("prefill-512", "inplace", "hf", 5.0),
    ("decode", "inplace", "hf", 2.5),
    ("decode", "fresh", "hf", 2.5),
    ("training", "training", "hf", 4.0),
)


# A call past the end of the table should not be much slower than one inside it.
_PAST_LIMITS = (("prefill-8192", 1.3), ("decode", 1.5))


def _check_past_targets(
    cells: Sequence[CellResult], single: Sequence[CellResult]
) -> list[BenchmarkTarget]:
    """Targets past the table, of the rotations that were measured there; old reports have none.

    single: those of ``cells`` on one thread.
    """
    measured = {result.mode for cell in cells for result in cell.results}
    found = []
    for mode, inside in PAST.items():
        for shape, limit in _PAST_LIMITS if mode in measured else ():
            for dtype in DTYPES:
                chosen = _select_cells(single, shape, dtype, (OURS,))
                ratios = [cell.compute_past_ratio(OURS, mode) for cell in chosen]
                name = f"{shape} {dtype} {FORMS[inside]}, time past its table / inside it"
                found.append(BenchmarkTarget.at_most(name, limit, *ratios))
    return found


def _select_cells(
    cells: Sequence[CellResult], shape: str, dtype: str, names: tuple[str, ...]
) -> list[CellResult]:
    """The cells with that shape, or kind of shapes, and dtype, in any layout.

    Empty if one of the contestants ``names`` failed in one of them: the worst is unknown then.
    """
    chosen = [
        c
        for c in cells
        if shape in (c.cell.shape.name, c.cell.shape.kind) and c.cell.dtype == dtype
    ]
    return [] if any(cell.has_problem(names) for cell in chosen) else chosen
