"""Several processes train one run as one process does; a process that ends leaves it resumable."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launched import run_together
from whorl.lab import Run, RunConfig, collect_results, train, use_threads
from whorl.lab.compare import search_rates

pytest.importorskip("accelerate")
pytestmark = pytest.mark.slow


def write_train(calls: list[tuple[RunConfig, str, dict[str, Any]]], before: str = "") -> str:
    """Code that trains configs in folders, with the options of ``train``."""
    jobs = json.dumps([(config.to_dict(), folder, options) for config, folder, options in calls])
    return (
        "import json, os\nfrom whorl.lab import RunConfig, loop, train\n"
        "show = lambda moment: print(moment.done)\n"
        f"{before}\n"
        f"for config, folder, options in json.loads({jobs!r}):\n"
        "    train(RunConfig.from_dict(config), folder, progress=show, **options)\n"
    )


def read_losses(folder: Path) -> list[float]:
    """The losses of training and of validation."""
    lines = Run(folder).read_metrics()
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line[name] for line in lines for name in ("loss", "validation_loss", "gradient_norm")]


def test_two_processes_give_the_curve_of_one(small: RunConfig, tmp_path: Path) -> None:
    """Each has half of the sequences of a step: with all weights, or with a part of each."""
    training = replace(small.training, steps=20, batch=8)
    decoder = replace(small, training=training)
    # Masked tokens: the processes have different numbers of targets. T5's bias is trained.
    encoder = replace(decoder, model=replace(small.model, kind="encoder", encoding="t5"))
    rounded = replace(encoder, training=replace(training, precision="bfloat16"))
    calls: list[tuple[RunConfig, str, dict[str, Any]]] = [
        (decoder, "whole", {}),
        (decoder, "shard", {"shard": True}),
        (encoder, "passes", {"passes": 2}),
        (rounded, "bfloat16", {"shard": True, "passes": 2}),
    ]
    often = "loop._SECONDS_BETWEEN_CHECKPOINTS = 0.0"  # also between two steps
    first, second = run_together(write_train(calls, often), tmp_path)
    assert (first.code, second.code, second.out, second.err) == (0, 0, "", ""), first.err
    with use_threads(1):
        alone = [train(one, tmp_path / f"{n}").folder for n, one in enumerate((decoder, encoder))]
    for (_, name, _), expected in zip(calls, (alone[0], *alone, alone[1]), strict=True):
        found = tmp_path / name
        assert {x.name for x in found.iterdir()} == {x.name for x in expected.iterdir()}
        saved, other = Run(found).verify(), Run(expected).verify()
        assert saved is not None
        assert other is not None
        assert saved.tensors.keys() == other.tensors.keys()
        close = 1e-5 if name != "bfloat16" else 0.05
        assert read_losses(found) == pytest.approx(read_losses(expected), abs=close)
        both = [collect_results(Run(x))["results"][0]["by_length"]["32"] for x in (found, expected)]
        assert both[0]["loss"] == pytest.approx(both[1]["loss"], abs=close)


def test_a_killed_process_ends_all_and_the_run_goes_on(small: RunConfig, tmp_path: Path) -> None:
    config = replace(small, training=replace(small.training, steps=20, batch=8))
    kill = (
        "import signal\nstep = loop.take_step\n"
        "def die(*args):\n"
        "    if rank == 1 and args[4] == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return step(*args)\n"
        "loop.take_step = die"
    )
    first, second = run_together(write_train([(config, "run", {})], kill), tmp_path)
    assert second.code == -9
    assert first.code == 1
    assert (
        "LostProcess: another of the 2 processes has ended; the report of the launcher says which."
        " The checkpoint of step 6 is in 'run'; the same command goes on."
    ) in first.err
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    # One process goes on alone, and two in shards, with the numbers that they would have had.
    with use_threads(1):
        run = train(config, tmp_path / "run")
        whole = train(config, tmp_path / "whole")
    ends = run_together(write_train([(config, "other", {"shard": True})]), tmp_path)
    assert [one.code for one in ends] == [0, 0], ends
    assert ends[0].out.split()[0] == "7"  # it does not begin again
    for folder in ("run", "other"):
        close = pytest.approx(read_losses(whole.folder), abs=1e-5)
        assert read_losses(tmp_path / folder) == close
    (note,) = run.describe_environment_changes()
    assert "processes 2 -> 1" in note


COMPARE = """
import json
from whorl.lab import RunConfig, compare
from whorl.lab.compare import ComparisonPlan
config = RunConfig.from_dict(json.loads({config!r}))
seen = []
plan = ComparisonPlan(encodings=("rope", "learned"), seeds=1, thirds=False, base=config)
outcome = compare.compare(
    plan, "both", speed=False, show=lambda found: seen.append([one.state for one in found])
)
print(json.dumps([outcome.comparison is not None, len(outcome.failed), seen[-1:]]))
try:
    compare.compare(plan, "both", speed=False, workers=2)
