"""The benchmark of attention: contestants are checked, targets judged, runs kept; no times."""

import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from whorl._support import memory
from whorl.bench.attention import (
    Cell,
    CellResult,
    Plan,
    Report,
    Result,
    check_targets,
    decode,
    linear,
    oracle,
    peak,
    run,
    runner,
    softmax,
)
from whorl.bench.contestants import Contestant, time_alternately
from whorl.bench.measure import Timing

TINY = Plan(
    causal=(40,),
    training=(40,),
    linear=(70,),
    memory=(),
    doubling=(33, 66),
    recurrent=(5, 9),
    streaming=(3, 60),
    stepped=(20,),
    compiled=(),
    window=16,
    run=3,
    repeats=2,
    sample_seconds=0.0,
)


def cell(kind: Any, length: int, values: dict[str, float], threads: int = 1) -> CellResult:
    """Made-up medians, or bytes for memory."""
    results = []
    for name, value in values.items():
        timing = Timing(value, value, value, value, 3, 1)
        memory = kind == "memory"
        results.append(Result(name, None, int(value)) if memory else Result(name, timing))
    lengths = tuple(int(name) for name in values if name.isdecimal())
    return CellResult(Cell(kind, threads, length, lengths), tuple(results))


@pytest.fixture(scope="module")
def report() -> Report:
    return run(TINY)


def test_every_contestant_is_right_and_timed(report: Report) -> None:
    assert report.complete
    assert [c.cell for c in report.cells] == TINY.list_cells()
    found = {c.cell.kind: [r.name for r in c.results] for c in report.cells}
    assert found == {
        "causal": ["sdpa", "alibi", "alibi-padded", "t5", "matrix", "matrix-ready", "naive"],
        "training": ["sdpa", "t5", "kerple", "matrix"],
        "linear": ["sdpa", "elu", "relu", "cosine"],
        "doubling": ["33", "66"],
        "recurrent": ["5", "9"],
        "streaming": ["3", "60", "recomputed", "rotated"],
        "stepped": ["fixed", "follows-stepped", "follows-exact"],
    }
    assert [r.problem for c in report.cells for r in c.results if r.problem] == []
    assert all(r.timing is not None for c in report.cells for r in c.results)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_flex_attention_is_right() -> None:
    plan = dataclasses.replace(TINY, causal=(40,), compiled=(40,))
    (result,) = [
        r for r in runner.measure_cell(plan.list_cells()[0], plan).results if r.name == "flex"
    ]
    assert result.timing is not None, result.problem


@pytest.mark.parametrize("kind", ["causal", "training", "linear", "streaming", "stepped"])
def test_a_wrong_contestant_is_reported_and_not_timed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, real_linear = whorl.attention, whorl.linear_attention

    def one_key_too_few(q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
        v = torch.cat((torch.zeros_like(v[:, :, :1]), v[:, :, 1:]), 2)
        return real(q, k, v, *rest, **options)

    def not_causal(*rest: Any, **options: Any) -> Any:
        return real_linear(*rest, **{**options, "causal": False})

    monkeypatch.setattr(softmax, "attention", one_key_too_few)
    monkeypatch.setattr(decode, "attention", one_key_too_few)
    monkeypatch.setattr(linear, "linear_attention", not_causal)
    (found,) = [c for c in TINY.list_cells() if c.kind == kind]
    results = {r.name: r for r in runner.measure_cell(found, TINY).results}
    ours = {
        "causal": ("alibi", "alibi-padded", "t5"),
        "training": ("t5", "kerple"),
        "linear": ("elu", "relu", "cosine"),
    }
    names = ours.get(kind, [n for n in results if n != "rotated"])
    for name, result in results.items():
        assert (result.problem is not None) == (name in names), name
        assert (result.timing is None) == (name in names), name
    assert all("is off by" in str(results[name].problem) for name in names)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (torch.full((1, 2), torch.nan), "it is off by nan, more than"),
        (torch.tensor([[1.0, 2.001]]), "it is off by 0.001, more than 1.5e-05"),
        (torch.ones(1, 2).double(), r"it is torch.float64 \[1, 2\], not float32 \[1, 2\]"),
        (torch.ones(2), r"it is torch.float32 \[2\], not float32 \[1, 2\]"),
    ],
)
def test_what_is_wrong_with_a_result(found: torch.Tensor, message: str) -> None:
    expected = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    assert oracle.describe_difference(expected.float(), expected) is None
    problem = oracle.describe_difference(found, expected, "it")
    assert problem is not None
    assert re.match(message, problem), problem


