"""Comparisons end to end: side by side, interrupted, resumed, and rebuilt from their folders."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import Run, RunConfig, use_threads
from whorl.lab.compare import ComparisonPlan, RunStatus, compare, load_comparison, rewrite_report
from whorl.lab.compare.gather import build_comparison, find_runs
from whorl.lab.compare.plan import PlannedRun
from whorl.lab.compare.pool import run_all
from whorl.lab.compare.statistics import estimate

from .planned import run_without_workers, skip_page, train_planned_runs

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
pytest.importorskip("rich")


@pytest.fixture
def plan(small: RunConfig) -> ComparisonPlan:
    return ComparisonPlan(encodings=("rope", "alibi"), scalings=("yarn",), seeds=2, base=small)


@pytest.mark.slow
def test_from_plan_to_report(
    plan: ComparisonPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sequence[RunStatus]] = []
    train_planned_runs(plan, tmp_path / "out", leave=("rope-seed0", "alibi-seed1"))
    done = find_changes(tmp_path / "out")
    outcome = compare(
        plan, tmp_path / "out", workers=2, show=lambda statuses: seen.append([*statuses])
    )
    assert find_changes(tmp_path / "out").items() > done.items()  # what was done was left alone
    found = outcome.comparison
    assert found is not None
    assert outcome.failed == ()
    assert [row["name"] for row in found["rows"]] == ["rope", "rope+yarn", "alibi"]
    rope, yarn, _ = found["rows"]
    assert yarn["trained_as"] == "rope"
    assert yarn["seconds"] is None
    assert rope["seconds"] > 0
    assert len(rope["by_length"]["32"]["seeds"]) == 2
    assert rope["by_length"]["32"]["low"] < rope["by_length"]["32"]["mean"]
    assert found["settings"]["seeds"] == [0, 1]
    paired = found["rows"][2]["against"]
    ours, theirs = (found["rows"][n]["by_length"]["32"]["seeds"] for n in (2, 0))
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert paired["name"] == "rope"
    assert paired["by_length"]["32"]["mean"] == pytest.approx(sum(gaps) / 2)
    assert paired["by_length"]["32"]["high"] == pytest.approx(estimate(gaps).high)
    assert "against" not in rope
    _check_curves(tmp_path / "out", found["rows"])
    assert max(len([x for x in statuses if x.state == "running"]) for statuses in seen) == 2
    assert {"training", "evaluation"} <= {status.phase for statuses in seen for status in statuses}
    for name in ("comparison.json", "report.html", "report.md"):
        assert (tmp_path / "out" / name).stat().st_size > 200

    skip_page(monkeypatch)
    kept = (tmp_path / "out" / "comparison.json").read_text()
    assert load_comparison(tmp_path / "out" / "comparison.json") == found
    again = rewrite_report(tmp_path / "out")
    assert again["rows"] == found["rows"]
    (tmp_path / "out" / "comparison.json").write_text(kept)

    encodings = ("rope", "alibi", "nope")
    wider = dataclasses.replace(plan, encodings=encodings, seeds=1, thirds=False)
    train_planned_runs(wider, tmp_path / "out")
    done = find_changes(tmp_path / "out")
    outcome = compare(wider, tmp_path / "out", workers=1, speed=False)
    assert outcome.comparison is not None
    assert len(outcome.comparison["rows"]) == 4
    assert find_changes(tmp_path / "out") == done


def find_changes(folder: Path) -> dict[Path, int]:
    """When the metrics of each run were last written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.jsonl")}


