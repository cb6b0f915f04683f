"""Trained frequencies and gradient norms in the files of a run, and what is read from them."""

import dataclasses
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import Interrupted, Model, ModelConfig, Run, RunConfig, train, use_threads
from whorl.lab.history import (
    _split_groups,
    list_trained_frequencies,
    read_frequencies,
    read_gradient_norms,
)
from whorl.plots import catalogue


@pytest.fixture(scope="module")
def learned(small: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = dataclasses.replace(small.model, encoding="rope(frequencies=trained,base=100)")
    with use_threads(1):
        return train(
            dataclasses.replace(small, model=model), tmp_path_factory.mktemp("history") / "run"
        )


def test_a_run_keeps_its_frequencies(learned: Run) -> None:
    found = read_frequencies(learned.folder)
    assert found.name == "rope(frequencies=trained,base=100) in run"
    assert (found.groups, found.length, found.steps) == (("rope",), 32, tuple(range(1, 9)))
    assert found.start[0] == pytest.approx([100 ** (-2 * i / 16) for i in range(8)], rel=1e-5)
    rope: Any = learned.load_model().encoding
    alpha = rope.alpha.tolist()
    ends = [f * math.exp(a) for f, a in zip(found.start[0], alpha, strict=True)]
    assert found.values[-1][0] == pytest.approx(ends, rel=1e-4)
    assert any(abs(a) > 1e-3 for a in alpha)
    assert catalogue.numbers("trained-frequencies", run=str(learned.folder)) == found


def test_gradient_norms_by_part(learned: Run) -> None:
    found = read_gradient_norms(learned.folder)
    lines = learned.read_metrics()
    assert (found.per_point, found.clip) == (1, 1.0)
    assert found.values.keys() == {"attention", "embedding", "encoding", "head", "mlp", "norms"}
    assert found.steps == tuple(range(1, 9))
    assert list(found.values["mlp"]) == pytest.approx([x["gradient_norms"]["mlp"] for x in lines])
    assert found.clipped == sum(x["gradient_norm"] > 1 for x in lines) / 8
    assert catalogue.numbers("gradient-norms", run=str(learned.folder)) == found


def test_many_steps_are_averaged(learned: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.lab.history._MOST_POINTS", 3)
    found = read_gradient_norms(learned.folder)
    norms = [line["gradient_norms"]["mlp"] for line in learned.read_metrics()]
    assert found.per_point == 3
    assert found.steps == (2.0, 5.0, 7.5)
    assert found.values["mlp"][0] == pytest.approx(math.prod(norms[:3]) ** (1 / 3))


def test_a_resumed_run_has_the_same_frequencies(learned: Run, tmp_path: Path) -> None:
    config = learned.load_config()

    def stop(moment: Any) -> None:
        if moment.done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with use_threads(1):
        with pytest.raises(Interrupted):
            train(config, tmp_path / "run", progress=stop)
        again = train(config, tmp_path / "run")
    assert read_frequencies(again.folder) == read_frequencies(learned.folder)


def test_mixed_frequencies_have_a_group_for_each_head() -> None:
    config = ModelConfig(
        encoding="axial_rope(frequencies=mixed,num_kv_heads=2)", width=32, heads=2, layers=2
    )
    (values,) = list_trained_frequencies(Model(config, vocab=8, longest=32)).values()
    assert [len(values), len(values[0]), len(values[0][0])] == [2, 2, 8]  # head, axis, pair
    own = dataclasses.replace(config, encoding="rope(frequencies=trained)", encoding_per="layer")
    found = list_trained_frequencies(Model(own, vocab=8, longest=32))
    assert list(found) == ["rope, layer 1", "rope, layer 2"]
    assert list_trained_frequencies(Model(ModelConfig(), vocab=8, longest=32)) == {}


def test_mixed_frequencies_are_lengths_of_vectors() -> None:
    found = _split_groups({"axial_rope": [[[3.0, 0.0], [4.0, -2.0]]], "rope": [-1.0, 0.5]})
    assert found == {"axial_rope, head 0": (5.0, 2.0), "rope": (1.0, 0.5)}


def test_runs_without_any(trained: Path, small: RunConfig, tmp_path: Path) -> None:
    message = r"has no frequencies that were trained: its encoding is 'rope'\. Choose a run of rope"
    with pytest.raises(ValueError, match=message):
        read_frequencies(trained)
    assert all("frequencies" not in json.dumps(line) for line in Run(trained).read_metrics())
    run = Run(tmp_path / "new")
    run.folder.mkdir()
    run.prepare(small, {"sha256": "x"})
    with pytest.raises(ValueError, match=r"has no steps yet; train it first"):
        read_gradient_norms(run.folder)
