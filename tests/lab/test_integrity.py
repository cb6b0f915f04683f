"""Damage to a run is refused by name: no flipped bit and no edit is trained on or reported."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from whorl.lab import Run, RunConfig, export_run, train
from whorl.lab.attention import compute_attention
from whorl.lab.checkpoint import read_checkpoint
from whorl.lab.compare import rewrite_report
from whorl.lab.integrity import FORMAT, check_format, compute_tensor_checksum, write_checked

from .damaged import Edit, contents, flip, lines, replaced, tell, without

safetensors = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.usefixtures("interruptible")

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