def test_oracles_agree_with_attention_in_float64() -> None:
    q, k, v = (x.double() for x in oracle.make_inputs(50))
    rope, alibi, rows = whorl.RoPE(64), whorl.ALiBi(8), oracle.choose_rows(50)
    assert rows[0] == 0
    assert rows[-1] == 49
    wanted = whorl.attention(q, k, v, alibi, causal=True)[:, :, rows]
    torch.testing.assert_close(oracle.compute_softmax(q, k, v, rows, alibi), wanted)
    wanted = whorl.attention(q, k, v, rope, causal=True)[:, :, -1:]
    torch.testing.assert_close(oracle.compute_decode(q[:, :, -1:], k, v), wanted)
    for feature_map in ("elu", "cosine"):
        wanted = whorl.linear_attention(q, k, v, rope, causal=True, feature_map=feature_map)
        found = oracle.compute_linear(q, k, v, rows, feature_map)
        torch.testing.assert_close(found, wanted[:, :, rows])


def test_alibi_as_a_matrix() -> None:
    bias = softmax.build_alibi_matrix(300)
    at = torch.arange(300)
    wanted = whorl.ALiBi(8).distance_bias(at[:, None] - at)
    assert wanted is not None
    seen = at[:, None] >= at
    torch.testing.assert_close(bias[0][:, seen], wanted[:, seen].float())
    assert bool((bias[0][:, ~seen] == -torch.inf).all())
    assert bias.nbytes == softmax.count_matrix_bytes(300)


def test_a_failing_contestant_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setitem(softmax.FORWARD, "matrix", fails)
    found = runner.measure_cell(TINY.list_cells()[0], TINY)
    (result,) = [r for r in found.results if r.name == "matrix"]
    assert result.problem == "RuntimeError: no compiler"
    assert found.get_value("naive") is not None


def test_peak_memory_sees_what_is_freed_again() -> None:
    """In a process of its own: here, memory that earlier tests freed would be used again."""
    code = (
        "import torch; from whorl.bench.attention.peak import measure_growth;"
        " print(measure_growth(lambda: torch.ones(1)),"
        " measure_growth(lambda: torch.ones(40_000_000).sum()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    little, much = map(int, done.stdout.split())
    assert little < 20e6
    assert 150e6 < much < 200e6  # 160 MB


def test_peak_memory_in_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = peak.measure_peak("matrix", Cell("memory", 1, 1024))
    assert softmax.count_matrix_bytes(1024) <= matrix < 3 * softmax.count_matrix_bytes(1024)
    with pytest.raises(RuntimeError, match="KeyError: 'nobody'"):
        peak.measure_peak("nobody", Cell("memory", 1, 64))
    monkeypatch.setattr(memory, "read_available", lambda: 10**9)
    found = runner._measure_memory("matrix", Cell("memory", 1, 16384))
    assert found.problem == "MemoryError: needs 11 GB, and 1 GB are free"


def target(name: str, *cells: CellResult) -> tuple[float | None, bool | None]:
    (found,) = [t for t in check_targets(cells) if t.name == name]
    return found.measured, found.ok


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "biased forward at 4096, time / SDPA without bias",
            cell("causal", 4096, {"sdpa": 1.0, "alibi": 1.0, "t5": 1.19}),
            cell("causal", 4096, {"sdpa": 1.0, "alibi": 1.0, "t5": 1.21}),
        ),
        (
            "biased forward at 16384, time / SDPA without bias",
            cell("causal", 16384, {"sdpa": 1.0, "alibi": 1.19}),
            cell("causal", 16384, {"sdpa": 1.0, "alibi": 1.21}),
        ),
        (
            "biased forward at 16384, MB beyond SDPA without bias",
            cell("memory", 16384, {"sdpa": 40e6, "alibi": 103e6}),
            cell("memory", 16384, {"sdpa": 40e6, "alibi": 90e6, "t5": 105e6}),
        ),
        (
            "ALiBi at 4096, times faster than a bias as a matrix",
            cell("causal", 4096, {"alibi": 1.0, "matrix": 3.1}),
            cell("causal", 4096, {"alibi": 1.0, "matrix": 2.9}),
        ),
        (
            "ALiBi at 4096, times faster than a matrix made before",
            cell("causal", 4096, {"alibi": 1.0, "matrix-ready": 3.1}),
            cell("causal", 4096, {"alibi": 1.0, "matrix-ready": 2.9}),
        ),
        (
            "ALiBi at 4096, times faster than flex_attention compiled",
            cell("causal", 4096, {"alibi": 1.0, "flex": 1.1}),
            cell("causal", 4096, {"alibi": 1.0, "flex": 0.9}),
        ),
        (
            "trained bias at 4096, fwd + bwd, time / SDPA without",
            cell("training", 4096, {"sdpa": 1.0, "t5": 2.4, "kerple": 2.4}),
            cell("training", 4096, {"sdpa": 1.0, "t5": 2.4, "kerple": 2.6}),
        ),
        (
            "linear attention, 2n / n from 8k to 64k",
            cell("doubling", 32768, {"4096": 0.1, "8192": 1.0, "16384": 2.1, "32768": 4.2}),
            cell("doubling", 32768, {"8192": 1.0, "16384": 2.0, "32768": 4.5}),
        ),
        (
            "linear attention from 2048 on, times faster than SDPA",
            cell("linear", 2048, {"sdpa": 1.0, "elu": 0.9, "cosine": 0.5}),
            cell("linear", 2048, {"sdpa": 1.0, "elu": 0.9, "cosine": 1.1}),
        ),
        (
            "recurrent decode from 1k to 64k, slowest / fastest",
            cell("recurrent", 65536, {"1024": 1.0, "8192": 1.19, "65536": 1.0}),
            cell("recurrent", 65536, {"1024": 1.0, "8192": 1.21, "65536": 1.0}),
        ),
        (
            "streaming decode from 1k to 64k, slowest / fastest",
            cell("streaming", 65536, {"1024": 1.0, "65536": 1.19, "recomputed": 9.0}),
            cell("streaming", 65536, {"1024": 1.3, "65536": 1.0, "recomputed": 9.0}),
        ),
        (
            "streaming decode, times faster than the window recomputed",
            cell("streaming", 65536, {"1024": 1.0, "65536": 1.5, "recomputed": 31.0}),
            cell("streaming", 65536, {"1024": 1.0, "65536": 1.5, "recomputed": 29.0}),
        ),
        (
            "stepped frequencies, time / fixed ones",
            cell("stepped", 4096, {"fixed": 1.0, "follows-stepped": 1.19, "follows-exact": 5.0}),
            cell("stepped", 4096, {"fixed": 1.0, "follows-stepped": 1.21}),
        ),
    ],
)
def test_each_target_can_be_reached_and_missed(name: str, good: Any, bad: Any) -> None:
    assert target(name, good)[1] is True
    assert target(name, bad)[1] is False
    assert target(name) == (None, None)
    for made in (good, bad):  # targets are for one thread
        many = dataclasses.replace(made, cell=dataclasses.replace(made.cell, threads=2))
        assert target(name, many) == (None, None)


