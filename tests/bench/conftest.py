"""Tiny plans and made-up cells for the benchmark's tests; nothing here asserts a time."""

from collections.abc import Callable

import pytest

from whorl.bench import Cell, Plan, Shape
from whorl.bench.measure import Timing
from whorl.bench.rotation.results import CellResult, Result

from .shapes import PREFILL, TRAINING


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are timed without a garbage collection first, which takes long among many modules."""
    monkeypatch.setattr("whorl.bench.measure.gc.collect", lambda *_: 0)


@pytest.fixture
def tiny_plan() -> Plan:
    return Plan(
        shapes=(PREFILL, TRAINING),
        dtypes=("float32",),
        layouts=("half",),
        peers=("hf", "meta"),
        repeats=2,
        sample_seconds=0.0,
        accuracy=False,
    )


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """``bench("training", "--json")`` -> exit code, standard output, standard error."""
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from whorl.cli import main

    def call(*args: str) -> tuple[int, str, str]:
        code = main(["bench", *args])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def make_cell() -> Callable[..., CellResult]:
    return cell_of


def cell_of(
    seconds: dict[tuple[str, str], float],
    *,
    shape: Shape | None = None,
    dtype: str = "float32",
    layout: str = "half",
    threads: int = 1,
) -> CellResult:
    """A cell with made-up medians, by contestant and mode."""
    results = tuple(
        Result(name, mode, Timing(value, value, value, value, 3, 1))
        for (name, mode), value in seconds.items()
    )
    shape = shape or Shape("prefill", 1, 32, 8, 4096, 128)
    return CellResult(Cell(shape, dtype, layout, threads), results)
