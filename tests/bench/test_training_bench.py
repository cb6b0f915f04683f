"""The benchmark of training: models are checked, targets judged, runs kept; no times."""

import dataclasses
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whorl.bench.contestants import Contestant
from whorl.bench.measure import Timing
from whorl.bench.training import (
    Cell,
    CellResult,
    Plan,
    Report,
    Result,
    check_targets,
    contestants,
    run,
    runner,
)
from whorl.bench.training.baseline import Baseline
from whorl.bench.training.contestants import (
    Trainer,
    build_model,
    count_parameters,
    find_model_problem,
)
from whorl.bench.training.plan import BASELINE

Shape = tuple[int, int, int, int, int]

SMALL = (2, 48, 2, 12, 2)
TINY = Plan(shapes=(SMALL,), repeats=2, sample_seconds=0.0)
CELL = TINY.list_cells()[0]


def cell(shape: Shape, values: dict[str, float], threads: int = 1) -> Any:
    """Made-up medians."""
    results = [Result(n, Timing(v, v, v, v, 3, 1), 1000, 10) for n, v in values.items()]
    return CellResult(Cell(*shape, threads), tuple(results))


@pytest.fixture(scope="module")
def report() -> Report:
    return run(TINY)


def test_every_model_is_right_and_timed(report: Report) -> None:
    assert report.complete
    assert [c.cell for c in report.cells] == TINY.list_cells()
    (found,) = report.cells
    assert [r.name for r in found.results] == [
        "baseline", "nope", "rope", "alibi", "t5", "learned", "kerple", "xpos", "deberta",
    ]  # fmt: skip
    assert [r.problem for r in found.results if r.problem] == []
    assert all(r.timing is not None for r in found.results)
    assert all(found.compute_speed(r.name) for r in found.results)
    assert found.compute_ratio(BASELINE) == 1.0


@pytest.mark.parametrize("shape", Plan().shapes)
def test_models_are_equally_large_without_their_positions(shape: Shape) -> None:
    cell = Cell(*shape, 1)
    theirs, positions = count_parameters(BASELINE, cell)
    assert positions == cell.length * cell.width
    assert count_parameters("rope", cell)[1] == 0
    assert count_parameters("learned", cell)[1] == positions
    assert count_parameters("rope", cell)[0] == pytest.approx(theirs - positions, rel=0.02)
    with torch.device("meta"):
        assert count_parameters("t5", cell)[0] == sum(
            w.numel() for w in build_model("t5", cell).parameters()
        )


def test_the_baseline_by_hand() -> None:
    """One layer written out in float64, from the formulas of the file."""
    cell = Cell(1, 12, 3, 5, 2, 1)
    model = Baseline(cell).double()
    model.reset_parameters(1)
    weights = {name: 10 * weight.detach() for name, weight in model.named_parameters()}
    model.load_state_dict(weights)
    tokens = torch.randint(256, (2, 5), generator=torch.Generator().manual_seed(0))

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights[name]

    x = weights["embedding.weight"][tokens] + weights["positions.weight"]
    qkv = norm(x, "blocks.0.attention_norm.weight") @ weights["blocks.0.qkv.weight"].T
    mixed = torch.zeros_like(x)
    for head in range(3):
        at = slice(4 * head, 4 * head + 4)
        q, k, v = (part[..., at] for part in qkv.split(12, dim=-1))
        scores = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        mixed[..., at] = scores.softmax(-1) @ v
    x = x + mixed @ weights["blocks.0.out.weight"].T
    inner = norm(x, "blocks.0.mlp_norm.weight") @ weights["blocks.0.up.weight"].T
    inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    x = x + inner @ weights["blocks.0.down.weight"].T
    wanted = norm(x, "norm.weight") @ weights["head.weight"].T
    torch.testing.assert_close(model(tokens), wanted, rtol=1e-12, atol=1e-12)
    chances = wanted.softmax(-1).gather(-1, tokens[..., None])
    torch.testing.assert_close(model.loss(tokens, tokens), -chances.log().mean())


def test_a_step_is_that_of_adamw_with_clipping() -> None:
    """Against two steps by hand: clipped gradients, decay of matrices only."""
    trainer = Trainer(build_model(BASELINE, CELL), CELL)
    name, decay = "blocks.0.up.weight", 1 - 1e-3 * 0.1
    weight = dict(trainer.model.named_parameters())[name]
    wanted = weight.detach().clone()
    first, second = torch.zeros_like(wanted), torch.zeros_like(wanted)
    for step in (1, 2):
        grads = torch.autograd.grad(trainer.loss(), trainer.weights)
        total = torch.stack([g.norm() for g in grads]).norm()
        at = next(n for n, w in enumerate(trainer.weights) if w is weight)
        grad = grads[at] * min(1.0, float(1 / (total + 1e-6)))
        first = 0.9 * first + 0.1 * grad
        second = 0.95 * second + 0.05 * grad**2
        moved = first / (1 - 0.9**step) / ((second / (1 - 0.95**step)).sqrt() + 1e-8)
        wanted = wanted * decay - 1e-3 * moved
        trainer.step()
        torch.testing.assert_close(weight.detach(), wanted, rtol=1e-4, atol=1e-6)
    assert all(w.grad is None for w in trainer.weights)


