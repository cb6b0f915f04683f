"""Runs that start from trained weights: what is kept, dropped and new, and that it is recorded."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import (
    Interrupted,
    Model,
    ModelConfig,
    Run,
    RunConfig,
    StartConfig,
    StartWeights,
    TrainingProgress,
    describe_start,
    export_run,
    read_start,
    train,
    use_threads,
)
from whorl.lab.compare import ComparisonPlan
from whorl.lab.data import open_data_source
from whorl.lab.start import match_weights

SHAPE = ModelConfig(layers=2, width=32, heads=2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with use_threads(1):
        yield


def make_start(seed: int = 1, vocab: int = 256, **options: Any) -> StartWeights:
    """Random weights of a model that was never trained."""
    config = RunConfig(model=replace(SHAPE, **options))
    model = Model(config.model, vocab=vocab, longest=64)
    model.reset_parameters(seed)
    return StartWeights("old", model, config, 7, "abc")


def make_new(vocab: int = 256, longest: int = 64, **options: Any) -> tuple[Model, RunConfig]:
    config = RunConfig(model=replace(SHAPE, **options))
    model = Model(config.model, vocab=vocab, longest=longest)
    model.reset_parameters(0)
    return model, config


def list_parts(report: dict[str, Any], group: str) -> set[str]:
    return {one["part"] for one in report[group]}


def get_table(model: torch.nn.Module) -> torch.Tensor:
    return dict(model.named_parameters())["encoding.weight"]


BODY = {"attention", "mlp", "norms"}
ALL = BODY | {"embedding", "head"}


def test_another_attention_keeps_all() -> None:
    start = make_start()
    model, config = make_new(attention="linear")
    match = match_weights(start, model, config)
    assert list_parts(match.report, "kept") == ALL
    assert match.report["dropped"] == match.report["new"] == match.report["kept_in_part"] == []
    total = sum(weight.numel() for weight in model.parameters())
    assert sum(one["parameters"] for one in match.report["kept"]) == total
    changed = [{"name": "model.attention", "from": "softmax", "to": "linear"}]
    assert match.report["changed"] == changed
    match.copy()
    theirs = start.model.state_dict()
    assert all(torch.equal(weight, theirs[name]) for name, weight in model.state_dict().items())


def test_another_encoding_drops_its_parameters() -> None:
    """T5's bias and the learned table are both called "weight", and neither becomes the other."""
    start = make_start(encoding="t5")
    model, config = make_new(encoding="learned")
    before = get_table(model).clone()
    match = match_weights(start, model, config)
    match.copy()
    assert list_parts(match.report, "kept") == ALL
    assert match.report["dropped"] == [
        {"part": "encoding", "parameters": 64, "names": ["encoding.weight"]}
    ]
    assert match.report["new"] == [
        {"part": "encoding", "parameters": 64 * 32, "names": ["encoding.weight"]}
    ]
    assert torch.equal(get_table(model), before)
    assert all(weight.requires_grad for weight in model.parameters())


def test_a_part_of_a_composition_is_kept() -> None:
    start = make_start(encoding="kerple+learned")
    model, config = make_new(encoding="learned+rope")
    match = match_weights(start, model, config)
    match.copy()
    table = dict(model.named_parameters())["encoding._parts.0.weight"]
    assert torch.equal(table, dict(start.model.named_parameters())["encoding._parts.1.weight"])
    assert match.report["new"] == []
    assert match.report["dropped"][0]["parameters"] == 4


def test_a_longer_table_is_kept_in_part() -> None:
    start = make_start(encoding="learned")
    model, config = make_new(encoding="learned", longest=96)
    before = get_table(model).clone()
    match = match_weights(start, model, config)
    match.copy()
    assert match.report["kept_in_part"] == [{"name": "encoding.weight", "rows": 64, "of": 96}]
    assert torch.equal(get_table(model)[:64], get_table(start.model))
    assert torch.equal(get_table(model)[64:], before[64:])
    assert "kept in part: encoding.weight (64 of 96 rows)" in describe_start(match.report)


