"""``finetune_model``: the result, resuming, and each option against an independent computation."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import whorl
from tests.peers import needs_transformers_5
from whorl import lab
from whorl.finetune import FineTuning, FineTuningProgress, finetune_model, training
from whorl.finetune.folder_model import open_folder
from whorl.finetune.run_model import open_run
from whorl.lab.integrity import check_lines
from whorl.lab.runs import Run

pytestmark = needs_transformers_5

TINY: dict[str, Any] = {"factor": 4.0, "steps": 3, "batch": 2, "learning_rate": 1e-2}


def read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / "config.toml").is_file():
        return {n: w.detach() for n, w in Run(folder).load_model().named_parameters()}
    return dict(transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict())


@torch.no_grad()
def strengthen(module: torch.nn.Module) -> None:
    """Make matrices so large that attention and positions matter."""
    for weight in module.parameters():
        if weight.dim() == 2:
            weight.mul_(0.3 / float(weight.std()))


def test_a_folder_of_transformers(llama: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = finetune_model(llama, [text], FineTuning(**TINY), out)
    assert (report["trained"], report["target"], report["length"]) == (16, 64, 64)
    config = json.loads((out / "config.json").read_text())
    original = json.loads((llama / "config.json").read_text())
    assert config["rope_parameters"]["rope_type"] == "yarn"
    assert config["rope_parameters"]["original_max_position_embeddings"] == 16
    assert config["max_position_embeddings"] == 64
    assert config["hidden_size"] == original["hidden_size"]
    assert {p.name for p in llama.iterdir()} <= {p.name for p in out.iterdir()}
    assert not (tmp_path / "out.training").exists()
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(out)
    before = read_weights(llama)
    moved = [n for n, w in model.state_dict().items() if not torch.equal(w, before[n])]
    assert len(moved) == len(before)
    frequencies = whorl.RoPE.from_config(out).frequencies().inv_freq
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, frequencies.float())
    found = whorl.extend.plan_extension(out, to=64)
    assert (found.trained.tokens, found.claimed_already) == (16, True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    check_lines(lines, 3, lines[-1]["checksum"], "metrics.jsonl")
    norms = lines[0]["gradient_norms"]
    assert set(norms) == {"embedding", "attention", "mlp", "norms", "head"}
    assert lines[0]["gradient_norm"] == pytest.approx(
        sum(norm**2 for norm in norms.values()) ** 0.5, rel=1e-3
    )


def test_the_first_step_is_that_of_adam(llama: Path, text: Path, tmp_path: Path) -> None:
    """One step by hand, with torch's own clipping: the same weights."""
    settings = FineTuning(**{**TINY, "steps": 1, "accumulation": 2, "clip": 0.5})
    finetune_model(llama, [text], settings, tmp_path / "out")
    tuned = open_folder(llama, [text], settings)
    model: Any = tuned.module
    source = torch.Generator()
    for number in range(2):
        source.manual_seed(lab.model.derive_seed(0, "finetune", 1, number))
        rows = tuned.text.sample_windows(2, 64, source)
        logits = model(rows[:, :-1]).logits
        (F.cross_entropy(logits.mT, rows[:, 1:]) / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    rate = 1e-2 / 2  # in the only step of a line that falls to 0 after it
    torch.optim.AdamW(model.parameters(), rate, (0.9, 0.95), weight_decay=0.0).step()
    found = read_weights(tmp_path / "out")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-4)