def _check_curves(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Curves are means of the runs' validation losses; a scaling has the last tenth of its run."""
    rope, yarn, _ = rows
    assert "curve" not in yarn
    assert yarn["last_tenth"] == rope["last_tenth"]
    lines = [Run(folder / f"rope-seed{seed}").read_metrics() for seed in (0, 1)]
    losses = [[line["validation_loss"] for line in one] for one in lines]
    assert rope["curve"]["step"] == list(range(1, 9))
    means = [(a + b) / 2 for a, b in zip(*losses, strict=True)]
    assert rope["curve"]["loss"] == pytest.approx(means)
    short = [Run(folder / f"rope-seed{seed}-third") for seed in (0, 1)]
    assert [len(run.read_metrics()) for run in short] == [2, 2]  # of 8 steps
    before = [run.read_metrics()[-1]["validation_loss"] for run in short]
    power = math.log(sum(before) / sum(one[-1] for one in losses)) / math.log(8 / 2)
    assert rope["last_tenth"] == pytest.approx(1 - 0.9**power)
    results = [run.read_evaluation() for run in short]
    at = [one["by_length"]["32"]["loss"] for one in results if one is not None]
    assert rope["third"]["32"] == pytest.approx(sum(at) / 2)
    full = [Run(folder / f"rope-seed{seed}").read_evaluation() for seed in (0, 1)]
    right = [one["by_length"]["32"]["accuracy"] for one in full if one is not None]
    assert rope["by_length"]["32"]["accuracy"] == pytest.approx(sum(right) / 2)
    assert yarn["third"].keys() == yarn["by_length"].keys()


INTERRUPTED = """
import json, signal, sys
from whorl.lab import RunConfig
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
from whorl.lab.compare import ComparisonPlan, compare
job = json.load(sys.stdin)
config = RunConfig.from_dict(job["config"])
plan = ComparisonPlan(encodings=("rope", "alibi"), base=config, thirds=False)
def show(statuses):
    done = [status.done for status in statuses if status.phase == "training"]
    print(max(done, default=0), flush=True)
try:
    compare(plan, job["folder"], workers=2, show=show, speed=False)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.fixture(scope="module")
def longer(small: RunConfig) -> ComparisonPlan:
    """Long enough that it is stopped before its end."""
    training = dataclasses.replace(small.training, steps=120)
    config = dataclasses.replace(small, training=training)
    return ComparisonPlan(encodings=("rope", "alibi"), base=config, thirds=False)


@pytest.fixture(scope="module")
def uninterrupted(
    longer: ComparisonPlan, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("whole")
    train_planned_runs(longer, folder)
    rows: list[dict[str, Any]] = build_comparison(find_runs(folder))["rows"]
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_on(
    longer: ComparisonPlan,
    uninterrupted: list[dict[str, Any]],
    tmp_path: Path,
    how: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_page(monkeypatch)
    job = {"folder": str(tmp_path / "out"), "config": longer.base.to_dict()}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    with process:
        for line in process.stdout:
            if line.strip().isdecimal() and int(line) > 0:
                process.send_signal(how)
                break
        said = process.stdout.read()
    assert ("stopped" in said) == (how == signal.SIGINT)
    runs = [Run(tmp_path / "out" / name) for name in ("rope-seed0", "alibi-seed0")]
    _wait_until_free(runs)
    assert all(run.read_evaluation() is None for run in runs)
    if how == signal.SIGINT:
        assert all(run.checkpoint_path.exists() for run in runs if run.read_metrics())
    monkeypatch.setattr("whorl.lab.compare.run_all", run_without_workers)
    outcome = compare(longer, tmp_path / "out", speed=False)
    assert outcome.comparison is not None
    for one, other in zip(outcome.comparison["rows"], uninterrupted, strict=True):
        for same in ("name", "by_length", "by_position", "curve"):
            assert one[same] == other[same]


def _wait_until_free(runs: list[Run]) -> None:
    """Workers whose reader is gone stop by themselves."""
    for _ in range(300):
        try:
            for run in runs:
                with run.lock():
                    pass
            return
        except ValueError:
            time.sleep(0.1)
    raise AssertionError("a worker goes on though nobody reads its words")


@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(
    small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_page(monkeypatch)
    (tmp_path / "out" / "alibi-seed0").mkdir(parents=True)
    (tmp_path / "out" / "alibi-seed0" / "letter.txt").write_text("mine")
    base = dataclasses.replace(small, training=dataclasses.replace(small.training, steps=5))
    train_planned_runs(
        ComparisonPlan(encodings=("rope",), base=base, thirds=False), tmp_path / "out"
    )
    plan = ComparisonPlan(encodings=("alibi", "rope"), base=small, thirds=False)
    # What is done is trained anew for another config, if asked.
    outcome = compare(plan, tmp_path / "out", force=True, speed=False)
    assert len(Run(tmp_path / "out" / "rope-seed0").read_metrics()) == 8
    assert [status.name for status in outcome.failed] == ["alibi-seed0"]
    assert "is neither empty nor the folder of a run" in outcome.failed[0].reason
    assert outcome.comparison is not None
    assert [row["name"] for row in outcome.comparison["rows"]] == ["rope"]
    assert outcome.comparison["unfinished"][0]["name"] == "alibi-seed0"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the worker in /proc")
def test_a_worker_that_is_killed(small: RunConfig, tmp_path: Path) -> None:
    training = dataclasses.replace(small.training, steps=100_000)
    config = dataclasses.replace(small, training=training)

    def kill(statuses: Sequence[RunStatus]) -> None:
        if statuses[0].done > 5:
            for children in Path("/proc/self/task").glob("*/children"):
                for pid in children.read_text().split():
                    if "whorl.lab.worker" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(int(pid), signal.SIGKILL)

    statuses = run_all([PlannedRun("rope", config)], tmp_path, {}, workers=1, show=kill)
    assert statuses[0].state == "failed"
    assert "killed by signal 9 (out of memory?)" in statuses[0].reason


def test_too_little_text_fails_before_any_process(small: RunConfig, tmp_path: Path) -> None:
    longer = dataclasses.replace(
        small, evaluation=dataclasses.replace(small.evaluation, multiples=(1.0, 500.0))
    )
    with pytest.raises(ValueError, match=r"the longest evaluation needs a document of 16001 bytes"):
        compare(ComparisonPlan(encodings=("rope",), base=longer), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rebuild_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"none' is not a folder; choose one that whorl compare wrote"
    ):
        rewrite_report(tmp_path / "none")
    with pytest.raises(ValueError, match=r"contains no runs; choose a folder that whorl compare"):
        rewrite_report(tmp_path)
    (tmp_path / "comparison.json").write_text("[]")
    with pytest.raises(ValueError, match=r"is not a comparison of this version of whorl"):
        load_comparison(tmp_path / "comparison.json")
    (tmp_path / "comparison.json").write_text('{"format": 1, "rows": []}')
    message = r"is a comparison of format 1, and this version of whorl reads format 2; compare aga"
    with pytest.raises(ValueError, match=message):
        load_comparison(tmp_path / "comparison.json")


def test_runs_that_cannot_be_compared(small: RunConfig, tmp_path: Path) -> None:
    wider = dataclasses.replace(small, model=dataclasses.replace(small.model, width=64))
    for name, config in (("a", small), ("b", wider)):
        run = Run(tmp_path / name)
        with run.lock():
            run.prepare(config, {})
    with pytest.raises(ValueError, match=r"'b' and 'a' differ in more than encoding, learning"):
        rewrite_report(tmp_path)
    run = Run(tmp_path / "b")
    with run.lock(), use_threads(torch.get_num_threads() + 1):
        run.prepare(small, {}, force=True)
    with pytest.raises(ValueError, match=r"'b' and 'a' differ in text, threads or versions"):
        rewrite_report(tmp_path)
    (tmp_path / "b" / "config.toml").unlink()
    with pytest.raises(ValueError, match=r"none of the runs is finished; compare again"):
        rewrite_report(tmp_path)


def test_the_published_comparison_is_read() -> None:
    for path in (Path(__file__).parents[2] / "benchmarks").glob("*-compare.json"):
        assert [row["name"] for row in load_comparison(path)["rows"]][:2] == ["nope", "sinusoidal"]
