"""Several processes fine-tune one model as one process does, in shards too, and with LoRA."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launched import run_together
from whorl.finetune import FineTuning, finetune_model
from whorl.lab import Run

pytest.importorskip("accelerate")
pytest.importorskip("peft")
pytestmark = pytest.mark.slow

TUNE = """
from whorl.finetune import FineTuning, finetune_model
for out, settings, shard in {calls!r}:
    found = finetune_model({run!r}, [], FineTuning(**settings), out, shard=shard, force=True)
    assert bool(found) == (rank == 0)
    print(found.get("loss_after"))
"""


def test_two_processes_tune_as_one(run: Path, tmp_path: Path) -> None:
    plain = FineTuning(method="linear", factor=2.0, steps=3, batch=3, accumulation=2)
    lora = replace(plain, lora=2)
    calls = [(name, one.to_dict(), shard) for name, one, shard in _list_ways(plain, lora)]
    first, second = run_together(TUNE.format(calls=calls, run=str(run)), tmp_path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    for name, settings, _ in _list_ways(plain, lora):
        finetune_model(run, [], settings, tmp_path / "one" / name)
        one, two = (Run(folder / name) for folder in (tmp_path / "one", tmp_path))
        two.verify()
        assert {x.name for x in one.folder.iterdir()} == {x.name for x in two.folder.iterdir()}
        losses = [[line["loss"] for line in each.read_metrics()] for each in (one, two)]
        assert losses[1] == pytest.approx(losses[0], abs=1e-5)
        reports = [json.loads((each.folder / "finetune.json").read_text()) for each in (one, two)]
        assert reports[1]["loss_after"] == pytest.approx(reports[0]["loss_after"], abs=1e-4)
        assert reports[1]["trained_parameters"] == reports[0]["trained_parameters"]


def _list_ways(plain: FineTuning, lora: FineTuning) -> list[tuple[str, FineTuning, bool]]:
    return [("whole", plain, False), ("shard", plain, True), ("lora", lora, True)]