class Broken(Baseline):
    """The baseline with something wrong."""

    def __init__(self, cell: Cell, fault: str) -> None:
        super().__init__(cell)
        self.fault = fault
        if fault == "unused":
            self.spare = nn.Parameter(torch.ones(3))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.fault == "late":
            tokens = tokens.roll(1, dims=1) * (torch.arange(tokens.shape[1]) > 0)
        logits = super().forward(tokens)
        if self.fault == "future":
            logits = logits + 0.1 * logits.flip(1)
        return logits * 100 if self.fault == "loud" else logits

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        found = super().loss(tokens, targets)
        if self.fault == "infinite":
            weight = self.norm.weight[0]
            return found + (weight - 1).abs().sqrt()  # 0, of infinite slope
        return found


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("late", "the last logits do not depend on the last token"),
        ("future", "logits depend on a token that comes after them"),
        ("loud", "starts with a loss of "),
        ("unused", "the gradient of spare is none"),
        ("infinite", "the gradient of norm.weight is not finite"),
        ("frozen", "does not learn: the loss went from "),
        ("none", None),
    ],
)
def test_a_wrong_model_is_found(fault: str, message: str | None) -> None:
    trainer = Trainer(Broken(CELL, fault), CELL)
    if fault == "frozen":
        trainer.optimizer.param_groups[0]["lr"] = trainer.optimizer.param_groups[1]["lr"] = 0.0
    problem = find_model_problem(trainer, CELL)
    if message is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem.startswith(message)


def test_a_model_of_another_size_and_one_that_fails_are_reported_and_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = contestants.build_model

    def other(name: str, cell: Cell) -> Any:
        if name == "t5":
            raise RuntimeError("no such thing\nand a long story")
        return real(name, dataclasses.replace(cell, layers=3) if name == "rope" else cell)

    monkeypatch.setattr(contestants, "build_model", other)
    found = {r.name: r for r in runner.measure_cell(CELL, TINY).results}
    more = r"has 1\.\d+ times the parameters of the baseline without those of positions"
    assert re.fullmatch(more, str(found["rope"].problem))
    assert found["t5"].problem == "RuntimeError: no such thing"
    assert found["rope"].timing is found["t5"].timing is None
    assert found["alibi"].problem is None


def test_an_unknown_encoding_is_a_result() -> None:
    plan = dataclasses.replace(TINY, encodings=("ropr",))
    found = runner.measure_cell(CELL, plan).results
    assert str(found[1].problem).startswith("ValueError: model.encoding: 'ropr' is unknown")


def test_timing_leaves_threads_and_random_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    made = Contestant("baseline", lambda: seen.append(torch.get_num_threads()), lambda: None)
    monkeypatch.setattr(runner, "build_contestants", lambda *_: [("baseline", lambda: made)])
    before, state = torch.get_num_threads(), torch.random.get_rng_state()
    runner.measure_cell(dataclasses.replace(CELL, threads=before + 1), TINY)
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("shape", Plan().shapes)
@pytest.mark.parametrize(("rope", "ok"), [(1.14, True), (1.16, False), (0.5, True)])
def test_rope_against_the_baseline(shape: Shape, rope: float, ok: bool) -> None:
    made = cell(shape, {"baseline": 2.0, "rope": 2 * rope})
    found = {t.name: t for t in check_targets([made]) if t.ok is not None}
    layers, width, _, length, batch = shape
    name = f"RoPE / plain GPT, {layers} layers of {width}, {batch} x {length} tokens"
    assert list(found) == [name]
    assert (found[name].ok, found[name].limit) == (ok, "<= 1.15")
    assert found[name].measured == pytest.approx(rope)


@pytest.mark.parametrize(("alibi", "ok"), [(1.24, True), (1.26, False)])
def test_alibi_against_rope(alibi: float, ok: bool) -> None:
    made = cell((2, 512, 8, 1024, 1), {"rope": 2.0, "alibi": 2 * alibi})
    (found,) = [t for t in check_targets([made]) if t.ok is not None]
    assert (found.name, found.limit) == ("ALiBi / RoPE, width >= 512, 1024 tokens", "<= 1.25")
    assert found.ok is ok


def test_what_decides_nothing() -> None:
    slow = {"baseline": 1.0, "rope": 9.0, "alibi": 99.0}
    narrow = cell((2, 256, 8, 1024, 1), slow)
    assert "ALiBi" not in "".join(t.name for t in check_targets([narrow]) if t.ok is not None)
    assert all(t.ok is None for t in check_targets([cell((2, 512, 8, 1024, 1), slow, threads=2)]))
    assert all(t.ok is None for t in check_targets([cell((2, 512, 8, 1024, 1), {"alibi": 1.0})]))
    assert len(check_targets([])) == 5


