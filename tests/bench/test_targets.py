"""Comparisons, losses and targets on made-up times, chosen so that each can pass and fail."""

import dataclasses

import pytest

from whorl.bench import BenchmarkTarget, Shape
from whorl.bench.rotation.peers import TITLES
from whorl.bench.rotation.results import PAST, CellResult, Result
from whorl.bench.rotation.targets import check_targets, compare_with_peers, find_losses

from .conftest import cell_of

OURS_ALL = {("whorl", "inplace"): 8e-3, ("whorl", "out"): 11e-3, ("whorl", "fresh"): 20e-3}
DECODE = Shape("decode", 1, 32, 8, 1, 128)
TRAINING = Shape("training", 8, 12, 12, 128, 64)
SHORT = Shape("prefill", 1, 32, 8, 512, 128)


def target(name: str, *cells: object) -> BenchmarkTarget:
    found = [t for t in check_targets(cells) if t.name == name]  # type: ignore[arg-type]
    assert len(found) == 1, [t.name for t in check_targets([])]
    return found[0]


def test_like_meets_like() -> None:
    cell = cell_of({**OURS_ALL, ("hf", "fresh"): 40e-3, ("ort", "out"): 10e-3})
    found = {(c.mode, c.peer, c.peer_mode): c.ratio for c in compare_with_peers(cell)}
    assert found == pytest.approx(
        {
            ("inplace", "hf", "fresh"): 0.2,
            ("inplace", "ort", "out"): 0.8,
            ("out", "ort", "out"): 1.1,
            ("fresh", "hf", "fresh"): 0.5,
        }
    )


def test_in_place_meets_the_fastest_form_of_a_peer() -> None:
    cell = cell_of({("whorl", "inplace"): 8e-3, ("mlx", "fresh"): 9e-3, ("mlx", "out"): 4e-3})
    (found,) = compare_with_peers(cell)
    assert (found.peer_mode, found.ratio) == ("out", 2.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "lost"),
    [
        (10.4e-3, 10e-3, False),
        (10.6e-3, 10e-3, True),
        (11.9e-6, 10e-6, False),
        (12.1e-6, 10e-6, True),
    ],
)
def test_loss_begins_beyond_noise(ours: float, theirs: float, lost: bool) -> None:
    cell = cell_of({("whorl", "fresh"): ours, ("hf", "fresh"): theirs})
    assert bool(find_losses([cell])) is lost


def test_losses_come_worst_first() -> None:
    cell = cell_of({("whorl", "fresh"): 3.0, ("hf", "fresh"): 2.0, ("meta", "fresh"): 1.0})
    assert [(loss.peer, loss.ratio) for loss in find_losses([cell])] == [("meta", 3.0), ("hf", 1.5)]


@pytest.mark.parametrize(("inplace", "ok"), [(8.9e-3, True), (9.1e-3, False)])
def test_target_against_copy_takes_the_worse_layout(inplace: float, ok: bool) -> None:
    good = cell_of({("copy", "out"): 10e-3, ("whorl", "inplace"): 5e-3})
    other = cell_of({("copy", "out"): 10e-3, ("whorl", "inplace"): inplace}, layout="interleaved")
    found = target("prefill-4096 float32 in place, time / copy_", good, other)
    assert found.limit == "<= 0.9"
    assert found.measured == pytest.approx(inplace / 10e-3)
    assert found.ok is ok


@pytest.mark.parametrize("name", ["copy", "whorl"])
def test_a_layout_that_failed_leaves_a_target_open(name: str) -> None:
    good = cell_of({("copy", "out"): 10e-3, ("whorl", "inplace"): 5e-3, ("hf", "fresh"): 1.0})
    cell = dataclasses.replace(good.cell, layout="interleaved")
    failed = CellResult(cell, (Result(name, "", problem="ended with SIGSEGV"),))
    assert target("prefill-4096 float32 in place, time / copy_", good, failed).ok is None
    lost = target("comparisons lost beyond noise", good, failed)
    assert lost.ok is (None if name == "whorl" else True)
    fast = target("prefill-4096 float32 in place, times faster than Hugging Face", good, failed)
    assert fast.ok is (None if name == "whorl" else True)