def test_every_target_is_tried_above() -> None:
    (mark,) = test_each_target_can_be_reached_and_missed.pytestmark
    assert [t.name for t in check_targets([])] == [row[0] for row in mark.args[1]]


def test_short_calls_decide_nothing() -> None:
    made = [
        cell("linear", 1024, {"sdpa": 1.0, "elu": 9.0}),
        cell("doubling", 4096, {"2048": 1.0, "4096": 9.0}),
        cell("recurrent", 8192, {"1024": 1.0, "8192": 9.0}),
    ]
    assert all(t.ok is None for t in check_targets(made))


def test_contestants_that_grow_are_called_equally_often() -> None:
    calls: list[str] = []
    slow = Contestant("slow", lambda: calls.append("slow"), lambda: None, 7)
    fast = Contestant("fast", lambda: calls.append("fast"), lambda: None)
    timings = time_alternately([slow, fast], 3)
    assert calls == ["slow", "fast", "fast", "slow", "slow", "fast", "fast", "slow"]
    assert [(t.samples, t.loops) for t in timings] == [(3, 7), (3, 1)]


def test_short_calls_are_timed_in_more_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def call() -> None:
        clock[0] += 0.25

    monkeypatch.setattr("whorl.bench.contestants.time.perf_counter", lambda: clock[0])
    both = [Contestant(name, call, lambda: None) for name in ("a", "b")]
    assert [t.samples for t in time_alternately(both, 3, least_seconds=1.0)] == [3, 3]
    assert [t.samples for t in time_alternately(both, 3, least_seconds=4.0)] == [8, 8]
    assert time_alternately([], 3, least_seconds=4.0) == []


def test_each_sample_of_stepped_frequencies_has_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = dataclasses.replace(TINY, stepped=(64,))
    (found,) = [c for c in plan.list_cells() if c.kind == "stepped"]
    made = dict(decode.build_stepped(found, plan))["follows-stepped"]()
    assert made.units == 4
    assert made.find_problem() is None
    turned: list[object] = []
    real = whorl.KVCache._update_frequencies

    def update(cache: Any, tokens: Any) -> None:
        before = list(cache._context)
        real(cache, tokens)
        turned.append(before != cache._context)

    monkeypatch.setattr(whorl.KVCache, "_update_frequencies", update)
    for sample in range(1, 6):
        made.call()
        assert sum(map(bool, turned)) == sample