def test_a_report_is_read_back_and_shown(report: Report, tmp_path: Path) -> None:
    rich = pytest.importorskip("rich.console")
    wide = cell((2, 512, 8, 1024, 1), {"baseline": 0.5, "rope": 0.6, "alibi": 0.65})
    bad = CellResult(CELL, (Result("t5", problem="does not learn"),))
    whole = report.add_cell(wide).add_cell(bad).with_command("whorl bench training")
    whole.save(tmp_path / "new" / "r.json")
    assert Report.load(tmp_path / "new" / "r.json") == whole
    row = whole.to_dict()["cells"][1]["results"][1]
    assert (row["name"], row["ratio"]) == ("rope", pytest.approx(1.2))
    assert row["tokens_per_second"] == pytest.approx(1024 / 0.6)
    text = whole.render_markdown()
    for words in (
        "clipping and AdamW, in float32. Command: `whorl bench training`.",
        "**2 layers of 512, 1 x 1024 tokens, 1 thread**",
        "| lab, rope | 1,000 | 10 | 600 ms | 1,707 | 1.20 |",
        "| plain GPT | 1,000 | 10 | 500 ms | 2,048 | 1.00 |",
        "| RoPE / plain GPT, 2 layers of 512, 1 x 1024 tokens | <= 1.15 | 1.2 | missed |",
        "| 2x48/2x12/1 | lab, t5 | does not learn |",
        "Targets reached on one thread: ",
    ):
        assert words in text
    console = rich.Console(width=80, file=io.StringIO())
    for part in whole.build_terminal_tables():
        console.print(part)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "lab, deberta" in shown
    assert "…" not in shown
    empty = Report(report.environment, report.effort, complete=False)
    assert "The run was not finished." in empty.render_markdown()
    assert "Targets" not in empty.render_markdown()


def test_another_format_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the report has format 1, and this benchmark reads 'training 1'"
    ):
        Report.from_dict({"format": 1})


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (2, 48, 3, 12, 2)  # the same key, as that leaves out the heads
    plan = dataclasses.replace(TINY, shapes=(SMALL, other))
    measured: list[Cell] = []

    def made_up(found: Cell, _: Plan) -> CellResult:
        measured.append(found)
        return CellResult(found, (Result("rope", Timing(1.0, 1.0, 1.0, 1.0, 1, 1)),))

    def interrupt(done: int, total: int, label: str) -> None:
        if done == 1:
            assert (total, label) == (2, "2 layers of 48, 2 x 12 tokens, 1 thread")
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "measure_cell", made_up)
    sink = tmp_path / "r.json"
    part = run(plan, progress=interrupt, sink=sink)
    assert not part.complete
    assert Report.load(sink) == part
    assert run(plan, sink=sink, resume=sink).complete
    assert measured == plan.list_cells()
    run(dataclasses.replace(plan, encodings=("rope",)), resume=sink)  # other effort: all anew
    assert measured == 2 * plan.list_cells()


def test_plans() -> None:
    assert set(Plan.quick().shapes) < set(Plan.full().shapes)
    assert set(Plan.quick().encodings) < set(Plan.full().encodings)
    both = TINY.select(threads=[1, 2]).list_cells()
    assert [c.key for c in both] == ["2x48/2x12/1", "2x48/2x12/2"]
    assert [Cell.from_dict(c.to_dict()) for c in both] == both
    assert CELL.tokens == 24
    with pytest.raises(ValueError, match="at least 1, and sample_seconds at least 0; got Plan"):
        Plan(repeats=0)
    with pytest.raises(ValueError, match="the training benchmark compares with the baseline alone"):
        TINY.select(peers=["hf"])


Whorl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(bench: Whorl, monkeypatch: pytest.MonkeyPatch) -> Whorl:
    small = dataclasses.replace(TINY, encodings=("rope", "alibi"))
    monkeypatch.setattr(Plan, "quick", lambda: small)
    return bench


def test_the_command_measures_training(command: Whorl, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    code, text, error = command("training", "--json", "--out", str(out))
    assert (code, error) == (0, "")
    assert json.loads(text) == json.loads(out.read_text())
    assert [r["name"] for r in json.loads(text)["cells"][0]["results"]] == [
        "baseline",
        "rope",
        "alibi",
    ]
    code, text, error = command("training", "--resume", "--out", str(out))
    assert (code, error) == (0, "")
    assert "tokens/s" in text
    code, _, error = command("attention", "--resume", "--out", str(out))
    assert code == 2
    assert "is not a report of whorl bench" in error


@pytest.mark.parametrize("option", ["--peers", "--chart"])
def test_options_of_the_rotation_are_refused(command: Whorl, option: str) -> None:
    line = f"error: {option} is for whorl bench rotation; leave it out for training.\n"
    assert command("training", option, "a.png") == (2, "", line)
