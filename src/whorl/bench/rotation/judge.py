"""Like against like: whorl's ratio to every peer, the losses, and the targets.

In place is set against the fastest form a peer has, since most have no other; ``out=`` against
``out=``, fresh against fresh, training against training, bound once against bound once. A target
over several cells takes the worst of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from whorl.bench.targets import BenchmarkTarget

from .peers import COPY, OURS, TITLES
from .results import FORMS, CellResult

__all__ = [
    "BenchmarkTarget",
    "Loss",
    "PeerComparison",
    "check_targets",
    "compare_with_peers",
    "find_losses",
]

# Differences that a repeated run does not confirm: long calls vary less than short ones.
NOISE_MS, NOISE_US = 0.05, 0.20


class PeerComparison(NamedTuple):
    """whorl's time divided by a peer's in one cell; below 1 whorl is faster."""

    cell: str
    mode: str
    peer: str
    peer_mode: str
    ratio: float
    noise: float


Loss = PeerComparison


def compare_with_peers(cell: CellResult) -> list[PeerComparison]:
    """whorl in each of its modes against each peer that was timed."""
    found = []
    peers = dict.fromkeys(r.name for r in cell.results if r.name not in (COPY, OURS))
    for mode in FORMS:
        ours = cell.seconds(OURS, mode)
        if ours is None:
            continue
        noise = NOISE_US if ours < 1e-3 else NOISE_MS
        for peer in peers:
            seconds = cell.seconds(peer, mode)
            other = cell.fastest(peer) if mode == "inplace" else seconds and (mode, seconds)
            if other:
                ratio = ours / other[1]
                found.append(PeerComparison(cell.cell.key, mode, peer, other[0], ratio, noise))
    return found


def find_losses(cells: Sequence[CellResult]) -> list[Loss]:
    """Every comparison that whorl loses by more than noise, the worst first."""
    lost = [c for cell in cells for c in compare_with_peers(cell) if c.ratio > 1 + c.noise]
    return sorted(lost, key=lambda c: -c.ratio)


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """The targets of the project, as far as ``cells`` show them."""
    found = []
    for shape, dtype, mode, limit in _COPY_LIMITS:
        ratios = _collect_values(cells, shape, dtype, _build_copy_ratio(mode), (COPY, OURS))
        name = f"{shape} {dtype} {FORMS[mode]}, time / copy_"
        found.append(BenchmarkTarget.most(name, limit, max(ratios, default=None)))
    for shape, mode, peer, limit in _SPEEDUPS:
        for dtype in ("float32", "bfloat16", "float16"):
            speedups = _collect_values(
                cells, shape, dtype, _build_speedup(mode, peer), (OURS, peer)
            )
            name = f"{shape} {dtype} {FORMS[mode]}, times faster than {TITLES[peer]}"
            found.append(BenchmarkTarget.least(name, limit, min(speedups, default=None)))
    asked = any(r.mode == "past" for cell in cells for r in cell.results)  # not in old reports
    for shape, limit in _PAST_LIMITS if asked else ():
        for dtype in ("float32", "bfloat16", "float16"):
            ratios = _collect_values(cells, shape, dtype, _compute_past_ratio, (OURS,))
            name = f"{shape} {dtype} in place, time past its table / inside it"
            found.append(BenchmarkTarget.most(name, limit, max(ratios, default=None)))
    single = _select_single_threaded(cells)
    known = any(map(compare_with_peers, single)) and not any(c.has_problem((OURS,)) for c in single)
    count = len(find_losses(single)) if known else None
    found.append(BenchmarkTarget.most("comparisons lost beyond noise", 0, count))
    return found


_COPY_LIMITS = (
    ("prefill-4096", "float32", "inplace", 0.9),
    ("prefill-4096", "float32", "out", 1.2),
    ("prefill-4096", "bfloat16", "inplace", 1.2),
    ("prefill-4096", "float16", "inplace", 1.2),
    ("prefill-512", "bfloat16", "inplace", 2.5),
    ("prefill-512", "float16", "inplace", 1.8),
)

# A shape without a number stands for all of its kind. Decode: at most 0.4 of the peer's time.
_SPEEDUPS = (
    ("prefill-4096", "inplace", "hf", 15.0),
    ("prefill-4096", "inplace", "hf-compiled", 5.0),
    ("prefill-512", "inplace", "hf", 5.0),
    ("decode", "inplace", "hf", 2.5),
    ("decode", "fresh", "hf", 2.5),
    ("training", "training", "hf", 4.0),
)


# Nobody should have to know how long the table is.
_PAST_LIMITS = (("prefill-8192", 1.3), ("decode", 1.5))


def _select_single_threaded(cells: Sequence[CellResult]) -> list[CellResult]:
    return [cell for cell in cells if cell.cell.threads == 1]


def _collect_values(
    cells: Sequence[CellResult],
    shape: str,
    dtype: str,
    figure: Callable[[CellResult], float | None],
    names: tuple[str, ...],
) -> list[float]:
    """``figure`` of every single-threaded cell of a shape and dtype, in any layout.

    None of them where one of these contestants failed in one: the worst is not known then.
    """
    chosen = [
        c
        for c in _select_single_threaded(cells)
        if shape in (c.cell.shape.name, c.cell.shape.kind) and c.cell.dtype == dtype
    ]
    if any(cell.has_problem(names) for cell in chosen):
        return []
    return [value for value in map(figure, chosen) if value is not None]


def _build_copy_ratio(mode: str) -> Callable[[CellResult], float | None]:
    return lambda cell: cell.to_copy(OURS, mode)


def _compute_past_ratio(cell: CellResult) -> float | None:
    past, inside = cell.seconds(OURS, "past"), cell.seconds(OURS, "inplace")
    return None if past is None or inside is None else past / inside


def _build_speedup(mode: str, peer: str) -> Callable[[CellResult], float | None]:
    def figure(cell: CellResult) -> float | None:
        for comparison in compare_with_peers(cell):
            if (comparison.mode, comparison.peer) == (mode, peer):
                return 1 / comparison.ratio
        return None

    return figure
