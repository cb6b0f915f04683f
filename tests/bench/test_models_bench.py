"""The benchmark of models: both are compared first, targets judged, runs kept; no times."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from whorl.bench.measure import Timing
from whorl.bench.models import (
    Cell,
    CellResult,
    Plan,
    Report,
    Result,
    check_targets,
    contestants,
    process,
    run,
    runner,
)
from whorl.bench.models.plan import Work
from whorl.bench.models.process import ModelProcess

SMALL = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1}
SIZES = {
    "bloom": {"hidden_size": 24, "n_head": 2, "n_layer": 1},
    "mpt": {"d_model": 24, "n_heads": 2, "n_layers": 1, "max_seq_len": 64},
    "t5": {"d_model": 24, "num_heads": 2, "num_layers": 1, "d_ff": 24},
    "deberta-v2": {**SMALL, "intermediate_size": 24, "relative_attention": True},
    "llama": {**SMALL, "intermediate_size": 24},
}


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "_SIZES", SIZES)
    # Copies of this process, which know the small sizes; with one thread that is safe.
    monkeypatch.setattr(process, "_METHOD", "fork")


def test_every_cell_is_measured(tmp_path: Path) -> None:
    works: tuple[Work, ...] = ("prefill", "decode", "training")
    plan = Plan(lengths=(12,), works=works, repeats=1, least_seconds=0.0, starts=1)
    report = run(plan, sink=tmp_path / "r.json")
    assert report.complete
    assert [cell.cell for cell in report.cells] == plan.list_cells()
    assert len(report.cells) == 5 * 2 + 3 + 1
    assert [r.problem for cell in report.cells for r in cell.results if r.problem] == []
    assert all(cell.gain for cell in report.cells)
    bounded = {cell.cell.key for cell in report.cells if cell.most}
    assert bounded == {
        c.key for c in plan.list_cells() if c.model != "llama" and c.work != "decode"
    }
    assert Report.load(tmp_path / "r.json") == report


def test_plans() -> None:
    assert {cell.model for cell in Plan().list_cells()} == set(SIZES)
    assert [c.key for c in Plan().list_cells() if c.work == "memory"] == ["bloom/memory/1x8192/1"]
    quick = Plan.quick().list_cells()
    assert {cell.work for cell in quick} == {"prefill", "decode"}
    assert max(cell.length for cell in quick) == 1024
    with pytest.raises(ValueError, match="lengths, threads, repeats and starts must be at"):
        Plan(lengths=(0,))
    with pytest.raises(ValueError, match="lengths, threads, repeats and starts must be at"):
        Plan(starts=0)
    with pytest.raises(ValueError, match="peers cannot be selected: a model is compared with its"):
        Plan().select(peers=["hf"])
    some = Plan().select(threads=[1], shapes=["t5/prefill/1x512", "llama/decode"]).list_cells()
    assert [c.key for c in some][:2] == ["t5/prefill/1x512/1", "llama/decode/1x512/1"]
    assert len(some) == 5
    with pytest.raises(ValueError, match=r"shapes must begin keys of cells.*; got 'gpt2'"):
        Plan().select(shapes=["gpt2"])


def test_a_model_that_differs_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(name: str, cell: Cell) -> object:
        return (lambda: torch.full((2,), 1.001 if name == "installed" else 1.0)), 1

    monkeypatch.setattr(contestants, "build_call", build)
    cell = runner.measure_cell(
        Cell("bloom", "prefill", 12, 1, 1), Plan(repeats=1, least_seconds=0.0)
    )
    assert cell.gain is None
    (wrong,) = [result for result in cell.results if result.problem]
    assert (wrong.name, wrong.problem) == ("installed", "differs from transformers by 1.0e-03")


def test_a_model_without_positions_is_timed_without_being_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed: list[object] = []

    def install(model: object, encoding: object) -> None:
        installed.append(encoding)

    monkeypatch.setattr("whorl.hf.install", install)
    cell = Cell("t5", "prefill", 12, 1, 1)
    for name in cell.contestants:
        contestants.build_call(name, cell)
    assert [type(encoding).__name__ for encoding in installed] == ["NoneType", "NoPE"]
    monkeypatch.setattr(contestants, "ModelProcess", InThisProcess)
    monkeypatch.setattr(
        contestants,
        "build_call",
        lambda name, cell: (lambda: torch.full((2,), 7.0 if name == "bound" else 1.0), 1),
    )
    found = runner.measure_cell(cell, Plan(repeats=1, least_seconds=0.0, starts=1))
    assert [(r.title, r.problem) for r in found.results] == [
        ("transformers", None),
        ("with whorl", None),
        ("without positions", None),
    ]


def test_both_models_are_started_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start has its share of the rounds; a model that is wrong in one of them has no time."""
    started: list[str] = []
    failing = -1

    def build(name: str, cell: Cell) -> object:
        started.append(name)
        if len(started) - 1 == failing:
            raise ValueError("no memory")
        return (lambda: torch.ones(2)), 1

    monkeypatch.setattr(contestants, "ModelProcess", InThisProcess)
    monkeypatch.setattr(contestants, "build_call", build)
    cell, plan = Cell("llama", "prefill", 12, 1, 1), Plan(repeats=5, least_seconds=0.0, starts=3)
    found = runner.measure_cell(cell, plan)
    assert started == ["stock", "installed"] * 3
    assert [r.timing.samples for r in found.results if r.timing] == [6, 6]  # 2 for each start
    started.clear()
    failing = 3
    found = runner.measure_cell(cell, plan)
    assert started == ["stock", "installed"] * 2
    assert [(r.name, r.problem) for r in found.results if r.problem] == [
        ("installed", "ValueError: no memory")
    ]
    assert found.gain is None


