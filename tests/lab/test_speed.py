"""Training speed is measured apart: in turns, alone, once; where it was not, nothing is shown."""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.plots.lab_document import comparison
from whorl import plots
from whorl.lab import DataConfig, RunConfig, train, use_threads
from whorl.lab.compare import (
    ComparisonPlan,
    RunStatus,
    compare,
    load_comparison,
    name_by_encoding,
    rewrite_report,
)
from whorl.lab.compare import speed as module
from whorl.lab.compare.plan import PlannedRun
from whorl.lab.compare.speed import (
    ROUNDS,
    STEPS,
    STEPS_PER_ROW,
    measure_speed,
    read_speed,
    time_steps,
)
from whorl.lab.compare.tables import render_markdown
from whorl.lab.environment import describe_environment

from .planned import skip_page, train_planned_runs

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

TOKENS = 4 * 32  # of a step of ``small``


def list_runs(small: RunConfig, *encodings: str, seeds: int = 1) -> list[PlannedRun]:
    return ComparisonPlan(encodings=encodings, seeds=seeds, base=small, thirds=False).list_runs()


def list_configs(small: RunConfig, *encodings: str, seeds: int = 1) -> dict[str, RunConfig]:
    return name_by_encoding([job.config for job in list_runs(small, *encodings, seeds=seeds)])