def test_a_run(run: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = finetune_model(run, [], FineTuning(**TINY), out)
    assert (report["kind"], report["trained"], report["target"]) == ("run", 16, 64)
    result = Run(out)
    result.verify()
    config = result.load_config()
    assert config.training.length == 64
    assert config.model.encoding["scaling"]["factor"] == 4.0  # type: ignore[index, call-overload]
    assert config.lengths == [8, 16, 32, 64]
    model = result.load_model()
    assert isinstance(model, lab.Model)
    assert model.encoding.config.scaling == whorl.YaRN(4.0, 16)  # type: ignore[attr-defined]
    lines = result.read_metrics()
    assert set(lines[0]["gradient_norms"]) == {"embedding", "attention", "mlp", "norms", "head"}
    loaded = whorl.extend.evaluation.load_model(out)
    tokens = torch.tensor([list(b"boats on the wide river")])
    with torch.no_grad():
        own, theirs = model.eval()(tokens), loaded.model(tokens).logits
    torch.testing.assert_close(theirs, own, rtol=1e-3, atol=1e-3)
    again = finetune_model(out, [text], FineTuning(**{**TINY, "factor": 8.0}), tmp_path / "more")
    assert (again["trained"], again["target"]) == (16, 128)


@pytest.mark.parametrize("kind", ["llama", "run"])
@pytest.mark.parametrize("lora", [None, 2])
def test_a_stopped_training_gives_the_same_bits(
    kind: str, lora: int | None, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    settings = FineTuning(**{**TINY, "steps": 5, "lora": lora})
    finetune_model(model, [text], settings, tmp_path / "whole")

    def stop_after_two(moment: FineTuningProgress) -> None:
        if moment.done == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    out = tmp_path / "stopped"
    with pytest.raises(lab.Interrupted):
        finetune_model(model, [text], settings, out, progress=stop_after_two)
    assert not out.exists()
    seen: list[int] = []
    finetune_model(model, [text], settings, out, progress=lambda m: seen.append(m.done))
    assert seen == [3, 4, 5]
    whole, stopped = read_weights(tmp_path / "whole"), read_weights(out)
    assert all(torch.equal(stopped[name], weight) for name, weight in whole.items())


def test_a_killed_training_goes_on_from_its_checkpoint(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = FineTuning(**{**TINY, "steps": 4, "positions": "random"})
    finetune_model(run, [text], settings, tmp_path / "whole")
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)

    class Killed(BaseException):
        pass

    def kill(moment: FineTuningProgress) -> None:
        if moment.done == 3:
            raise Killed  # after the line of step 3, before its checkpoint

    out = tmp_path / "killed"
    with pytest.raises(Killed):
        finetune_model(run, [text], settings, out, progress=kill)
    seen: list[int] = []
    finetune_model(run, [text], settings, out, progress=lambda m: seen.append(m.done))
    assert seen == [3, 4]
    whole, killed = read_weights(tmp_path / "whole"), read_weights(out)
    assert all(torch.equal(killed[name], weight) for name, weight in whole.items())


def test_the_same_call_again_returns_the_report(run: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = finetune_model(run, [text], FineTuning(**TINY), out)
    seen: list[FineTuningProgress] = []
    assert finetune_model(run, [text], FineTuning(**TINY), out, progress=seen.append) == first
    assert not seen
    other = FineTuning(**{**TINY, "seed": 1})
    with pytest.raises(ValueError, match=r"another fine-tuning: seed is 0 there, 1 here\. .*force"):
        finetune_model(run, [text], other, out)
    assert finetune_model(run, [text], other, out, force=True)["settings"]["seed"] == 1


@pytest.mark.parametrize("kind", ["llama", "run"])
def test_skipped_positions_reach_the_rotation(
    kind: str, text: Path, request: pytest.FixtureRequest
) -> None:
    """Logits depend on distances: a constant shift changes nothing, a gap changes what follows."""
    path = request.getfixturevalue(kind)
    opened = open_run if kind == "run" else open_folder
    tuned: Any = opened(path, [text], FineTuning(**{**TINY, "method": "linear"}))
    tokens = tuned.text.sample_windows(1, 16, torch.Generator().manual_seed(0))[:, :16]
    order = torch.arange(16)[None]
    strengthen(tuned.module)
    gap = order + 30 * (order >= 8)
    with torch.no_grad():
        plain, shifted, moved = (tuned.compute_logits(tokens, p) for p in (None, order + 7, gap))
        changed = torch.cat((tokens[:, :1] ^ 1, tokens[:, 1:]), 1)
        other = tuned.compute_logits(changed, gap)
    torch.testing.assert_close(shifted, plain, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(moved[:, :8], plain[:, :8], rtol=1e-3, atol=1e-3)
    assert float((moved[:, 8:] - plain[:, 8:]).abs().max()) > 1e-4
    assert float((other[:, 8:] - moved[:, 8:]).abs().max()) > 1e-4  # the first chunk is visible


@pytest.mark.parametrize("kind", ["llama", "run"])
def test_shifted_attention_hides_other_groups(
    kind: str, text: Path, request: pytest.FixtureRequest
) -> None:
    """A changed token changes logits of its own groups, and through them of the next ones."""
    path = request.getfixturevalue(kind)
    opened = open_run if kind == "run" else open_folder
    tuned: Any = opened(path, [text], FineTuning(**TINY))
    strengthen(tuned.module)
    tokens = tuned.text.sample_windows(1, 32, torch.Generator().manual_seed(0))[:, :32]
    changed = torch.cat((tokens[:, :1] ^ 1, tokens[:, 1:]), 1)

    def find_changed() -> list[int]:
        with torch.no_grad():
            one, two = (tuned.compute_logits(each, None) for each in (tokens, changed))
        return [n for n, far in enumerate((one - two).abs().amax((0, 2)) > 1e-6) if far]

    dense = tuned.compute_logits(tokens, None)
    assert find_changed()[-1] == 31
    tuned.use_attention(8)
    # Token 0 is in groups [0, 8) and [0, 4); after the second layer its tokens are seen up to 11.
    assert find_changed()[-1] == 11
    tuned.use_attention(None)
    assert torch.equal(tuned.compute_logits(tokens, None), dense)


@pytest.mark.parametrize("kind", ["llama", "run"])
def test_longlora_is_merged_and_dense(
    kind: str, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path, out = request.getfixturevalue(kind), tmp_path / "out"
    options = {**TINY, "lora": 2, "attention": "shifted-sparse", "precision": "bfloat16"}
    report = finetune_model(path, [text], FineTuning(**options), out)
    before, after = read_weights(path), read_weights(out)
    assert before.keys() == after.keys()
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv", "blocks.0.out", "blocks.1.out")
    for name, weight in before.items():
        change = after[name] - weight
        if any(word in name for word in names):
            rank = int(torch.linalg.matrix_rank(change.double(), rtol=1e-4))
            assert 1 <= rank <= 2, name
        elif "norm" in name or "embed" in name:
            assert bool(change.any()), name
        else:
            assert not bool(change.any()), name
    total = sum(weight.numel() for weight in before.values())
    assert report["trained_parameters"] < total


def test_without_positions(llama: Path, run: Path, text: Path, tmp_path: Path) -> None:
    """The order of earlier tokens does not matter to the last one of a single layer."""
    settings = FineTuning(**{**TINY, "method": None, "drop_positions": True})
    report = finetune_model(run, [text], settings, tmp_path / "run")
    assert (report["length"], report["target"]) == (16, 64)
    assert Run(tmp_path / "run").load_config().model.encoding == {"name": "nope"}
    finetune_model(llama, [text], settings, tmp_path / "llama")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "llama")
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        plain = model(tokens).logits
        spread = model(
            tokens, position_ids=7 * tokens, attention_mask=torch.ones_like(tokens)
        ).logits
    torch.testing.assert_close(spread, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "run"])
def test_the_losses_before_and_after(
    kind: str, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Those of the written model on the same last tokens, computed in one forward pass."""
    path, out = request.getfixturevalue(kind), tmp_path / "out"
    report = finetune_model(path, [text], FineTuning(**TINY, validation=3), out)
    opened = open_run if kind == "run" else open_folder
    windows = opened(path, [text], FineTuning(**TINY)).text.cut_validation(64, 3)
    model: Any = whorl.extend.evaluation.load_model(out).model
    for length in (16, 64):
        rows = windows[:, 64 - length :].long()
        with torch.no_grad():
            logits = model(rows[:, :-1]).logits[:, -16:]
        expected = float(F.cross_entropy(logits.mT, rows[:, -16:]))
        assert report["loss_after"][str(length)] == pytest.approx(expected, rel=1e-3)
    assert report["loss_before"] != report["loss_after"]
    nothing = finetune_model(path, [text], FineTuning(**TINY, validation=0), tmp_path / "other")
    assert nothing["loss_before"] == nothing["loss_after"] == {}