class InThisProcess:
    """Stands for ``ModelProcess`` where a process of its own is not what is tested."""

    def __init__(self, build: Callable[[], tuple[Callable[[], torch.Tensor], int]], threads: int):
        self.compute, self.units = build()
        self.run = self.compute

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_a_model_runs_in_a_process_of_its_own() -> None:
    calls: list[int] = []

    def build() -> tuple[Callable[[], torch.Tensor], int]:
        def call() -> torch.Tensor:
            calls.append(os.getpid())
            return torch.tensor([len(calls), *calls], dtype=torch.float64)

        return call, 7

    with ModelProcess(build, 1) as model:
        assert model.units == 7
        model.run()
        count, *pids = model.compute().tolist()
    assert calls == []
    assert count == 2
    assert pids[0] == pids[1] != os.getpid()


def test_what_goes_wrong_in_the_process_is_said() -> None:
    def fail() -> tuple[Callable[[], torch.Tensor], int]:
        raise ValueError("no such model")

    with pytest.raises(RuntimeError, match=r"^ValueError: no such model$"), ModelProcess(fail, 1):
        pass
    end = partial(os._exit, 3)
    with (
        pytest.raises(RuntimeError, match="the process of the model ended with exit code 3"),
        ModelProcess(lambda: (end, 1), 1) as model,
    ):
        model.run()


def measured(model: str, work: str, length: int, stock: float, ours: float) -> CellResult:
    cell = Cell(model, work, length, 1, 1)  # type: ignore[arg-type]
    if work == "memory":
        results = [Result("stock", peak=int(stock)), Result("installed", peak=int(ours))]
    else:
        times = [Timing(seconds, seconds, seconds, seconds, 5, 1) for seconds in (stock, ours)]
        results = [Result("stock", times[0]), Result("installed", times[1])]
    return CellResult(cell, tuple(results))


@pytest.mark.parametrize(("gain", "ok"), [(1.31, True), (1.29, False)])
def test_targets(gain: float, ok: bool) -> None:
    cells = [measured("bloom", "prefill", 1024, gain, 1.0)]
    (found,) = [target for target in check_targets(cells) if target.ok is not None]
    assert (found.name, found.limit) == ("BLOOM, prefill, 1 x 1024 tokens", ">= 1.3")
    assert found.ok is ok


def test_a_report_is_shown() -> None:
    cells = (
        measured("t5", "prefill", 512, 0.3, 0.2),
        measured("bloom", "memory", 8192, 12e9, 1e9),
    )
    environment = {"cpu": "CPU", "cores": 2, "date": "2026-11-17", "torch": "2", "kernel": "c"}
    environment |= {"peers": {}, "command": "whorl bench models"}
    report = Report(environment, {"repeats": 5}, cells)
    text = report.render_markdown()
    for words in (
        "Two layers of width 768 with 12 heads, float32, no head. Command: `whorl bench models`.",
        "**All tokens at once, 1 thread**",
        "| T5 encoder, 1 x 512 | 300 ms | 200 ms | 1.50 |",
        "| BLOOM, 1 x 8192 | 12,000 MB | 1,000 MB | 12.0 |",
        "| BLOOM, memory of transformers / with whorl | >= 10 | 12 | reached |",
        "Targets reached on one thread: 2 of 2 measured.",
    ):
        assert words in text
    assert Report.from_dict(report.to_dict()) == report
    assert "without positions" not in text
    timed = Timing(0.1, 0.1, 0.1, 0.1, 5, 1)
    bounded = CellResult(cells[0].cell, (*cells[0].results, Result("bound", timed)))
    text = Report(environment, {"repeats": 5}, (bounded, cells[1])).render_markdown()
    assert "| transformers / with whorl | transformers / without positions |" in text
    assert "| T5 encoder, 1 x 512 | 300 ms | 200 ms | 1.50 | 3.00 |" in text


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "__name__", "no_such_module")
    broken = runner._measure_memory("stock", Cell("bloom", "memory", 16, 1, 1))
    assert broken.problem is not None
    assert "no_such_module" in broken.problem
