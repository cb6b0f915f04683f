"""What a run that goes on keeps: its numbers, wherever it was stopped, and a record of it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from whorl.lab import Interrupted, Run, RunConfig, TrainingProgress, runs, train, use_threads
from whorl.lab.compare import rewrite_report
from whorl.lab.environment import describe_environment

from .damaged import interrupt_at

pytestmark = pytest.mark.usefixtures("interruptible")


def test_lines_after_the_checkpoint_are_no_damage(half: Run, small: RunConfig) -> None:
    """A kill comes after some lines and before the checkpoint; those lines are written anew."""
    with open(half.metrics_path, "a") as file:
        file.write('{"step": 6, "loss": 1.0}\n{"step": 7, "lo')
    half.verify()
    train(small, half.folder)
    half.verify()
    assert len(half.read_metrics()) == 8


@pytest.mark.slow
def test_every_resume_is_recorded(
    half: Run, small: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TrainingProgress] = []
    with pytest.raises(Interrupted):
        train(small, half.folder, progress=interrupt_at(6), command="again")
    (resume,) = json.loads(half.environment_path.read_text())["resumes"]
    assert (resume["step"], resume["command"], resume["threads"]) == (5, "again", 1)
    assert {"torch", "cpu", "kernel", "whorl"} <= resume.keys()
    assert half.describe_environment_changes() == []
    monkeypatch.setattr(
        runs,
        "describe_environment",
        lambda command: {**describe_environment(command), "torch": "9"},
    )
    with use_threads(2):
        train(small, half.folder, progress=seen.append)
    monkeypatch.undo()
    notes = [moment.note for moment in seen if moment.note]
    assert notes == half.describe_environment_changes()
    expected = r"resumed at step 6 in another environment \(torch .* -> 9, threads 1 -> 2\): from"
    assert re.match(expected, notes[0])
    found = rewrite_report(half.folder.parent)
    assert found["notes"][-1] == f"run {notes[0]}."
    assert not {"resumes", "checksum", "config", "format"} & found["environment"].keys()
    train(small, half.folder)  # finished: nothing to go on with
    assert len(json.loads(half.environment_path.read_text())["resumes"]) == 2
    train(small, half.folder, scalings=("yarn",))
    assert half.describe_environment_changes()[1].startswith(
        "resumed at step 8 in another environment"
    )


def test_a_run_without_a_checkpoint_starts_anew(half: Run, small: RunConfig) -> None:
    half.checkpoint_path.unlink()
    train(small, half.folder)
    (resume,) = json.loads(half.environment_path.read_text())["resumes"]
    assert resume["step"] == 0
    half.verify()


KILLED_ANYWHERE = """
import json, os, signal, sys, torch
from pathlib import Path
from whorl.lab import Run, RunConfig, loop, train
torch.set_num_threads(1)
loop._SECONDS_BETWEEN_CHECKPOINTS = 0.0
job = json.load(sys.stdin)
config = RunConfig.from_dict(job["config"])
events = ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir")

def in_child(folder, kill):
    child = os.fork()
    if child == 0:
        left = kill
        def count(event, args):
            nonlocal left
            if event in events and args and folder in str(args[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        try:
            train(config, folder)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

train(config, f"{job['folder']}/first")  # loads what takes long before the processes part
for kill in range(1, 10_000, job["stride"]):
    folder = f"{job['folder']}/{kill}"
    code = in_child(folder, kill)
    again = in_child(folder, kill // 2 + 3)  # and once more while it goes on
    end = in_child(folder, 0)
    assert {code, again} <= {0, -9} and end == 0, (kill, code, again, end)
    run = Run(folder)
    run.verify()
    losses = [line["loss"] for line in run.read_metrics()]
    found = {n: one["windows"] for n, one in run.read_evaluation()["by_length"].items()}
    print(json.dumps([kill, code, losses, found, sorted(os.listdir(folder))]), flush=True)
    if code == 0:
        break
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_any_event_of_the_file_system(small: RunConfig, tmp_path: Path) -> None:
    """And killed again while it goes on: no kill is taken for damage, and the end is the same.

    Every third event, for time; a stride of 1 tries all.
    """
    config = replace(small, training=replace(small.training, steps=3, warmup=1))
    job = {"folder": str(tmp_path), "config": config.to_dict(), "stride": 3}
    done = subprocess.run(
        [sys.executable, "-c", KILLED_ANYWHERE],
        input=json.dumps(job),
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    *killed, last = (json.loads(line) for line in done.stdout.splitlines())
    assert len(killed) > 8
    assert last[1] == 0
    assert all(one[2:] == last[2:] for one in killed)
