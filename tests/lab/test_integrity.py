"""Damage to a run is refused by name: no flipped bit and no edit is trained on or reported."""

import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import (
    Interrupted,
    Run,
    RunConfig,
    TrainingProgress,
    checkpoint,
    export_run,
    runs,
    train,
    use_threads,
)
from whorl.lab.attention import compute_attention
from whorl.lab.checkpoint import read_checkpoint
from whorl.lab.compare import rewrite_report
from whorl.lab.environment import describe_environment
from whorl.lab.integrity import FORMAT, check_format, compute_tensor_checksum, write_checked

safetensors = pytest.importorskip("safetensors.torch")

Edit = Callable[[Path], None]


def interrupt_at(step: int) -> Callable[[TrainingProgress], None]:
    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", step):
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stopped(small: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped at step 5 of 8, to be copied."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with use_threads(1), pytest.raises(Interrupted):
        train(small, folder, progress=interrupt_at(5))
    signal.signal(signal.SIGINT, handler)
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture
def whole(trained: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(trained, tmp_path / "run"))


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def flip(name: str) -> Edit:
    """One bit of a tensor's data."""

    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        tensors[name].reshape(-1).view(torch.uint8)[-1] ^= 1
        path.write_bytes(safetensors.save(tensors, about))

    return edit


def tell(**changes: str) -> Edit:
    """Another step, another time, in the header."""

    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        path.write_bytes(safetensors.save(tensors, about | changes))

    return edit


def without(name: str) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        del tensors[name]
        path.write_bytes(safetensors.save(tensors, about))

    return edit


def replaced(file: str, pattern: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / file).read_text()
        changed, count = re.subn(pattern, new, text, count=1)
        assert count == 1
        assert changed != text
        (folder / file).write_text(changed)

    return edit


def lines(change: Callable[[list[str]], list[str]]) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "metrics.jsonl"
        text = "".join(change(path.read_text().splitlines(keepends=True)))
        path.write_bytes(text.encode(errors="surrogateescape"))

    return edit


WEIGHT = "model.blocks.0.qkv.weight"
DAMAGE: list[tuple[Edit, str]] = [
    (flip(WEIGHT), f"checkpoint.safetensors: the tensor '{WEIGHT}' has been changed since"),
    (flip("optimizer.exp_avg.norm.weight"), r"the tensor 'optimizer.exp_avg.norm.weight' has"),
    (flip("optimizer.exp_avg_sq.embedding.weight"), r"the tensor .optimizer.exp_avg_sq.emb"),
    (flip("optimizer.momentum_buffer.blocks.0.qkv.weight"), r"momentum_buffer.blocks.0.qkv"),
    (flip("optimizer.step.norm.weight"), r"the tensor 'optimizer.step.norm.weight' has"),
    (tell(step="4"), r"checkpoint.safetensors has been changed .* checksum of its step, seconds"),
    (tell(seconds="0.5"), r"checkpoint.safetensors has been changed since it was written"),
    (tell(metrics="0"), r"checkpoint.safetensors has been changed since it was written"),
    (without(WEIGHT), rf"has tensors that it should not, or lacks some: {WEIGHT}"),
    (replaced("metrics.jsonl", r'"step": 3, "loss": \d', '"step": 3, "loss": 7'), r"line 3, has b"),
    (replaced("metrics.jsonl", r'"seconds": \d', '"seconds": 9'), r"metrics.jsonl, line 1, has be"),
    (lines(lambda all_: all_[:1] + all_[2:]), r"metrics.jsonl, line 2, is not that of step 2"),
    (lines(lambda all_: [all_[1], all_[0], *all_[2:]]), r"metrics.jsonl, line 1, is not that of"),
    (lines(lambda all_: all_[:3]), r"steps of the checkpoint: line 4 is missing or cannot be read"),
    (lines(lambda all_: ["\udcff\n", *all_]), r"line 1 is missing or cannot be read"),
    (replaced("environment.json", r'"threads": \d+', '"threads": 99'), r"environment.json has b"),
    (replaced("environment.json", r'"checksum": ".', '"checksum": "x'), r"environment.json has b"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_damage_is_refused_on_resuming(half: Run, small: RunConfig, number: int) -> None:
    edit, message = DAMAGE[number]
    edit(half.folder)
    whole = rf"run' is damaged: .*{message}.* Choose another folder, or pass force=True to"
    with pytest.raises(ValueError, match=whole):
        train(small, half.folder)
    with pytest.raises(ValueError, match=rf"is damaged: .*{message}.* Delete that folder, and tra"):
        half.verify()


RESULTS: list[tuple[Edit, str]] = [
    (replaced("evaluation.json", r'"loss": \d', '"loss": 0'), r"evaluation.json has been changed"),
    (replaced("evaluation-yarn.json", r'"loss": \d', '"loss": 0'), r"evaluation-yarn.json has bee"),
    (replaced("evaluation.json", r'"checkpoint": ".', '"checkpoint": "x'), r"evaluation.json ha"),
    (lines(lambda all_: [*all_, all_[-1]]), r"metrics.jsonl has lines after step 8, the last"),
    *DAMAGE,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_damage_is_refused_by_all_that_reads_a_run(
    whole: Run, small: RunConfig, tmp_path: Path, number: int
) -> None:
    edit, message = RESULTS[number]
    edit(whole.folder)
    damaged = rf"run' is damaged: .*{message}"
    for read in (
        lambda: train(small, whole.folder),
        lambda: rewrite_report(whole.folder.parent),
        lambda: export_run(whole, tmp_path / "hf"),
        lambda: compute_attention(whole.folder),
    ):
        with pytest.raises(ValueError, match=damaged):
            read()
    assert not whole.is_finished(small, {})
    assert not (tmp_path / "hf").exists()
    assert not (whole.folder.parent / "report.md").exists()


@pytest.mark.slow
def test_any_flipped_bit_of_a_checkpoint_is_seen(half: Run) -> None:
    """Sizes, names, offsets, checksums and data: a thousand bits, one at a time."""
    data, chosen = half.checkpoint_path.read_bytes(), random.Random(0)
    start = 8 + int.from_bytes(data[:8], "little")
    places = [*range(64), *(chosen.randrange(8 * start) for _ in range(700))]
    places += [chosen.randrange(8 * start, 8 * len(data)) for _ in range(300)]
    for place in places:
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        half.checkpoint_path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors"):
            read_checkpoint(half.checkpoint_path)


def test_parts_of_other_runs_are_refused(half: Run, small: RunConfig, tmp_path: Path) -> None:
    """Whole files that do not belong together: of another seed, of an earlier moment."""
    seeded = replace(small, training=replace(small.training, seed=1))
    other = train(seeded, tmp_path / "other")
    for name, message in (
        ("checkpoint.safetensors", r"checkpoint.safetensors belongs to another config"),
        ("metrics.jsonl", r"metrics.jsonl holds the steps of another run than the checkpoint"),
        ("config.toml", r"config.toml has been changed since the run began"),
        ("evaluation.json", r"evaluation.json belongs to other weights than the checkpoint"),
    ):
        kept = tmp_path / "kept"
        shutil.copytree(half.folder, kept, dirs_exist_ok=True)
        shutil.copy(other.folder / name, half.folder / name)
        with pytest.raises(ValueError, match=rf"run' is damaged: {message}"):
            half.verify()
        shutil.rmtree(half.folder)
        kept.rename(half.folder)
    half.verify()


def test_results_of_another_scaling_are_refused(whole: Run) -> None:
    shutil.copy(whole.evaluation_path("yarn"), whole.evaluation_path())
    with pytest.raises(ValueError, match=r"damaged: evaluation.json belongs to another scaling: y"):
        whole.verify()


def test_lines_after_the_checkpoint_are_no_damage(half: Run, small: RunConfig) -> None:
    """A kill comes after some lines and before the checkpoint; those lines are written anew."""
    with open(half.metrics_path, "a") as file:
        file.write('{"step": 6, "loss": 1.0}\n{"step": 7, "lo')
    half.verify()
    train(small, half.folder)
    half.verify()
    assert len(half.read_metrics()) == 8


def test_runs_of_the_first_version_are_refused(half: Run, small: RunConfig, tmp_path: Path) -> None:
    """Which had no checksums: neither in environment.json nor, with format 1, in the checkpoint."""
    kept = tmp_path / "kept"
    shutil.copytree(half.folder, kept)
    found = json.loads(half.environment_path.read_text())
    old = {k: v for k, v in found.items() if k not in ("format", "checksum", "config", "resumes")}
    half.environment_path.write_text(json.dumps(old))
    message = r"run' is a run of another version: environment.json was written by whorl 0\.1\.0, wh"
    with pytest.raises(ValueError, match=rf"{message}.* or pass force=True to delete that run and"):
        train(small, half.folder)
    with pytest.raises(ValueError, match=message):
        rewrite_report(half.folder.parent)
    tensors, about = contents(kept / "checkpoint.safetensors")
    old = {"format": "1", "step": about["step"], "seconds": about["seconds"]}
    (kept / "checkpoint.safetensors").write_bytes(safetensors.save(tensors, old))
    message = (
        r"damaged: checkpoint.safetensors was written by whorl 0\.1\.0, which stored no checks"
    )
    with pytest.raises(ValueError, match=message):
        train(small, kept)
    train(small, half.folder, force=True)
    half.verify()


def test_later_formats_are_refused(half: Run, small: RunConfig) -> None:
    found = json.loads(half.environment_path.read_text())
    half.environment_path.write_text(json.dumps(found | {"format": FORMAT + 1}))
    with pytest.raises(ValueError, match=r"is damaged: environment.json has been changed"):
        half.verify()
    write_checked(half.environment_path, found | {"format": FORMAT + 1})
    message = (
        rf"is a run of another version: environment.json has format '{FORMAT + 1}', and whorl .*"
        rf" reads {FORMAT};"
    )
    with pytest.raises(ValueError, match=message):
        train(small, half.folder)
    with pytest.raises(ValueError, match=r"x has format 'a+', and whorl .*; use the version that"):
        check_format("a" * 5000, "x")
    tell(format=str(FORMAT + 1))(half.folder)
    with pytest.raises(ValueError, match=rf"checkpoint.safetensors has format '{FORMAT + 1}'"):
        read_checkpoint(half.checkpoint_path)


def test_other_safetensors_are_no_checkpoints(half: Run) -> None:
    half.checkpoint_path.write_bytes(safetensors.save({"x": torch.ones(2)}))
    with pytest.raises(ValueError, match=r"cannot be read: it is not a checkpoint of whorl train"):
        read_checkpoint(half.checkpoint_path)


def test_a_tensors_type_and_shape_count() -> None:
    ones = torch.ones(4, 2)
    found = {
        compute_tensor_checksum(one)
        for one in (ones, ones.T, ones.view(torch.int32), ones[:2], ones.bfloat16(), ones[:0])
    }
    assert len(found) == 6
    assert compute_tensor_checksum(ones.T.contiguous()) == compute_tensor_checksum(ones.T)
    assert compute_tensor_checksum(torch.tensor(1.0)) != compute_tensor_checksum(
        torch.tensor([1.0])
    )


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


def test_hashing_reads_every_tensor_once(half: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in proportion to the file: no tensor is hashed twice on one view."""
    seen: list[int] = []

    def count(tensor: torch.Tensor) -> str:
        seen.append(tensor.numel())
        return compute_tensor_checksum(tensor)

    monkeypatch.setattr("whorl.lab.checkpoint.compute_tensor_checksum", count)
    assert read_checkpoint(half.checkpoint_path).info.step == 5
    assert len(seen) == len(contents(half.checkpoint_path)[0])


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


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that are opened as safetensors, and of tensors that get a checksum."""
    found: list[str] = []
    module = importlib.import_module("safetensors")
    opener, summed = module.safe_open, compute_tensor_checksum

    def open_file(path: Path, **options: Any) -> Any:
        found.append(Path(path).name)
        return opener(path, **options)

    def sum_tensor(tensor: torch.Tensor) -> str:
        found.append("tensor")
        return summed(tensor)

    monkeypatch.setattr(module, "safe_open", open_file)
    monkeypatch.setattr(checkpoint, "compute_tensor_checksum", sum_tensor)
    return found


def test_a_resumed_run_reads_its_checkpoint_once(
    half: Run, small: RunConfig, reads: list[str]
) -> None:
    count = len(contents(half.checkpoint_path)[0])
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))
    # Once to go on, and once more all tensors of the checkpoint at the end are given checksums.
    assert reads == ["checkpoint.safetensors", *["tensor"] * 2 * count]
    assert run.take_checkpoint() is None  # and it is not kept in memory
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))  # whose results are there already
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]
    assert run.take_checkpoint() is None
    run.evaluation_path("yarn").unlink()
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]
    run.verify()


@pytest.mark.parametrize("use", ["model", "attention"])
def test_a_trained_model_is_read_once(whole: Run, reads: list[str], use: str) -> None:
    count = len(contents(whole.checkpoint_path)[0])
    reads.clear()
    if use == "model":
        whole.load_model()
    else:
        compute_attention(whole.folder, windows=1)
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]


def test_a_run_that_did_not_fit_is_forgotten(half: Run, small: RunConfig) -> None:
    assert not half.is_finished(small, {"sha256": "another"})
    assert half.take_checkpoint() is None