except ValueError as error:
    print(error)
"""


def test_a_comparison_trains_one_run_after_the_other(small: RunConfig, tmp_path: Path) -> None:
    code = COMPARE.format(config=json.dumps(small.to_dict()))
    first, second = run_together(code, tmp_path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    answer, refused = first.out.splitlines()
    assert json.loads(answer) == [True, 0, [["done", "done"]]]
    assert second.out.splitlines() == [json.dumps([False, 0, []]), refused]
    assert refused.startswith("workers must be left out under torchrun and accelerate launch")
    names = {path.name for path in (tmp_path / "both").iterdir()}
    runs = {"rope-seed0", "learned-seed0"}
    assert names == {*runs, ".lock", "comparison.json", "report.md", "report.html"}
    for name in runs:
        Run(tmp_path / "both" / name).verify()


ROWS = """
import json
from pathlib import Path
from whorl.lab.compare import pool, together
from whorl.processes import open_processes

class Row:
    worker = "a module"
    def __init__(self, name): self.name = name
    def is_finished(self, folder, about): return self.name == "b"
    def build_request(self, folder): raise AssertionError

def run_alone(jobs, folder, about, *, workers, show, force, command):
    print(*(job.name for job in jobs))
    return [pool.RunStatus(job.name, "failed" if job.name == "d" else "done") for job in jobs]

together.run_all = run_alone
with open_processes() as processes:
    jobs = [Row(name) for name in "abcde"]
    found = together.run_together(jobs, Path("."), {}, processes, show=lambda statuses: None)
    print(*(one.state for one in found))
"""


def test_rows_that_are_no_runs_are_taken_in_turn(tmp_path: Path) -> None:
    ends = run_together(ROWS, tmp_path)
    states = "done done done failed done"
    assert [one.out.splitlines() for one in ends] == [["a d", states], ["c e", states]], ends


SEARCH = """
import json
from whorl.lab import RunConfig
from whorl.lab.compare import search_rates
config = RunConfig.from_dict(json.loads({config!r}))
found = search_rates(["rope"], config, "search", trials=2)
print(json.dumps([[one.rates, one.loss] for one in found.trials["rope"]]))
try:
    search_rates(["rope"], config, "search", trials=2, workers=2)
except ValueError as error:
    print(error)
"""


def test_a_search_trains_one_trial_after_the_other(small: RunConfig, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    first, second = run_together(SEARCH.format(config=json.dumps(small.to_dict())), tmp_path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.out == second.out
    trials, refused = first.out.splitlines()
    assert refused.startswith("workers must be left out under torchrun and accelerate launch")
    names = {path.name for path in (tmp_path / "search").iterdir()}
    assert names == {".lock", "rope-trial0", "rope-trial1", "search.json", "study.sqlite3"}
    alone = search_rates(["rope"], small, tmp_path / "alone", trials=2, workers=1).trials["rope"]
    for (rates, loss), expected in zip(json.loads(trials), alone, strict=True):
        assert rates == expected.rates
        assert loss == pytest.approx(expected.loss, abs=1e-4)


def test_a_full_disk_ends_all_processes(small: RunConfig, tmp_path: Path) -> None:
    """/dev/full takes nothing, and a file that is closed there fails once more."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    fill = "loop.Run.open_metrics = lambda run, step: open('/dev/full', 'w')"
    first, second = run_together(write_train([(small, "run", {})], fill), tmp_path)
    assert (first.code, second.code) == (1, 1)
    words = (
        "the metrics of step 1 could not be written to 'run' (No space left on device); there is no"
        " checkpoint yet. Free some space and train again to resume"
    )
    assert words in first.err
    assert "LostProcess: " in second.err  # the first one holds the store that the reason is in
    with use_threads(1):
        train(small, tmp_path / "run").verify()
