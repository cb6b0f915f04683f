"""``whorl experiment``: the list, what it asks of the library, and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Whorl
from whorl.lab import experiments
from whorl.lab.compare import RunStatus

pytest.importorskip("tomli_w")


def test_the_list(whorl: Whorl) -> None:
    for args in ((), ("--list",), ("base", "--list")):
        done = whorl("experiment", *args)
        assert done.code == 0
        assert all(name in done.out for name in experiments.NAMES)
        assert "Which base of RoPE's frequencies" in done.out
    found = json.loads(whorl("experiment", "--json").out)
    assert [one["name"] for one in found] == list(experiments.NAMES)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("bas",), "experiment 'bas' is unknown; did you mean 'base'?"),
        (("base", "--seeds", "0"), "--seeds must be a whole number of at least 1; got 0."),
        (("base", "--workers", "0"), "--workers must be at least 1; got 0."),
        (("base", "--from", "x"), "--from reports on rows as they are; leave out everything else."),
        (("--from", "nowhere"), "'nowhere' holds no experiment: it has no plan.json"),
        (("base", "--data", "none"), "--data: 'none' cannot be read: No such file"),
        (("noise", "--data", "x"), "--data: the experiment 'noise' has none; leave it out."),
        (("matching", "--data", "x.txt"), "--data: the name must end in .jsonl (triplets) or .tsv"),
        (("matching", "--data", "x.jsonl"), "--data: 'x.jsonl' cannot be read: No such file"),
    ],
)
def test_errors(
    args: tuple[str, ...],
    message: str,
    whorl: Whorl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = whorl("experiment", *args)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_stopped_and_failed(whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def stop(plan: experiments.ExperimentPlan, folder: Path, **options: Any) -> None:
        asked.append((plan.budget, plan.seeds, folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "run_experiment", stop)
    done = whorl("experiment", "base", "--budget", "standard", "--seeds", "2")
    assert done.code == 130
    assert "the same command goes on from" in done.err
    assert asked == [("standard", 2, Path("runs/experiments/base-standard"))]
    status = RunStatus("base-100-seed0", "failed", reason="pass force=True")

    def fail(*args: Any, **options: Any) -> experiments.ExperimentOutcome:
        return experiments.ExperimentOutcome(None, (status,), tmp_path)

    monkeypatch.setattr(experiments, "run_experiment", fail)
    done = whorl("experiment", "base", "--out", str(tmp_path))
    assert done.code == 2
    assert "base-100-seed0 failed: pass --force" in done.err
