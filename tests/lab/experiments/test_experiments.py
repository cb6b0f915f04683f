"""All experiments at the smoke budget, resumed and reported again; rows that are no training."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import write_texts
from tests.lab.planned import run_without_workers
from whorl.analysis import recoverability
from whorl.lab import Run, RunConfig
from whorl.lab.compare.pool import RunStatus, run_all
from whorl.lab.experiments import (
    NAMES,
    Experiment,
    ExperimentPlan,
    MeasureLabel,
    RowMeasurement,
    RowRequest,
    find_experiment,
    list_experiments,
    load_result,
    rewrite_report,
    run_experiment,
)
from whorl.lab.experiments import registry as registry_module
from whorl.lab.experiments.document import build_result, label_measures
from whorl.lab.experiments.jobs import (
    RowJob,
    build_run_config,
    list_configs,
    list_jobs,
    read_rows,
)
from whorl.lab.experiments.linear_attention import add_equal_time, list_denominators
from whorl.lab.experiments.noise import NOISES, build_gradients, check_row
from whorl.lab.experiments.noise import run_row as run_noise
from whorl.lab.experiments.page import render_page
from whorl.lab.experiments.plan import RowPlan
from whorl.lab.experiments.results import RowResults
from whorl.lab.experiments.tables import list_tables
from whorl.lab.experiments.worker import _run_row
from whorl.plots import experiment_lines

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all experiments, with a small text."""
    folder = tmp_path_factory.mktemp("experiments")
    write_texts(folder / "texts")
    return folder


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows run in this process, and a page of the same result is drawn once.

    Two tests below have rows in processes of their own.
    """
    pages: dict[str, str] = {}

    def render(result: dict[str, Any]) -> str:
        key = json.dumps(result, sort_keys=True)
        if key not in pages:
            pages[key] = render_page(result)
        return pages[key]

    monkeypatch.setattr("whorl.lab.experiments.run_all", run_without_workers)
    monkeypatch.setattr("whorl.lab.experiments.page.render_page", render)


@pytest.mark.slow
@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name: str, shared: Path) -> None:
    trains = find_experiment(name).trains
    reads = trains or find_experiment(name).build_config is not None
    files = [str(shared / "texts")] if reads else []
    plan = ExperimentPlan.from_budget(name, "smoke", files=files)
    outcome = run_experiment(plan, shared / name, workers=2)
    found = outcome.result
    assert found is not None
    assert outcome.failed == ()
    names = [*(row.name for row in plan.rows), *plan.experiment.derived]
    assert [row["name"] for row in found["rows"]] == names
    assert {one["measure"] for one in found["contrasts"]} == set(plan.judged)
    assert "support no conclusion" in found["sentence"]
    assert found["unfinished"] == []
    page = (shared / name / "report.html").read_text()
    assert plan.question.replace("'", "&#x27;") in page
    assert "<svg" in page
    assert "<svg" in (shared / name / "chart.svg").read_text()
    assert found["question"] in (shared / name / "report.md").read_text()
    results = list(shared.glob(f"{name}/*/{'metrics.jsonl' if trains else 'row.json'}"))
    assert len(results) == len(list_jobs(plan))
    again = rewrite_report(shared / name)
    assert again["rows"] == found["rows"]
    assert load_result(shared / name / "result.json")["sentence"] == found["sentence"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_workers")
def test_steps_are_timed_when_all_runs_are_done(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of which a step takes three times as long has a third of the steps in equal time."""
    asked: list[list[str]] = []

    def time_here(configs: dict[str, RunConfig], show: Any) -> Any:
        asked.append(list(configs))
        show(RunStatus("speed", "running", is_run=False))
        seconds = {name: [0.1 * 3**n] * 3 for n, name in enumerate(configs)}
        return seconds, RunStatus("speed", "done", is_run=False)

    monkeypatch.setattr("whorl.lab.compare.speed._run_process", time_here)
    files = [str(shared / "texts")]
    plan = ExperimentPlan.from_budget("linear-attention", "smoke", files=files)
    shown: list[list[RunStatus]] = []
    found = run_experiment(plan, tmp_path, show=lambda x: shown.append([*x])).result
    assert found is not None
    assert asked == [[row.name for row in plan.rows]]
    assert all(one.state == "done" for one in shown[-1])
    assert [row["facts"]["step_seconds"] for row in found["rows"]] == [0.1, pytest.approx(0.3)]
    fast, slow = (row["values"] for row in found["rows"])
    assert fast["loss in equal time"]["mean"] == fast["loss@1"]["mean"]
    ratio = slow["loss@1"]["third"] / slow["loss@1"]["mean"]  # of six and of two steps
    assert slow["loss in equal time"]["mean"] == pytest.approx(slow["loss@1"]["mean"] * ratio)
    assert "in turns, on one thread" in (tmp_path / "report.md").read_text()
    assert run_experiment(plan, tmp_path).result is not None
    assert len(asked) == 1
    (tmp_path / "speed.json").unlink()
    again = rewrite_report(tmp_path)
    assert [row["facts"]["step_seconds"] < 0.1 for row in again["rows"]] == [True, True]
    assert "while other runs use the machine" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_row_in_a_process_of_its_own(tmp_path: Path) -> None:
    job = list_jobs(ExperimentPlan.from_budget("noise", "smoke"))[0]
    assert isinstance(job, RowJob)
    (status,) = run_all([job], tmp_path / "there", {}, workers=1, show=lambda statuses: None)
    assert (status.name, status.state) == (job.name, "done")
    run_without_workers([job], tmp_path / "here", {})
    there, here = (job.read(tmp_path / where / job.name) for where in ("there", "here"))
    assert there is not None
    assert here is not None
    assert (there.values, there.curves) == (here.values, here.curves)


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time in a process of its own."""
    folder = shared / "stopped"
    plan = ExperimentPlan.from_budget("layouts", "smoke", files=[str(shared / "texts")])
    monkeypatch.setattr("whorl.lab.experiments.write_report", lambda result, folder: None)
    with monkeypatch.context() as patch:
        patch.setattr("whorl.lab.experiments.run_all", run_without_workers)
        first = run_experiment(plan, folder, workers=2).result
    assert first is not None
    done = Run(folder / "half-seed0")
    Run(folder / "interleaved-seed0").evaluation_path().unlink()  # as if it was killed then
    kept = done.metrics_path.stat().st_mtime_ns
    partly = rewrite_report(folder)
    assert [row["name"] for row in partly["rows"]] == ["half"]
    assert partly["unfinished"] == [{"name": "interleaved-seed0", "reason": "not finished"}]
    second = run_experiment(plan, folder, workers=2).result
    assert second is not None
    assert [row["values"] for row in second["rows"]] == [row["values"] for row in first["rows"]]
    assert done.metrics_path.stat().st_mtime_ns == kept
    other = ExperimentPlan.from_budget("base", "smoke", files=[str(shared / "texts")])
    with pytest.raises(ValueError, match="holds the experiment 'layouts'; choose another folder"):
        run_experiment(other, folder)


def test_every_experiment_has_its_files_and_budgets() -> None:
    listed = list_experiments()
    assert [one["name"] for one in listed] == list(NAMES)
    for one in listed:
        assert one["question"].endswith("?")
        assert one["minutes"]["quick"] <= 8
        assert find_experiment(one["name"]).name == one["name"]
        for budget in ("smoke", "quick", "standard"):
            plan = ExperimentPlan.from_budget(one["name"], budget)
            labels = label_measures(plan, list_configs(plan))
            assert {*plan.judged} <= {label.id for label in labels}
            assert plan.contrasts


def test_rates_are_those_of_the_encoding_unless_given() -> None:
    tables: dict[str, Any] = {"model": {"encoding": "t5"}, "training": {"steps": 40}}
    config = build_run_config(tables, 3)
    assert config.training.seed == 3
    assert config.training.warmup == 4
    tables["training"]["encoding_learning_rate"] = 0.5
    given = build_run_config(tables, 3)
    assert given.training == dataclasses.replace(config.training, encoding_learning_rate=0.5)


def test_rows_of_noise_are_recovered_positions(tmp_path: Path) -> None:
    rotation: dict[str, Any] = {"head_dim": 16, "base": 1e4}
    tables = {"rotation": rotation, "samples": {"length": 64, "count": 50}}
    moments: list[Any] = []
    found = run_noise(RowRequest(tables, 3, tmp_path, moments.append))
    rows = recoverability((16,), (1e4,), NOISES, (64,), samples=50, seed=3).rows
    assert list(found.values.values()) == [row.accuracy for row in rows]
    assert list(found.curves["error"]["y"]) == [row.mean_error for row in rows]
    assert len(moments) == len(NOISES)
    assert found.values["recovered@0.25"] > 0.8 > 0.2 > found.values["recovered@8"]
    message = r"^noise: \[samples\] must have the options length, count; got \['length'\]\.$"
    with pytest.raises(ValueError, match=message):
        check_row({**tables, "samples": {"length": 64}})


def test_partial_rotations_are_the_shares_they_say() -> None:
    for row in ExperimentPlan.from_budget("partial").rows:
        config = build_run_config(row.tables, 0)
        encoding = config.model.encoding
        assert isinstance(encoding, dict)
        assert row.name == f"{100 * encoding['rotary_dim'] // config.model.head_dim} %"


def count_rows(request: RowRequest) -> RowMeasurement:
    """A row that is no training run: its number is that of its table plus the seed."""
    return RowMeasurement({"share": request.tables["task"]["share"] + 0.001 * request.seed})


COUNTING = Experiment(
    name="base", run_row=count_rows, measures=(MeasureLabel("share", "share", accuracy=True),)
)
TABLES: dict[str, Any] = {
    "question": "Which?",
    "reference": "a",
    "judged": ["share"],
    "rows": [{"name": "a", "task": {"share": 0.5}}, {"name": "b", "task": {"share": 0.7}}],
    "budgets": {"quick": {"minutes": 1, "seeds": 3}},
}


def test_rows_that_a_function_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "find_experiment", lambda name: COUNTING)
    plan = ExperimentPlan.from_tables(COUNTING, TABLES, "quick")
    jobs = list_jobs(plan)
    assert [job.name for job in jobs] == [f"{row}-seed{n}" for n in range(3) for row in "ab"]
    for job in jobs:
        folder = tmp_path / job.name
        assert not job.is_finished(folder, {})
        _run_row(job.build_request(folder) | {"force": False, "command": ""}, lambda moment: None)
        assert job.is_finished(folder, {})
    rows, missing = read_rows(plan, tmp_path)
    assert missing == []
    where = {"date": "", "cpu": "", "cores": 1, "whorl": "", "torch": "", "python": ""}
    result = build_result(plan, rows, tmp_path, corpus={}, environment=where)
    assert result["sentence"] == (
        "Compared with a, the share is higher with b (by 20.0 points [20.0, 20.0]) (3 seeds)."
    )
    (job,) = [one for one in jobs if one.name == "a-seed0"]
    assert isinstance(job, RowJob)
    other = dataclasses.replace(job, tables={"task": {"share": 0.1}})
    assert not other.is_finished(tmp_path / job.name, {})
    request = other.build_request(tmp_path / job.name) | {"force": False, "command": ""}
    with pytest.raises(ValueError, match="holds a row with other settings"):
        _run_row(request, lambda moment: None)
    path = tmp_path / job.name / "row.json"
    document = json.loads(path.read_text())
    document["measured"]["values"]["share"] = 0.9
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="checksum does not fit"):
        job.is_finished(tmp_path / job.name, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quetion": "x"}, r"base\.toml: unknown key 'quetion'; did you mean 'question'\?"),
        ({"rows": [{"share": 1}]}, r"each of \[\[rows\]\] needs a name; got"),
        ({"rows": [{"name": "a"}, {"name": "a "}]}, "rows must have different names; got"),
        ({"rows": [{"name": "a", "task": 3}]}, "task must be a table of options; got 3"),
        ({"settings": 3}, "settings must be tables of options; got 3"),
        ({"reference": "c"}, r"no row 'c'.* Rows: a, b\."),
        ({"contrasts": [["a", "b"]]}, "it needs reference or contrasts, one of the two"),
        ({"headline": ["a"]}, r"contrasts must be pairs of rows such as \['a', 'b'\]"),
        ({"budgets": {"smoke": {}}}, "no budget 'quick'; it has smoke"),
        ({"budgets": {"quick": {}}}, r"\[budgets.quick\] needs minutes"),
        ({"budgets": {"quick": {"minutes": 1, "seeds": 0}}}, "seeds must be a whole number"),
    ],
)
def test_wrong_tables(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExperimentPlan.from_tables(COUNTING, {**TABLES, **change}, "quick")


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"base\.toml: it needs judged, rows, budgets"):
        ExperimentPlan.from_tables(COUNTING, {"question": "?"}, "quick")
    with pytest.raises(ValueError, match="experiment 'bas' is unknown; did you mean 'base'"):
        ExperimentPlan.from_budget("bas")
    plan = ExperimentPlan.from_tables(COUNTING, {**TABLES, "judged": ["shar"]}, "quick")
    with pytest.raises(ValueError, match="no measure 'shar' to judge; did you mean 'share'"):
        label_measures(plan, [])
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        run_experiment(plan, tmp_path, workers=0)
    with pytest.raises(ValueError, match=r"holds no experiment: it has no plan\.json"):
        rewrite_report(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the result of an experiment"):
        load_result(tmp_path / "result.json")
    with pytest.raises(ValueError, match=r"training\.steps must be"):
        build_run_config({"training": {"steps": "many"}}, 0)


def test_other_files_are_refused_where_nothing_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from whorl.lab.experiments import plan as plan_module

    monkeypatch.setattr(plan_module, "find_experiment", lambda name: COUNTING)
    monkeypatch.setattr(plan_module, "read_toml", lambda path: TABLES)
    with pytest.raises(ValueError, match="steps: the experiment 'base' has none; leave it out"):
        ExperimentPlan.from_budget("base", steps=3)
    with pytest.raises(ValueError, match=r"^data\.files: the experiment 'base' has none; leave it"):
        ExperimentPlan.from_budget("base", files=["x.txt"])


def test_loss_in_equal_time(tmp_path: Path) -> None:
    """A row twice as slow gets half the steps: its loss, a power of them, is computed by hand."""

    def make(name: str, seconds: float) -> RowResults:
        def measure(steps: int) -> RowMeasurement:
            loss = 2 * steps**-0.1  # 0.1 is the power of the number of steps
            facts = {"step_seconds": seconds, "steps": float(steps)}
            return RowMeasurement({"loss@1": loss}, {"loss@1": [loss, loss]}, facts=facts)

        third = RowResults(name, {0: measure(300)})
        return RowResults(name, {0: measure(900)}, {"loss@1": 0.01}, third)

    rows = [make("decoder: a", 0.1), make("decoder: b", 0.2), make("encoder: a", 0.3)]
    fast, slow, alone = add_equal_time(rows, tmp_path)
    timed = "loss in equal time"
    assert fast.get_values(timed)[0] == pytest.approx(2 * 900**-0.1)
    assert slow.get_values(timed)[0] == pytest.approx(2 * 450**-0.1)
    assert slow.third is not None
    assert slow.third.get_values(timed)[0] == pytest.approx(2 * 150**-0.1)
    assert alone.get_values(timed)[0] == pytest.approx(2 * 900**-0.1)
    assert slow.deviations[timed] == 0.01
    (table,) = list_denominators(rows, tmp_path)
    assert table.rows[-1][0] == "4096"
    assert float(table.rows[-1][1]) < 0 < float(table.rows[-1][4])
    small, negative = (float(cell.removesuffix(" %")) for cell in table.rows[-1][2:4])
    assert small > negative > 0
    assert RowPlan("a b", {}).folder_name == "a-b"


@pytest.mark.parametrize(
    ("name", "shown", "beside"),
    [
        ("mlm", "128 (trained)", "accuracy at 128 bytes"),
        ("linear-attention", "loss at 128 bytes", "accuracy at 128 bytes"),
        ("roformer-stages", "128 (trained)", "loss at 128 bytes"),
    ],
)
def test_accuracy_stands_beside_loss(name: str, shown: str, beside: str) -> None:
    folder = Path(__file__).parents[3] / "benchmarks"
    result = load_result(folder / f"2026-11-18-amd-epyc-{name}-experiment.json")
    table = list_tables(result)[0]
    assert shown in table.heads
    assert table.heads.count(beside) == 1
    cells = [row[table.heads.index(beside)] for row in table.rows]
    value = result["rows"][0]["values"][f"{beside.split()[0]}@1"]["mean"]
    assert cells[0].startswith(f"{100 * value:.1f} %" if "acc" in beside else f"{value:.3f}")
    best = [n for n, _ in enumerate(cells) if (n, table.heads.index(beside)) in table.bold]
    assert best


def test_noise_below_one_has_its_place_on_a_logarithmic_axis() -> None:
    """The lowest tick was rounded to 0, and all points lay on the left edge."""
    plan = ExperimentPlan.from_budget("noise", "smoke")
    measured = RowMeasurement(
        {f"recovered@{noise:g}": 1 / (1 + noise) for noise in NOISES},
        curves={"error": {"x": NOISES, "y": NOISES}},
    )
    rows = [RowResults(row.name, {0: measured}) for row in plan.rows]
    where = {"date": "", "cpu": "", "cores": 1, "whorl": "", "torch": "", "python": ""}
    result = build_result(plan, rows, Path(), corpus={}, environment=where)
    for key in ("recovered", "error"):
        spec = json.dumps(experiment_lines(result, key).to_dict())
        assert '"domain": [0.25, 8.0]' in spec
        assert '"values": [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]' in spec
        assert '"format": "~g"' in spec


def test_fast_pairs_get_a_gradient_that_cancels_over_distances() -> None:
    table = build_gradients()
    cells = [[[float(x) for x in cell.split(", ")] for cell in row[1:]] for row in table.rows]
    assert [row[0] for row in table.rows] == ["1", "8 to 15", "64 to 127"]
    assert all(0.8 < size < 1.2 for row in cells for size, _ in row)
    assert min(shared for _, shared in cells[0]) > 0.9  # at one distance nothing cancels
    fast, slow = cells[2][0][1], cells[2][-1][1]
    assert fast < 0.1 < 0.9 < slow
