"""Training: the same numbers again, after Ctrl-C, after kill -9, and nothing half-written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import DataConfig, Interrupted, Model, Run, RunConfig, TrainingProgress, train
from whorl.lab import loop as module

SAME = ("step", "loss", "learning_rate", "gradient_norm", "gradient_norms", "validation_loss")


pytestmark = pytest.mark.usefixtures("interruptible")


def numbers(run: Run) -> list[Any]:
    """All that must be equal: every step's numbers, and every result."""
    steps = [[line[name] for name in SAME] for line in run.read_metrics()]
    found = run.read_evaluation()
    assert found is not None
    for result in found["by_length"].values():
        del result["seconds"]
    return [steps, found["by_length"], found["by_position"]]


@pytest.fixture
def whole(trained: Path, tmp_path: Path) -> Run:
    """A finished run: a copy of one that was trained for all tests."""
    run = Run(shutil.copytree(trained, tmp_path / "whole"))
    run.evaluation_path("yarn").unlink()
    return run


def test_a_run(whole: Run) -> None:
    lines = whole.read_metrics()
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["validation_loss"] < lines[0]["validation_loss"]
    assert set(lines[0]["gradient_norms"]) == {"attention", "embedding", "head", "mlp", "norms"}
    squares = sum(norm**2 for norm in lines[0]["gradient_norms"].values())
    assert squares == pytest.approx(lines[0]["gradient_norm"] ** 2, rel=1e-2)
    found = whole.read_evaluation()
    assert found is not None
    assert list(found["by_length"]) == ["16", "32", "128"]
    at = found["by_length"]["32"]
    assert at["loss"] == pytest.approx(sum(at["windows"]) / len(at["windows"]), abs=1e-5)
    assert found["by_position"]["position"][-1] > 100
    assert {path.name for path in whole.folder.iterdir()} == {
        ".lock",
        "checkpoint.safetensors",
        "config.toml",
        "environment.json",
        "evaluation.json",
        "metrics.jsonl",
    }
    saved = json.loads((whole.folder / "environment.json").read_text())
    assert saved["corpus"]["files"] == 20
    assert saved["threads"] == 1


def test_it_is_the_same_again(whole: Run, small: RunConfig, tmp_path: Path) -> None:
    assert numbers(train(small, tmp_path / "again")) == numbers(whole)
    seeded = replace(small, training=replace(small.training, seed=1))
    assert numbers(train(seeded, tmp_path / "other"))[0] != numbers(whole)[0]


def test_a_finished_run_is_left_alone(whole: Run, small: RunConfig) -> None:
    seen: list[TrainingProgress] = []
    before = whole.metrics_path.stat().st_mtime_ns
    train(small, whole.folder, progress=seen.append)
    assert seen == []
    assert whole.metrics_path.stat().st_mtime_ns == before


