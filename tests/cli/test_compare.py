"""``whorl compare``: the plan it makes of its options, what it prints and writes."""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.cli.compare import Budget
from whorl.lab import compare as experiment
from whorl.lab.compare import BUDGETS, ComparisonPlan, Outcome, RunStatus, load_comparison
from whorl.lab.compare.search import Trial

for package in ("safetensors", "tomli_w", "altair", "vl_convert"):
    pytest.importorskip(package)

Whorl = Callable[..., Any]
PUBLISHED = next((Path(__file__).parents[2] / "benchmarks").glob("*-compare.json"))
TINY = ["--layers=1", "--width=32", "--heads=2", "--length=32", "--batch=4", "--steps=6"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks of ``compare``, which trains nothing here."""
    found: dict[str, Any] = {}

    def compare(plan: ComparisonPlan, folder: Path, **options: Any) -> Outcome:
        found.update(options, plan=plan, folder=folder)
        statuses = [
            RunStatus("rope-seed0", "running", "training", 3, 9, 2.5, 1000.0, 70.0),
            RunStatus("x"),
        ]
        options["show"](statuses)
        return Outcome(None, (RunStatus("x", "failed", reason="no reason"),), folder)

    monkeypatch.setattr(experiment, "compare", compare)
    return found


def test_quick_is_the_default(whorl: Whorl, asked: dict[str, Any]) -> None:
    done = whorl("compare")
    assert asked["plan"] == ComparisonPlan.from_budget("quick", base=asked["plan"].base)
    assert asked["plan"].base.model == ComparisonPlan.from_budget("quick").base.model
    assert asked["folder"] == Path("runs/quick")
    assert (asked["speed"], asked["force"]) == (True, False)
    assert done.code == 2
    assert "x failed: no reason" in done.err
    assert "rope-seed0: running" in done.err


def test_every_budget_can_be_chosen(whorl: Whorl, asked: dict[str, Any]) -> None:
    assert BUDGETS.keys() == {one.value for one in Budget}
    for name in BUDGETS:
        whorl("compare", "--budget", name)
        assert asked["folder"] == Path("runs") / name
    text = " ".join(whorl("compare", "--help").out.replace("\u2502", " ").split())
    for words in (
        "quick takes five to ten minutes.",
        "standard has every encoding and three seeds.",
        "converged has every encoding, six times the steps and two seeds, and takes two to four",
        "full takes a night.",
    ):
        assert words in text


def test_options_reach_the_plan(whorl: Whorl, asked: dict[str, Any]) -> None:
    whorl(
        "compare", "--encodings", "rope, alibi", "--scalings", "none", "--seeds", "2", "--task",
        "copy", "--learning-rates", "0.1,0.2", "--width", "64", "--budget", "standard",
        "--no-speed", "--force",
    )  # fmt: skip
    plan = asked["plan"]
    assert (plan.encodings, plan.scalings, plan.seeds) == (("rope", "alibi"), (), 2)
    assert plan.learning_rates == (0.1, 0.2)
    assert (plan.base.data.task, plan.base.model.width) == ("copy", 64)
    assert asked["folder"] == Path("runs/standard")
    assert (asked["speed"], asked["force"]) == (False, True)


def test_commas_of_options_do_not_split_encodings(whorl: Whorl, asked: dict[str, Any]) -> None:
    rows = ("rope(base=100,layout=half)", "learned + rope(base=1e6)", "alibi")
    whorl("compare", "--encodings", ", ".join(rows))
    assert asked["plan"].encodings == rows


def test_the_best_of_a_search_is_compared(
    whorl: Whorl, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def search(
        names: list[str], base: Any, folder: Path, **options: Any
    ) -> experiment.SearchResult:
        asked["search"] = (names, folder, options["trials"], options["ray"])
        trials = [
            Trial(n, f"rope(base={n}.0)", {"learning_rate": 0.01 * n}, loss)
            for n, loss in ((1, math.inf), (2, 1.25), (3, 2.5))
        ]
        return experiment.SearchResult({"rope(base=1..9)": tuple(trials)})

    def compare(plan: ComparisonPlan, folder: Path, **options: Any) -> Outcome:
        asked["plan"] = plan
        return Outcome(load_comparison(PUBLISHED), (), folder)

    monkeypatch.setattr(experiment, "search_rates", search)
    monkeypatch.setattr(experiment, "compare", compare)
    args = ["compare", "--encodings=rope(base=1..9)", "--search=3", "--ray=local"]
    done = whorl(*args, "--out", str(tmp_path))
    assert asked["search"] == (["rope(base=1..9)"], tmp_path / "search", 3, "local")
    assert asked["plan"].encodings == ("rope(base=2.0)",)
    assert asked["plan"].list_runs()[0].config.training.learning_rate == 0.02
    for words in ("diverged", "1.2500", "# rope(base=1..9): loss 1.2500", "learning_rate = 0.02"):
        assert words in done.out
    found = json.loads(whorl(*args, "--json").out)
    assert found["search"]["encodings"][0]["best"]["encoding"] == "rope(base=2.0)"


@pytest.mark.slow
def test_a_comparison(whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} and {n * n} and on\n" for n in range(900)))
    out, chart = tmp_path / "out", tmp_path / "chart.svg"
    args = [*TINY, "--encodings=rope", "--data", str(text), "--out", str(out), "--no-speed"]
    done = whorl("compare", *args, "--chart", str(chart))
    assert done.code == 0, done.err
    assert "rope+dynamic_ntk" in done.out
    assert str(out / "report.html") in done.out.replace("\n", "")
    assert chart.read_text().startswith("<svg")
    monkeypatch.setattr("whorl.lab.compare.page.render_page", lambda comparison: "")
    again = whorl("compare", *args, "--json")
    assert json.loads(again.out)["settings"]["lengths"] == [16, 32, 64, 128, 256, 512]
    assert whorl("compare", "--from", str(out)).code == 0
    kept = (out / "comparison.json").read_text()
    other = whorl("compare", *args, "--steps", "5")
    assert other.code == 2
    assert "holds another run: training.steps is 6 there, 5 here" in other.err
    assert other.out == ""  # another run's results are not shown as this one's
    assert (out / "comparison.json").read_text() == kept


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--encodings", "rop"], "--encodings: 'rop' is unknown; did you mean 'rope'?"),
        (["--encodings", "rope(base=,x=1)"], "--encodings: the value of 'base' must come at char"),
        (["--learning-rates", "a"], "--learning-rates takes numbers such as 0.01,0.02; got 'a'"),
        (["--encodings", "rope", "--from", "/x"], "--from reports on runs as they are"),
        (["--no-speed", "--from", "/x"], "--from reports on runs as they are"),
        (["--minutes", "0"], "--minutes must be above 0; got 0"),
        (["--minutes", "nan"], "--minutes must be above 0; got nan"),
        (["--workers", "-1"], "--workers must be at least 1; got -1"),
        (["--ray", "lokal"], "--ray must be local, or HOST:PORT of a Ray cluster such as 10.0.0.1"),
        (["--ray", "a:1", "--minutes", "5"], "--minutes needs --workers here: say how many runs"),
        (
            ["--encodings", "rope(base=1..9)"],
            "--encodings: 'rope(base=1..9)' has an option to search",
        ),
        (["--search", "5", "--minutes", "5"], "--search: leave --minutes out, because the trials"),
        (["--search", "5", "--learning-rates", "1"], "--search: leave --learning-rates out"),
        (["--search", "0"], "--search must be at least 1 trial of each encoding; got 0."),
        (["--chart", "x.gif"], "must end in .png, .svg, .html or .json"),
        (["--length", "60000"], "the longest evaluation needs a document of 960001 bytes"),
    ],
)
def test_bad_input(whorl: Whorl, args: list[str], message: str, tmp_path: Path) -> None:
    done = whorl("compare", "--out", str(tmp_path / "run"), *args)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def statuses() -> list[RunStatus]:
    return [
        RunStatus("nope-seed0", "done", "evaluation", 10, 10, 2.125),
        RunStatus("t5-seed0", "failed", "training", 3, 350, reason="training diverged at step 3"),
        RunStatus("learned-seed0", "running", "training", 120, 350, 2.31, 15230.0, 185.0),
        *(RunStatus(f"waits-seed{n}") for n in range(30)),
    ]


def test_the_live_view_fits_a_small_screen() -> None:
    rich = pytest.importorskip("rich.console")
    from whorl.cli._live import _render_statuses

    console = rich.Console(width=80, record=True, file=io.StringIO())
    console.print(_render_statuses(statuses(), 3700.0))
    text = console.export_text()
    for words in ("2.125", "15,230", "3:05 min", "t5-seed0 failed: training diverged at step 3"):
        assert words in text
    assert "2 of 33 runs done, 1:01 h; 17 not shown" in text
    assert len(text.splitlines()) <= 20
    console.print(
        _render_statuses([*statuses(), RunStatus("speed", "running", is_run=False)], 3700.0)
    )
    assert "2 of 33 runs done" in console.export_text()
    assert "\u2026" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[model]\nencoding = "rope"\n', "chooses model.encoding itself; leave it out, and use"),
        ("[training]\nseed = 3\n", "chooses training.seed itself; leave it out, and use --seeds"),
        ("[training]\nlearning_rate = 1.0\n", "and use --learning-rates instead"),
        ("[training]\nencoding_learning_rate = 1.0\n", "and use whorl train instead"),
        ("[training]\nembedding_learning_rate = 1.0\n", "and use whorl train instead"),
    ],
)
def test_nothing_in_a_config_is_dropped(
    whorl: Whorl, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "c.toml").write_text(text)
    done = whorl("compare", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert message in done.err.replace("\n", " ")