def test_a_report_is_read_back_and_shown(report: Report, tmp_path: Path) -> None:
    rich = pytest.importorskip("rich.console")
    extra = CellResult(
        Cell("memory", 1, 16384),
        (Result("sdpa", peak=33_000_000), Result("matrix", problem="MemoryError: too much")),
    )
    whole = report.add_cell(extra).with_command("whorl bench attention")
    whole.save(tmp_path / "new" / "r.json")
    assert Report.load(tmp_path / "new" / "r.json") == whole
    text = whole.render_markdown()
    for words in (
        "8 heads of 64, batch 1, float32. Command: `whorl bench attention`.",
        "**Causal, forward: multiples of SDPA without bias, 1 thread**",
        "| SDPA, no bias | 33 MB | 1.00 |",
        "| 66 tokens |",
        "| window recomputed |",
        "| memory/16384/1 | SDPA, bias as a matrix | MemoryError: too much |",
        "Targets reached on one thread: ",
    ):
        assert words in text
    console = rich.Console(width=80, file=io.StringIO())
    for part in whole.build_terminal_tables():
        console.print(part)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "Frequencies that follow the length, time for one token after 20 tokens" in shown
    assert "…" not in shown


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 1, and this benchmark reads 'attention 1'; run"):
        Report.from_dict({"format": 1})


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dataclasses.replace(TINY, training=(), streaming=(), stepped=(), recurrent=())
    measured: list[str] = []

    def made_up(found: Cell, _: Plan) -> CellResult:
        measured.append(found.key)
        return CellResult(found, (Result("sdpa", Timing(1.0, 1.0, 1.0, 1.0, 1, 1)),))

    def interrupt(done: int, total: int, label: str) -> None:
        if done == 1:
            assert (total, label) == (3, "linear 70, 1 thread")
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "measure_cell", made_up)
    sink = tmp_path / "r.json"
    part = run(plan, progress=interrupt, sink=sink)
    assert not part.complete
    assert "The run was not finished." in part.render_markdown()
    assert Report.load(sink) == part
    assert run(plan, sink=sink, resume=sink).complete
    assert measured == [c.key for c in plan.list_cells()]
    run(dataclasses.replace(plan, repeats=9), resume=sink)  # other effort: all anew
    assert measured == 2 * [c.key for c in plan.list_cells()]
    assert run(plan, resume=tmp_path / "absent.json").complete


def test_plans() -> None:
    assert {c.kind for c in Plan.quick().list_cells()} == {c.kind for c in Plan.full().list_cells()}
    assert {16384, 4096} <= {c.length for c in Plan.full().list_cells() if c.kind == "causal"}
    both = TINY.select(threads=[1, 2]).list_cells()
    assert [c.key for c in both[-3:]] == ["causal/40/2", "training/40/2", "linear/70/2"]
    assert len(both) == len(TINY.list_cells()) + 3
    assert [Cell.from_dict(c.to_dict()) for c in both] == both
    with pytest.raises(ValueError, match="at least 1, and sample_seconds at least 0; got Plan"):
        Plan(repeats=0)
    with pytest.raises(ValueError, match=r"compares with PyTorch alone.*; leave peers out"):
        TINY.select(peers=["hf"])


Whorl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(bench: Whorl, monkeypatch: pytest.MonkeyPatch) -> Whorl:
    small = dataclasses.replace(TINY, training=(), streaming=(), stepped=(), recurrent=())
    monkeypatch.setattr(Plan, "quick", lambda: small)
    return bench


def test_the_command_measures_attention(command: Whorl, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    code, text, error = command("attention", "--json", "--out", str(out))
    assert (code, error) == (0, "")
    assert json.loads(text) == json.loads(out.read_text())
    assert [c["key"] for c in json.loads(text)["cells"]] == [
        "causal/40/1",
        "linear/70/1",
        "doubling/66/1",
    ]
    assert command("attention", "--resume", "--out", str(out))[0] == 0
    code, _, error = command("rotation", "--resume", "--out", str(out))
    assert code == 2
    assert "is not a report of whorl bench" in error


@pytest.mark.parametrize("option", ["--peers", "--chart"])
def test_options_of_the_rotation_are_refused(command: Whorl, option: str) -> None:
    line = f"error: {option} is for whorl bench rotation; leave it out for attention.\n"
    assert command("attention", option, "a.png") == (2, "", line)


def test_an_unknown_benchmark(command: Whorl) -> None:
    code, _, error = command("attenton")
    assert code == 2
    assert "attenton" in error