@pytest.mark.parametrize("stop_at", [1, 5, 8])
def test_ctrl_c_and_on(small: RunConfig, whole: Run, tmp_path: Path, stop_at: int) -> None:
    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", stop_at):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(small, tmp_path / "run", progress=interrupt)
    assert [line["step"] for line in Run(tmp_path / "run").read_metrics()] == list(
        range(1, stop_at + 1)
    )
    run = train(small, tmp_path / "run")
    assert numbers(run) == numbers(whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_dropout_resumes_exactly(small: RunConfig, tmp_path: Path) -> None:
    config = replace(small, model=replace(small.model, dropout=0.2))
    test_ctrl_c_and_on(config, train(config, tmp_path / "whole"), tmp_path, 3)


KILLED = """
import json, os, signal, sys, torch
from whorl.lab import Model, Run, RunConfig, loop, train
from whorl.lab.checkpoint import read_checkpoint
torch.set_num_threads(1)
loop._SECONDS_BETWEEN_CHECKPOINTS = 0.0
job = json.load(sys.stdin)
config, folder = RunConfig.from_dict(job["config"]), job["folder"]

def in_child(kill):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = 0
    def count(event, args):
        # Any moment will do: at the n-th file that is opened, renamed or removed, the process dies.
        nonlocal calls
        if event in ("open", "os.rename", "os.remove") and folder in str(args[0]):
            calls += 1
            if calls == kill:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    train(config, folder)
    os._exit(0)

train(config, folder + "-first")  # loads what takes long before the processes part
for kill in job["kills"]:
    code = in_child(kill)
    step = None
    if Run(folder).checkpoint_path.exists():
        saved = read_checkpoint(Run(folder).checkpoint_path)
        saved.load_weights(Model(config.model, vocab=256, longest=config.longest))
        step = saved.info.step
    print(json.dumps([code, step]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_kill_9_at_many_moments(small: RunConfig, whole: Run, tmp_path: Path) -> None:
    """A run that is killed again and again, each time a little later, ends as if it never was."""
    folder = tmp_path / "killed"
    kills = [1, 3, 5, 8, 9, 14, 10_000]
    job = {"folder": str(folder), "config": small.to_dict(), "kills": kills}
    done = subprocess.run(
        [sys.executable, "-c", KILLED], input=json.dumps(job), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    *killed, last = (json.loads(line) for line in done.stdout.splitlines())
    assert {code for code, _ in killed} <= {0, -signal.SIGKILL}
    assert killed[0] == [-signal.SIGKILL, None]
    assert all(step is None or step >= 1 for _, step in killed)
    assert last == [0, 8]
    assert numbers(Run(folder)) == numbers(whole)
    assert not list(folder.glob(".*.part"))


def test_a_line_that_was_cut_off(small: RunConfig, whole: Run, tmp_path: Path) -> None:
    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", 4):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(small, tmp_path / "run", progress=interrupt)
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    assert numbers(train(small, tmp_path / "run")) == numbers(whole)


def test_another_config_is_refused(whole: Run, small: RunConfig) -> None:
    other = replace(small, model=replace(small.model, encoding="alibi"))
    with pytest.raises(
        ValueError,
        match=r"whole' holds another run: model.encoding is 'rope' there, 'alibi' here. Choose",
    ):
        train(other, whole.folder)
    assert whole.read_evaluation() is not None
    train(other, whole.folder, force=True)
    assert whole.load_config() == other


def test_another_text_is_refused(small: RunConfig, texts: Path, tmp_path: Path) -> None:
    config = replace(small, data=DataConfig(files=(str(texts),)))
    train(config, tmp_path / "run")
    (texts / "text00.txt").write_text("other words " * 50)
    with pytest.raises(ValueError, match=r"holds another run: its text differs"):
        train(config, tmp_path / "run")


def test_a_folder_with_other_things_is_refused(small: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("x")
    for force in (False, True):
        with pytest.raises(
            ValueError, match=r"is neither empty nor the folder of a run \(it has 'chapter1"
        ):
            train(small, tmp_path / "thesis", force=force)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("checkpoint.safetensors", "short", r"is damaged: .*checkpoint.safetensors' cannot be rea"),
        (
            "metrics.jsonl",
            '{"x": 1}\n',
            r"is damaged: metrics.jsonl, line 1, is not that of step 1",
        ),
        ("metrics.jsonl", "", r"is damaged: metrics.jsonl does not hold the 8 steps of the check"),
        ("evaluation.json", "{}", r"is damaged: evaluation.json lacks by_length"),
        ("evaluation.json", "null", r"is damaged: evaluation.json must hold an object"),
        ("evaluation-x.json", "7", r"is damaged: evaluation-x.json must hold an object"),
        ("environment.json", "[]", r"is damaged: "),
        ("environment.json", "[", r"is damaged: .*environment.json' cannot be read"),
    ],
)
def test_a_damaged_run(whole: Run, small: RunConfig, name: str, text: str, message: str) -> None:
    expected = numbers(whole)
    (whole.folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        train(small, whole.folder)
    assert numbers(train(small, whole.folder, force=True)) == expected


def test_a_config_of_others_is_never_deleted(small: RunConfig, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "config.toml").write_text("[server]\nport = 80\n")
    (folder / "metrics.jsonl").write_text("mine")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"server' is not the folder of a run, or its config"):
            train(small, folder, force=force)
    assert (folder / "metrics.jsonl").read_text() == "mine"


def test_a_damaged_config_is_named_by_all_that_reads_it(whole: Run, small: RunConfig) -> None:
    text = whole.config_path.read_text()
    whole.config_path.write_text(text.replace("clip = ", "clmp = "))
    said = (
        r"' is not the folder of a run, or its config.toml was changed: \[training\] has no option"
    )
    for read in (whole.verify, whole.load_model, lambda: train(small, whole.folder)):
        with pytest.raises(ValueError, match=rf"{whole.folder.name}{said} 'clmp'"):
            read()


def test_metrics_that_cannot_be_read_are_damage(whole: Run) -> None:
    whole.metrics_path.unlink()
    whole.metrics_path.mkdir()
    with pytest.raises(ValueError, match=r"is damaged: .*metrics.jsonl' cannot be read: Is a dir"):
        whole.verify()


def test_force_is_finished_after_a_crash(whole: Run, small: RunConfig) -> None:
    """Killed while it deletes the other run, the next call takes the folder."""
    whole.config_path.unlink()
    other = replace(small, model=replace(small.model, encoding="alibi"))
    train(other, whole.folder)
    assert whole.load_config() == other


def test_files_of_others_are_left_alone(small: RunConfig, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".film.part").write_text("mine")
    (folder / ".metrics.jsonl.part").write_text("ours, of a process that was killed")
    train(small, folder)
    assert [path.name for path in folder.glob(".*.part")] == [".film.part"]


def test_a_folder_in_use_is_refused(small: RunConfig, tmp_path: Path) -> None:
    def again(moment: TrainingProgress) -> None:
        with pytest.raises(ValueError, match=r"is in use by another process; wait for it"):
            train(small, tmp_path / "run")

    train(small, tmp_path / "run", progress=again)


def test_a_full_disk(small: RunConfig, whole: Run, tmp_path: Path, monkeypatch: Any) -> None:
    """The last checkpoint stays, the message says what to do, and the run goes on."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 16:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"\(No space left on device\); the last checkpoint is complete"
    ):
        train(small, tmp_path / "run")
    monkeypatch.undo()
    torch.set_num_threads(1)
    assert not list((tmp_path / "run").glob("*.part"))
    assert numbers(train(small, tmp_path / "run")) == numbers(whole)