@pytest.mark.parametrize(
    ("shape", "name", "limit"),
    [(Shape("prefill", 1, 32, 8, 8192, 128), "prefill-8192", 1.3), (DECODE, "decode", 1.5)],
)
@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize(
    ("mode", "title"),
    [
        ("past", "in place"),
        ("xpos-past", "XPos in place"),
        ("mrope-past", "M-RoPE in place"),
        ("axial-past", "AxialRoPE in place"),
    ],
)
def test_targets_past_the_table(
    shape: Shape, name: str, limit: float, mode: str, title: str, ok: bool
) -> None:
    inside, past = 1e-3, (limit - 0.01 if ok else limit + 0.01) * 1e-3
    cells = [
        cell_of({("whorl", PAST[mode]): inside, ("whorl", mode): worst}, shape=shape, layout=layout)
        for layout, worst in (("half", inside), ("interleaved", past))
    ]
    named = [t.name for t in check_targets(cells) if "past its table" in t.name]
    assert len(named) == 6  # two shapes in three dtypes, of this rotation only
    found = target(f"{name} float32 {title}, time past its table / inside it", *cells)
    assert found.limit == f"<= {limit:g}"
    assert found.measured == pytest.approx(past / inside)
    assert found.ok is ok
    assert not compare_with_peers(cells[0])  # peers have no such form
    fastest = cells[0].find_fastest("whorl")
    assert fastest == (("inplace", inside) if mode == "past" else None)


@pytest.mark.parametrize(
    ("start", "shape", "mode", "peer", "limit"),
    [
        ("prefill-4096 float32 in place", None, "inplace", "hf", 15),
        ("prefill-4096 float32 in place", None, "inplace", "hf-compiled", 5),
        ("prefill-512 float32 in place", SHORT, "inplace", "hf", 5),
        ("decode float32 in place", DECODE, "inplace", "hf", 2.5),
        ("decode float32 fresh", DECODE, "fresh", "hf", 2.5),
        ("training float32 fwd + bwd", TRAINING, "training", "hf", 4),
    ],
)
@pytest.mark.parametrize("ok", [True, False])
def test_speed_targets(
    start: str, shape: Shape | None, mode: str, peer: str, limit: float, ok: bool
) -> None:
    theirs = limit * (1.01 if ok else 0.99)
    peer_mode = "training" if mode == "training" else "fresh"
    cell = cell_of({("whorl", mode): 1.0, (peer, peer_mode): theirs}, shape=shape)
    found = target(f"{start}, times faster than {TITLES[peer]}", cell)
    assert found.limit == f">= {limit:g}"
    assert found.measured == pytest.approx(theirs)
    assert found.ok is ok


def test_unmeasured_and_multithreaded_cells_decide_nothing() -> None:
    cell = cell_of(
        {("copy", "out"): 1.0, ("whorl", "inplace"): 9.0, ("hf", "fresh"): 1.0}, threads=2
    )
    assert all(t.measured is None and t.ok is None for t in check_targets([cell]))
    assert len(check_targets([])) == len(check_targets([cell]))
    assert find_losses([cell])  # a loss on many threads is still told


@pytest.mark.parametrize(("theirs", "count"), [(2.0, 0), (0.5, 1)])
def test_no_comparison_may_be_lost(theirs: float, count: int) -> None:
    cell = cell_of({("whorl", "fresh"): 1.0, ("hf", "fresh"): theirs})
    found = target("comparisons lost beyond noise", cell)
    assert (found.measured, found.ok) == (count, count == 0)


def test_bound_once_is_set_against_bound_once_only() -> None:
    ours = {("whorl", "inplace"): 8e-6, ("whorl", "bound"): 5e-6}
    cell = cell_of({**ours, ("ort", "out"): 9e-6, ("ort", "bound"): 4e-6})
    found = {(c.mode, c.peer_mode): c.ratio for c in compare_with_peers(cell)}
    assert found == {
        ("inplace", "out"): pytest.approx(8 / 9),
        ("bound", "bound"): pytest.approx(5 / 4),
    }
