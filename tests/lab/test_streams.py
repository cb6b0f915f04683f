"""Loss along a stream: each policy against an independent computation, and what is stored."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import whorl
from whorl.lab import DataConfig, Model, Run, RunConfig, stream_run, train
from whorl.lab.decoding import CachePolicy
from whorl.lab.stream_runs import read_stream
from whorl.lab.streams import compute_policy_losses, measure_stream_loss

from .test_generate import randomized
from .test_model import tokens

JUDGED = torch.arange(0, 39, 3)


def losses_of(model: Model, text: torch.Tensor) -> torch.Tensor:
    """The loss of every token of texts, by one call of the model."""
    with torch.no_grad():
        return F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:], reduction="none")


def stream(model: Model, *policy: Any) -> torch.Tensor:
    return compute_policy_losses(model, tokens(40), CachePolicy(*policy), JUDGED)


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "sinusoidal", "mrope"])
def test_dense_is_the_model_on_the_whole_text(name: str) -> None:
    model = randomized(name)
    assert_equal(stream(model, "dense"), losses_of(model, tokens(40))[:, JUDGED])


@pytest.mark.parametrize("name", ["rope", "learned"])
def test_recomputed_is_the_model_on_each_window(name: str) -> None:
    model, text = randomized(name), tokens(40)
    found = stream(model, "recomputed", 7)
    for column, n in enumerate(JUDGED.tolist()):
        window = text[:, max(0, n - 6) : n + 2]
        assert_equal(found[:, column], losses_of(model, window)[:, -1])


@pytest.mark.parametrize("name", ["rope", "alibi", "xpos"])
def test_a_window_is_a_masked_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (randomized(name, layers=layers) for layers in (1, 2))
    assert_equal(stream(one, "window", 7), stream(one, "recomputed", 7))
    apart = stream(two, "window", 7) - stream(two, "recomputed", 7)
    assert apart.abs().max() > 1e-3  # deeper layers remember what was dropped
    found, attend = {n: stream(two, "window", n) for n in (6, 7)}, whorl.attention
    monkeypatch.setattr(whorl, "attention", lambda *a, **k: attend(*a, **k, window=7))
    expected = losses_of(two, tokens(40))[:, JUDGED]
    assert_equal(found[7], expected)
    with pytest.raises(AssertionError):  # a window of one key less is noticed
        assert_equal(found[6], expected)


def test_sinks_are_the_first_tokens_and_part_of_the_window() -> None:
    model, text = randomized("rope", layers=1), tokens(40)
    found = stream(model, "sinks", 8, 3)
    for column, n in enumerate(JUDGED.tolist()):
        held = text[:, : n + 1] if n < 8 else torch.cat((text[:, :3], text[:, n - 4 : n + 1]), 1)
        expected = losses_of(model, torch.cat((held, text[:, n + 1 : n + 2]), 1))[:, -1]
        assert_equal(found[:, column], expected)


def test_memory_is_bounded_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = randomized("rope")
    whole = {kind: stream(model, kind, 7) for kind in ("window", "recomputed")}
    monkeypatch.setattr("whorl.lab.streams._LOGITS_PER_PASS", 1)
    for kind, expected in whole.items():
        assert_equal(stream(model, kind, 7), expected)


def test_dynamic_frequencies_are_those_of_each_token() -> None:
    scaling = {"name": "dynamic_ntk", "factor": 2.0, "original_context": 8}
    model, text = randomized({"name": "rope", "scaling": scaling}, layers=1), tokens(40)
    found = stream(model, "dense")
    for column, n in enumerate(JUDGED.tolist()):
        assert_equal(found[:, column], losses_of(model, text[:, : n + 2])[:, -1])


def test_means_and_intervals() -> None:
    model, text = randomized("rope"), tokens(40)
    seen: list[tuple[int, int, str]] = []
    found = measure_stream_loss(
        model, text, trained_length=8, sinks=2, every=3, progress=lambda *now: seen.append(now)
    )
    assert [policy.name for policy in found.policies] == ["dense", "window", "sinks", "recomputed"]
    assert found.policies[2].keys == "2 sinks + 6 latest"
    assert (found.length, found.streams, found.window, found.beyond) == (39, 2, 8, 8)
    dense, recomputed = stream(model, "dense"), stream(model, "recomputed", 8)
    far = JUDGED >= 8
    rows = (dense - recomputed)[:, far].mean(1)
    difference = found.policies[0].difference
    assert difference is not None
    assert difference.loss == pytest.approx(float(rows.mean()))
    assert difference.high is not None
    # Student's t with one degree of freedom
    half = 12.706 * float(rows.std()) / 2**0.5
    assert difference.high - difference.loss == pytest.approx(half, rel=1e-3)
    assert found.policies[0].beyond.loss == pytest.approx(float(dense[:, far].mean()))
    assert found.policies[0].beyond.count == 2 * int(far.sum())
    assert found.policies[3].difference is None
    parts = found.policies[0].by_position
    assert [(part.start, part.end) for part in parts] == [
        *((n, n + 4) for n in range(0, 36, 4)),
        (36, 39),
    ]
    inside = (JUDGED >= 4) & (JUDGED < 8)
    assert parts[1].loss == pytest.approx(float(dense[:, inside].mean()))
    assert seen[-1] == (4 * 2 * len(JUDGED), 4 * 2 * len(JUDGED), "recomputed")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


@pytest.mark.parametrize(
    ("shape", "names", "reason"),
    [
        ({"encoding": "mrope"}, ["dense", "window", "recomputed"], "on 3 axes cannot be counted"),
        ({"encoding": "rope", "attention": "linear"}, ["dense", "recomputed"], "sums over all k"),
        ({"encoding": "learned"}, ["recomputed"], "at most 64 tokens with the cache 'sinks'"),
    ],
)
def test_policies_that_a_model_cannot_use(
    shape: dict[str, Any], names: list[str], reason: str
) -> None:
    found = measure_stream_loss(randomized(**shape), tokens(80), trained_length=8, every=20)
    assert [policy.name for policy in found.policies] == names
    assert reason in found.left_out["sinks"]


def test_texts_that_cannot_be_measured() -> None:
    model = randomized("rope")
    with pytest.raises(ValueError, match=r"more than 16 tokens, twice the trained length.*\[2, 16"):
        measure_stream_loss(model, tokens(16), trained_length=8)
    with pytest.raises(TypeError, match=r"text must be a tensor \[B, N \+ 1\] of int64; got \[3\]"):
        measure_stream_loss(model, torch.zeros(3), trained_length=8)
    with pytest.raises(ValueError, match=r"the model must be a decoder"):
        measure_stream_loss(randomized("rope", kind="encoder"), tokens(40), trained_length=8)
    with pytest.raises(ValueError, match=r"every must be a whole number of at least 1; got 0"):
        measure_stream_loss(model, tokens(40), trained_length=8, every=0)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_the_file_of_a_run(run: Path, small: RunConfig) -> None:
    with pytest.raises(ValueError, match=r"has no losses along a stream of its last weights; meas"):
        read_stream(run)
    found = stream_run(run, length="4x", streams=3)
    assert (found.length, found.trained_length, found.window, found.unit) == (128, 32, 32, "bytes")
    assert 1 <= found.streams <= 3
    assert read_stream(run) == found
    assert Run(run).verify() is not None
    written = json.loads((run / "stream.json").read_text())
    assert written["name"] == "rope"
    assert written["text"] == "held-out text of texts"
    again = train(small, run, scalings=("yarn",))  # the folder is still that of a finished run
    assert again.read_stream() is not None
    written["length"] = 5
    (run / "stream.json").write_text(json.dumps(written))
    with pytest.raises(ValueError, match=r"stream.json has been changed since it was written"):
        Run(run).verify()


def test_losses_of_other_weights_are_not_read(run: Path) -> None:
    stream_run(run, length=100, streams=1)
    path = run / "stream.json"
    from whorl.lab.integrity import read_checked, write_checked

    write_checked(path, {**read_checked(path), "checkpoint": "0" * 32})
    assert Run(run).read_stream() is None
    Run(run).clear()
    assert not path.exists()


def test_a_file_of_text(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_bytes(b"\xff" + b"a word and another. " * 30)
    found = stream_run(run, length=128, text=path)
    assert found.streams == 4  # 601 bytes
    model: Any = Run(run).load_model()
    text = torch.tensor(list(path.read_bytes()[: 4 * 129])).view(4, 129)
    assert found.every == 1
    beyond = float(losses_of(model, text)[:, 32:].mean())
    assert found.policies[0].beyond.loss == pytest.approx(beyond, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": "ten"}, r"length must be a number of tokens.*such as 10x; got 'ten'"),
        ({"streams": 0}, r"streams must be a whole number of at least 1; got 0"),
        (
            {"length": "1x"},
            r"^length must be at least 64, twice the trained length, because .*; got 32\.$",
        ),
        ({"length": 10**6}, r"needs a document of 1000001 bytes"),
        ({"text": "nowhere.txt"}, r"text: 'nowhere.txt' cannot be read: No such file"),
        ({"text": __file__, "length": 10**6}, r"tokens, and a stream needs 1000001; give a longer"),
    ],
)
def test_bad_options(run: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stream_run(run, **options)


def test_texts_of_the_run(small: RunConfig, texts: Path, tmp_path: Path) -> None:
    config = replace(small, data=DataConfig(files=(str(texts),)))
    train(config, tmp_path / "run")
    (texts / "text03.txt").write_text("other words\n" * 50)
    with pytest.raises(ValueError, match=r"other text than its files hold now.*pass text=FILE"):
        stream_run(tmp_path / "run")
    train(replace(small, data=DataConfig(task="copy")), tmp_path / "copy")
    with pytest.raises(ValueError, match=r"was trained on the task 'copy', whose rows are no text"):
        stream_run(tmp_path / "copy")