def test_divergence_is_said(small: RunConfig, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Model, "loss", lambda *a: torch.tensor(float("nan")).requires_grad_())
    with pytest.raises(ValueError, match=r"training diverged at step 1: the loss is nan"):
        train(small, tmp_path / "run")


def test_bfloat16(small: RunConfig, tmp_path: Path) -> None:
    config = replace(small, training=replace(small.training, precision="bfloat16"))
    run = train(config, tmp_path / "run")
    assert run.read_metrics()[-1]["loss"] < run.read_metrics()[0]["loss"]


def test_scalings_are_evaluated_too(whole: Run, small: RunConfig, tmp_path: Path) -> None:
    run = train(small, whole.folder, scalings=("yarn", "dynamic_ntk"))
    plain, yarn, dynamic = (run.read_evaluation(name) for name in (None, "yarn", "dynamic_ntk"))
    assert plain is not None
    assert yarn is not None
    assert dynamic is not None
    assert yarn["by_length"]["128"]["loss"] != plain["by_length"]["128"]["loss"]
    assert dynamic["by_length"]["32"]["loss"] == plain["by_length"]["32"]["loss"]
    assert dynamic["by_length"]["128"]["loss"] != plain["by_length"]["128"]["loss"]
    with pytest.raises(ValueError, match=r"scalings: 'longrope' cannot be applied to a trained"):
        train(small, whole.folder, scalings=("longrope",))
    alibi = replace(small, model=replace(small.model, encoding="alibi"))
    with pytest.raises(
        ValueError, match=r"'yarn' needs a rotary encoding without a scaling, such as rope"
    ):
        train(alibi, tmp_path / "other", scalings=("yarn",))


def test_progress(small: RunConfig, tmp_path: Path) -> None:
    seen: list[TrainingProgress] = []
    train(small, tmp_path / "run", scalings=("yarn",), progress=seen.append)
    assert [m.done for m in seen if m.phase == "training"] == list(range(1, 9))
    assert {m.phase for m in seen} == {"training", "evaluation", "evaluation with yarn"}
    assert all(m.done == m.total for m in seen if m is seen[-1])
    assert seen[7].seconds_left == 0
    assert all(m.tokens_per_second for m in seen[:8])