def test_encodings_take_turns(small: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, int]] = []
    clock = iter(range(10_000))

    def step(alone: Any, optimizer: Any, source: Any, training: Any, number: int, *_: Any) -> None:
        taken.append((alone.model.config.encoding, number))
        for _again in range(number):  # the fourth step takes longest
            next(clock)

    monkeypatch.setattr("whorl.lab.optimization.take_step", step)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    seen: list[tuple[int, int]] = []
    configs = list_configs(small, "rope", "alibi", "t5")
    found = time_steps(configs, lambda *at: seen.append(at))
    turns = [taken[n : n + STEPS + 1] for n in range(0, len(taken), STEPS + 1)]
    assert [{name for name, _ in turn} for turn in turns][:6] == [
        {"rope"}, {"alibi"}, {"t5"}, {"t5"}, {"alibi"}, {"rope"},
    ]  # fmt: skip
    assert all([number for _, number in turn] == list(range(1, STEPS + 2)) for turn in turns)
    assert len(turns) == 3 * ROUNDS
    assert len(taken) == 3 * STEPS_PER_ROW
    # The first step of each turn is not timed.
    assert found == {name: [3, 4, 5] * ROUNDS for name in ("rope", "alibi", "t5")}
    assert seen == [(n, 3 * ROUNDS) for n in range(1, 3 * ROUNDS + 1)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which encodings were measured, each call for itself; a step takes 0.5 s, once 90 s."""
    found: list[list[str]] = []

    def run(configs: dict[str, RunConfig], show: Any) -> Any:
        found.append(list(configs))
        times = {name: [0.5, 90.0, 0.5 + 0.25 * n] for n, name in enumerate(configs)}
        return times, RunStatus("speed", "done", is_run=False)

    monkeypatch.setattr(module, "_run_process", run)
    return found


def test_the_median_counts_and_is_kept(
    small: RunConfig, tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[RunStatus] = []
    both = list_configs(small, "rope", "alibi", seeds=2)
    found, status = measure_speed(both, tmp_path, shown.append)
    assert found is not None
    assert asked == [["rope", "alibi"]]  # once, not for each seed
    assert found["tokens_per_second"] == {"rope": TOKENS / 0.5, "alibi": TOKENS / 0.75}
    again, status = measure_speed({"alibi": both["alibi"]}, tmp_path, shown.append)
    assert again is not None
    assert again["tokens_per_second"] == found["tokens_per_second"]
    assert status.reason == f"measured on {found['date']}"
    assert len(asked) == 1
    # Speeds of two measurements are not compared: a wider plan measures all of them.
    measure_speed(list_configs(small, "rope", "nope"), tmp_path, shown.append)
    assert asked[1:] == [["rope", "nope"]]
    # Another number of steps or another rate has the same speed, another batch has not.
    training = dataclasses.replace(small.training, steps=99, learning_rate=0.5)
    measure_speed(
        list_configs(dataclasses.replace(small, training=training), "rope"), tmp_path, print
    )
    assert len(asked) == 2
    training = dataclasses.replace(small.training, batch=5)
    measure_speed(
        list_configs(dataclasses.replace(small, training=training), "rope"), tmp_path, print
    )
    assert len(asked) == 3
    here = describe_environment()
    monkeypatch.setattr(module, "describe_environment", lambda: {**here, "torch": "9"})
    measure_speed(list_configs(small, "rope"), tmp_path, print)
    assert len(asked) == 4


def test_a_changed_file_is_measured_anew_or_refused(
    small: RunConfig, tmp_path: Path, asked: list[list[str]]
) -> None:
    measure_speed(list_configs(small, "rope"), tmp_path, print)
    path = tmp_path / "speed.json"
    path.write_text(path.read_text().replace("256.0", "999.0"))
    message = r"speed.json' is damaged: speed.json has been changed .* Delete it; the command that"
    with pytest.raises(ValueError, match=message):
        read_speed(tmp_path, {"rope": small})
    measure_speed(list_configs(small, "rope"), tmp_path, print)
    assert len(asked) == 2
    found = read_speed(tmp_path, {"rope": small})
    assert found is not None
    assert found["tokens_per_second"] == {"rope": 256.0}
    assert read_speed(tmp_path / "elsewhere", {"rope": small}) is None
    assert read_speed(tmp_path, list_configs(small, "alibi")) is None


@pytest.mark.slow
def test_a_report_shows_the_speeds_that_are_there(
    small: RunConfig, tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_page(monkeypatch)
    three = list_runs(small, "rope", "alibi", "nope")
    for job in three:
        train(job.config, tmp_path / job.name)
    configs = name_by_encoding([job.config for job in three])
    measure_speed({name: configs[name] for name in ("rope", "alibi")}, tmp_path, print)
    found = rewrite_report(tmp_path)
    speeds = {row["name"]: row["tokens_per_second"] for row in found["rows"]}
    assert speeds == {"rope": TOKENS / 0.5, "alibi": TOKENS / 0.75, "nope": None}
    note = (
        "(speed.json). It was not measured for nope; whorl compare with these encodings measures"
        " all of them together."
    )
    assert found["notes"][-1].endswith(note)
    report = (tmp_path / "report.md").read_text()
    assert note in report
    assert "tokens/s" in next(line for line in report.splitlines() if line.startswith("| "))
    # Of another batch, a speed is not that of these runs.
    training = dataclasses.replace(small.training, batch=5)
    other = dataclasses.replace(configs["rope"], training=training)
    measure_speed({**configs, "rope": other}, tmp_path, print)
    speeds = {row["name"]: row["tokens_per_second"] for row in rewrite_report(tmp_path)["rows"]}
    assert speeds == {"rope": None, "alibi": TOKENS / 0.75, "nope": TOKENS / 1.0}
    # All are measured together, so that they can be compared.
    measure_speed(configs, tmp_path, print)
    assert asked[-1] == ["rope", "alibi", "nope"]
    assert "not measured" not in " ".join(rewrite_report(tmp_path)["notes"])


@pytest.mark.slow
def test_encoders_and_decoders_are_timed_with_their_own_tokens(small: RunConfig) -> None:
    encoder = dataclasses.replace(small, model=dataclasses.replace(small.model, kind="encoder"))
    done: list[tuple[int, int]] = []
    with use_threads(1):
        found = time_steps({"a": small, "b": encoder}, lambda *at: done.append(at))
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 15, "b": 15}
    assert done[-1] == (2 * ROUNDS, 2 * ROUNDS)


@pytest.mark.slow
def test_a_process_that_fails_is_said(small: RunConfig, tmp_path: Path) -> None:
    lost = dataclasses.replace(small, data=DataConfig(files=("/nowhere",)))
    found, status = measure_speed({"rope": lost}, tmp_path, print)
    assert found is None
    assert status.state == "failed"
    assert "its process ended with code 1: ValueError: data.files: '/nowhere' cannot be read" in (
        status.reason
    )
    assert not (tmp_path / "speed.json").exists()


@pytest.mark.slow
def test_it_is_measured_when_all_runs_are_done(
    small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[RunStatus]] = []
    plan = ComparisonPlan(encodings=("rope", "alibi"), scalings=("yarn",), base=small, thirds=False)
    train_planned_runs(plan, tmp_path)
    blank = compare(plan, tmp_path, speed=False).comparison
    assert blank is not None
    assert blank["speed"] is None
    assert [row["tokens_per_second"] for row in blank["rows"]] == [None] * 3
    assert "tokens/s" not in (tmp_path / "report.md").read_text().split("Training speed was not")[0]
    assert ">tokens/s<" not in (tmp_path / "report.html").read_text()
    skip_page(monkeypatch)
    (tmp_path / ".report.html.part").write_text("half")
    (tmp_path / ".speed.json.part").write_text("half")
    (tmp_path / ".mine.part").write_text("mine")

    def interrupt(statuses: Sequence[RunStatus]) -> None:
        seen.append([*statuses])
        if statuses[-1].name == "speed" and statuses[-1].done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(plan, tmp_path, show=interrupt)
    assert all(status.state == "done" for status in seen[-1][:-1])  # no run is active meanwhile
    assert not (tmp_path / "speed.json").exists()
    assert load_comparison(tmp_path / "comparison.json")["rows"] == blank["rows"]
    assert [path.name for path in tmp_path.glob(".*.part")] == [".mine.part"]

    whole = compare(plan, tmp_path).comparison
    assert whole is not None
    rope, yarn, alibi = (row["tokens_per_second"] for row in whole["rows"])
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert {"rope": rope, "alibi": alibi} == kept["tokens_per_second"]
    assert yarn is None
    assert len(kept["seconds"]["rope"]) == ROUNDS * STEPS
    assert whole["speed"] == {"rounds": ROUNDS, "steps": STEPS, "date": kept["date"]}
    assert "measured once" in whole["notes"][-1]
    again = compare(plan, tmp_path).comparison
    assert again is not None
    assert again["rows"] == whole["rows"] == rewrite_report(tmp_path)["rows"]


def test_blank_where_it_was_not_measured_and_a_dash_where_it_cannot_be() -> None:
    document = comparison()
    next(row for row in document["rows"] if row["name"] == "alibi")["tokens_per_second"] = None
    rows = {
        line.split(" | ")[0].strip("| "): line for line in render_markdown(document).splitlines()
    }
    assert rows["alibi"].endswith("|  |")
    assert rows["rope+yarn"].endswith("| \u2013 |")
    for row in document["rows"]:
        row["tokens_per_second"] = None
    assert "tokens/s" not in json.dumps(plots.lab_costs(document).to_dict())


def test_claims_say_on_what_they_rest() -> None:
    document = comparison()
    assert "Published claims" not in render_markdown(document)
    assert "| reproduced (1 seed, 3 layers) |" in render_markdown(document, claims=True)
    document["settings"].update(layers=1, seeds=[0, 1, 2])
    assert "| not reproduced (3 seeds, 1 layer) |" in render_markdown(document, claims=True)