def test_an_encoder_gets_a_mask_token() -> None:
    start = make_start()
    model, config = make_new(vocab=257, kind="encoder")
    match = match_weights(start, model, config)
    match.copy()
    names = [one["name"] for one in match.report["kept_in_part"]]
    assert names == ["embedding.weight", "head.weight"]
    before: Any = start.model
    assert torch.equal(model.embedding.weight[:256], before.embedding.weight)


@pytest.mark.parametrize("vocab", [256, 300])
def test_another_tokenizer_has_new_embeddings(vocab: int) -> None:
    """Also one with as many tokens, which mean something else."""
    start = make_start()
    model, config = make_new(vocab=vocab)
    config = replace(config, data=replace(config.data, tokenizer="tokenizer.json"))
    match = match_weights(start, model, config)
    assert list_parts(match.report, "kept") == BODY
    assert list_parts(match.report, "dropped") == {"embedding", "head"}
    assert list_parts(match.report, "new") == {"embedding", "head"}
    said = describe_start(match.report)
    assert said.startswith("started from 'old' (rope, step 7); kept: norms (160 parameters),")
    assert "dropped: embedding (8,192 parameters), head (8,192 parameters); new: emb" in said


def test_the_same_tokenizer_under_another_name(tmp_path: Path) -> None:
    start = make_start()
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_text("same")
    with_a, with_b = (replace(start.config.data, tokenizer=str(path)) for path in paths)
    start = replace(start, config=replace(start.config, data=with_a))
    model, config = make_new()
    found = match_weights(start, model, replace(config, data=with_b)).report
    assert list_parts(found, "kept") == ALL
    paths[1].unlink()
    found = match_weights(start, model, replace(config, data=with_b)).report
    assert list_parts(found, "kept") == BODY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 64}, r"model.width must be 32, as in 'old', whose weights the run starts from"),
        ({"layers": 3}, r"model.layers must be 2, .*; got 3. Leave it out, or start from others"),
        ({"heads": 4}, r"model.heads must be 2"),
        ({"kv_heads": 1}, r"model.kv_heads must be 2"),
        ({"hidden": 8}, r"model.hidden must be 96"),
        ({"tied": True}, r"model.tied must be False"),
    ],
)
def test_other_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        match_weights(make_start(), *make_new(**options))


def shorten(small: RunConfig, **training: Any) -> RunConfig:
    return replace(small, training=replace(small.training, steps=3, warmup=1, **training))


def test_a_run_goes_on(small: RunConfig, trained: Path, tmp_path: Path) -> None:
    """The first step's loss is that of the trained model on new text, computed here again."""
    seen: list[TrainingProgress] = []
    config = shorten(small)
    run = train(config, tmp_path / "run", start=trained, progress=seen.append)
    saved = run.load_config()
    assert saved.start.folder == str(trained)
    batch = open_data_source(saved).get_batch(1)
    assert not torch.equal(batch.tokens, open_data_source(config).get_batch(1).tokens)
    loss = float(Run(trained).load_model().loss(batch.tokens, batch.targets).detach())
    assert run.read_metrics()[0]["loss"] == pytest.approx(loss, abs=1e-6)
    report = run.read_start_report()
    assert report is not None
    assert report["step"] == 8
    assert report["weights"] == saved.start.weights == read_start(trained).checksum
    assert seen[0].note == describe_start(report)
    assert "new: nothing" in seen[0].note


def test_it_resumes_and_notices_other_weights(
    small: RunConfig, trained: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(trained, tmp_path / "source"))
    config = replace(shorten(small), start=StartConfig(folder=str(source)))

    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", 1):
            os.kill(os.getpid(), signal.SIGTERM)

    whole = train(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(config, tmp_path / "run", progress=interrupt)
    run = train(config, tmp_path / "run")
    assert [x["loss"] for x in run.read_metrics()] == [x["loss"] for x in whole.read_metrics()]
    recorded = run.load_config()
    train(small, source, force=True, start=trained)  # other weights in the same folder
    with pytest.raises(ValueError, match=r"holds another run: start.weights is '\w+' there"):
        train(config, run.folder)
    with pytest.raises(ValueError, match=r"has other weights than those that start.weights names"):
        train(recorded, tmp_path / "third")


def test_the_report_is_checked(small: RunConfig, trained: Path, tmp_path: Path) -> None:
    run = train(shorten(small), tmp_path / "run", start=trained)
    text = run.start_path.read_text()
    run.start_path.write_text(text.replace('"step": 8', '"step": 9'))
    with pytest.raises(ValueError, match=r"is damaged: start.json has been changed since it was"):
        run.verify()
    run.start_path.unlink()
    with pytest.raises(ValueError, match=r"is damaged: start.json does not belong to config.toml"):
        run.verify()


def test_a_folder_cannot_start_from_itself(small: RunConfig, trained: Path) -> None:
    with pytest.raises(ValueError, match=r"start.folder and the folder of the run must differ"):
        train(small, trained, start=trained)


def test_bad_starts(tmp_path: Path, small: RunConfig) -> None:
    with pytest.raises(ValueError, match=r"nowhere' is not the folder of a run: it has no config"):
        read_start(tmp_path / "nowhere")
    for options in ({"folder": ""}, {"weights": "abc"}):
        with pytest.raises(ValueError, match=r"start.folder must be the path of a folder with tr"):
            StartConfig(**options)
    with pytest.raises(ValueError, match=r"start: a comparison trains every encoding from new w"):
        ComparisonPlan(
            encodings=("rope",), base=replace(small, start=StartConfig(folder="somewhere"))
        )


def test_an_export_is_read_again(trained: Path, tmp_path: Path) -> None:
    folder = export_run(Run(trained), tmp_path / "hf")
    found, run = read_start(folder), read_start(trained)
    assert found.checksum == run.checksum
    assert found.config.model.encoding == "rope"
    assert found.config.training.length == 32
    assert found.step is None
    tokens = torch.arange(20).unsqueeze(0)
    assert torch.equal(found.model(tokens), run.model(tokens))
    assert found.settings.start == StartConfig(folder=str(folder))
    assert found.settings.training.steps == 1800


@pytest.mark.parametrize(
    "options",
    [
        {"base": 500.0, "layout": "interleaved"},
        {"scaling": {"name": "yarn", "factor": 4.0, "original_context": 16}},
        {"scaling": {"name": "llama3", "factor": 4.0, "original_context": 16}},
        {"scaling": {"name": "linear", "factor": 2.0}},
    ],
)
def test_rotations_of_exports(options: dict[str, Any], tmp_path: Path) -> None:
    from whorl.lab import export

    shape = replace(SHAPE, kv_heads=1, tied=True, encoding={"name": "rope", **options})
    model = Model(shape, vocab=256, longest=64)
    model.reset_parameters(3)
    found = read_start(export(model, tmp_path / "hf", length=16))
    tokens = torch.arange(30).unsqueeze(0)
    assert torch.allclose(found.model(tokens), model(tokens), atol=1e-5)
    assert found.config.training.length == 16
    assert RunConfig.from_dict(found.settings.to_dict()) == found.settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_act": "gelu"},
            r"that whorl train --export wrote: hidden_act must be 'silu'; got",
        ),
        ({"num_hidden_layers": 2}, r"model.layers.1.input_layernorm must be \[32\] together"),
        ({"num_hidden_layers": 0}, r"its config.json cannot be used: model.layers must be a whole"),
        ({"intermediate_size": 8}, r"mlp.up_proj must be \[16, 32\] together; got \[192, 32\]"),
        ({"tie_word_embeddings": True}, r"it has a weight that the lab's model has not: lm_head"),
    ],
)
def test_other_llamas_are_refused(
    change: dict[str, Any], message: str, trained: Path, tmp_path: Path
) -> None:
    folder = export_run(Run(trained), tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        read_start(folder)


def test_broken_exports_are_refused(trained: Path, tmp_path: Path) -> None:
    folder = export_run(Run(trained), tmp_path / "hf")
    safe = pytest.importorskip("safetensors.torch")
    safe.save_file({"x": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"it has no weight model.embed_tokens.weight"):
        read_start(folder)
    (folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"model.safetensors' cannot be read: "):
        read_start(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"config.json must hold an object"):
        read_start(folder)
