"""``whorl train``: from the command line to a run folder, its messages and its exports."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import whorl.lab
from whorl.cli._training import run_table
from whorl.lab import (
    DataConfig,
    EvaluationConfig,
    Interrupted,
    ModelConfig,
    Run,
    RunConfig,
    TrainingConfig,
)

for package in ("safetensors", "tomli_w"):
    pytest.importorskip(package)

Whorl = Callable[..., Any]
TINY = ["--layers=1", "--width=32", "--heads=2", "--length=32", "--batch=4", "--steps=6"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{n} and {n * n} and on\n" for n in range(600)))
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks of ``lab.train``, which then is interrupted."""
    found: dict[str, Any] = {}

    def train(config: RunConfig, folder: Path, **options: Any) -> Run:
        found.update(options, config=config, folder=folder)
        raise Interrupted

    monkeypatch.setattr(whorl.lab, "train", train)
    return found


def test_options_of_the_encoding(whorl: Whorl, asked: dict[str, Any]) -> None:
    done = whorl("train", "--set", "layout=interleaved", "--set", "base=500")
    assert done.code == 130
    spec = {"name": "rope", "layout": "interleaved", "base": 500}
    assert asked["config"].model.encoding == spec
    assert asked["folder"].name.startswith("rope-layout-interleaved-base-500-")


def test_options_in_the_name_of_the_encoding(
    whorl: Whorl, asked: dict[str, Any], tmp_path: Path
) -> None:
    whorl("train", "--encoding", "learned+rope(base=100)")
    assert asked["config"].model.encoding == "learned+rope(base=100)"
    assert asked["folder"].name.startswith("learned+rope-base-100-")
    whorl("train", "--encoding", "rope(base=100)", "--set", "layout=interleaved")
    spec = {"name": "rope", "base": 100, "layout": "interleaved"}
    assert asked["config"].model.encoding == spec
    (file := tmp_path / "c.toml").write_text('[model]\nencoding = "rope(base=100)"\n')
    whorl("train", str(file))
    assert asked["config"].model.encoding == "rope(base=100)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--encoding", "rope(base=1", "--set", "layout=half"], r"',' or '\)' must come at"),
        (["--encoding", "rope(base=1)", "--set", "base=2"], "each key once.* got 'base=2'"),
        (["--set", "layout"], "--set takes KEY=VALUE, each key once.* got 'layout'"),
        (["--set", "base=1", "--set", "base=2"], "each key once.* got 'base=2'"),
        (["--set", "base=" + "[" * 2000], r"base must be a finite number above 0; got '\[\["),
        (["--set", "name=alibi"], "each key once.* got 'name=alibi'"),
        (["--encoding", "learned+rope", "--set", "base=5"], "a table must name one encoding"),
    ],
)
def test_bad_options_of_the_encoding(whorl: Whorl, options: list[str], words: str) -> None:
    done = whorl("train", *options)
    assert done.code == 2
    assert re.search(words, " ".join(done.err.split()))


def test_options_of_the_encoding_belong_in_the_file(whorl: Whorl, tmp_path: Path) -> None:
    (file := tmp_path / "c.toml").write_text('[model]\nencoding = "alibi"\n')
    done = whorl("train", str(file), "--set", "slopes=trained")
    assert done.code == 2
    assert "--set goes with --encoding" in done.err


def test_options_reach_the_config(whorl: Whorl, asked: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[model]\nwidth = 64\nencoding = "alibi"\n[training]\nlearning_rate = 0.5\n')
    done = whorl("train", str(file), "--encoding", "learned+rope", "--kv-heads", "2", "--force")
    assert done.code == 130
    assert "the same command goes on from 'runs/learned+rope'" in done.err
    config = asked["config"]
    assert config.model.encoding == "learned+rope"
    assert (config.model.width, config.model.kv_heads) == (64, 2)
    assert config.training.learning_rate == 0.5
    assert asked["force"] is True


def test_without_a_rate_it_takes_the_tuned_one(whorl: Whorl, asked: dict[str, Any]) -> None:
    whorl("train", "--encoding", "alibi", "--width", "192")
    assert read_rates(asked["config"]) == choose_rates("alibi", 192)
    whorl("train", "--encoding", "t5", "--width", "64", "--learning-rate", "0.25")
    assert read_rates(asked["config"]) == {**choose_rates("t5", 64), "learning_rate": 0.25}
    whorl("train", "--encoding", "t5", "--width", "64", "--encoding-learning-rate", "0.5")
    expected = {**choose_rates("t5", 64), "encoding_learning_rate": 0.5}
    assert read_rates(asked["config"]) == expected


def choose_rates(name: str, width: int) -> dict[str, float]:
    return whorl.lab.choose_learning_rates(name, width)


def read_rates(config: RunConfig) -> dict[str, float]:
    return {name: getattr(config.training, name) for name in choose_rates("rope", 32)}


@pytest.mark.slow
def test_a_run_and_its_export(whorl: Whorl, text: Path, tmp_path: Path) -> None:
    where = ["--out", str(tmp_path / "run"), "--data", str(text)]
    done = whorl("train", *TINY, *where, "--scalings", "yarn", "--export", str(tmp_path / "hf"))
    assert done.code == 0, done.err
    assert "rope+yarn" in done.out
    assert "tokens/s" in done.out
    assert "training 6/6" in done.err
    saved = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert saved["architectures"] == ["LlamaForCausalLM"]
    again = whorl("train", *TINY, *where, "--scalings", "yarn", "--json")
    assert again.code == 0
    assert again.err == ""
    found = json.loads(again.out)
    assert [one["name"] for one in found["results"]] == ["rope", "rope+yarn"]
    other = whorl("train", *TINY, *where, "--encoding", "alibi")
    assert other.code == 2
    assert "holds another run: model.encoding is 'rope' there, 'alibi' here" in other.err


def test_show_config(whorl: Whorl, tmp_path: Path) -> None:
    done = whorl("train", "--encoding", "t5", "--show-config")
    (tmp_path / "c.toml").write_text(done.out)
    config = RunConfig.from_toml(tmp_path / "c.toml")
    assert config.model.encoding == "t5"
    assert read_rates(config) == choose_rates("t5", config.model.width)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--encoding", "rop"], "--encoding: 'rop' is unknown; did you mean 'rope'?"),
        (["--data", "/nowhere"], "--data: '/nowhere' cannot be read: No such file"),
        (["--task", "copi"], "--task 'copi' is unknown; did you mean 'copy'?"),
        (["--width", "50"], "--width must be a multiple of model.heads = 4"),
        (["--heads", "5"], "model.width must be a multiple of --heads = 5"),
        (["--encoding", "alibi", "--export", "x"], "cannot be written as a Llama"),
        (["--kind", "encoder", "--encoding", "xpos"], "is for causal attention only"),
        (["nowhere.toml"], "'nowhere.toml' cannot be read: No such file"),
        (["--threads", "0"], "--threads must be at least 1; got 0"),
    ],
)
def test_bad_input(whorl: Whorl, args: list[str], message: str, tmp_path: Path) -> None:
    done = whorl("train", "--out", str(tmp_path / "run"), *args)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_a_wrong_type_in_toml(whorl: Whorl, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[data]\nfiles = 3\n")
    done = whorl("train", str(tmp_path / "c.toml"))
    assert (done.code, done.err) == (2, "error: data.files must be a list; got 3.\n")
    (tmp_path / "c.toml").write_text("training = 3\n")
    done = whorl("train", str(tmp_path / "c.toml"), "--steps", "5")
    assert (done.code, done.err) == (2, "error: [training] must be a table of options; got 3.\n")
    (tmp_path / "c.toml").write_text('[model]\nencoding = {name = "rope", bse = 3}\n')
    done = whorl("train", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run"))
    assert done.code == 2
    assert "model.encoding: encoding 'rope' has no option 'bse'; did you mean 'base'?" in done.err


def test_a_short_run_warms_up_shortly(whorl: Whorl, asked: dict[str, Any]) -> None:
    whorl("train", "--steps", "40")
    assert asked["config"].training.warmup == 4
    whorl("train")
    assert asked["config"].training.warmup == 18


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three steps."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text.txt").write_text("".join(f"{n} and {n * n} and on\n" for n in range(600)))
    config = RunConfig(
        model=ModelConfig(layers=1, width=32, heads=2, encoding="alibi"),
        data=DataConfig(files=(str(folder / "text.txt"),)),
        training=TrainingConfig(length=16, batch=2, steps=3, warmup=1, seed=5),
        evaluation=EvaluationConfig(multiples=(1.0, 2.0), windows=2),
    )
    return whorl.lab.train(config, folder / "first").folder


def test_from_takes_the_settings_of_the_run(
    whorl: Whorl, asked: dict[str, Any], finished: Path
) -> None:
    assert whorl("train", "--from", str(finished), "--length", "32").code == 130
    config, old = asked["config"], Run(finished).load_config()
    assert config.model == old.model
    assert config.data == old.data
    assert config.evaluation == old.evaluation
    assert config.start.folder == str(finished)
    training = config.training
    assert (training.length, training.batch, training.seed, training.steps) == (32, 2, 5, 1800)
    assert read_rates(config) == choose_rates("alibi", 32)
    assert str(asked["folder"]) == "runs/alibi-from-first"


def test_from_with_another_encoding_and_task(
    whorl: Whorl, asked: dict[str, Any], finished: Path, tmp_path: Path
) -> None:
    (file := tmp_path / "c.toml").write_text(
        f"[start]\nfolder = {json.dumps(str(finished))}\n[data]\ntask = 'copy'\n"
    )
    whorl("train", str(file), "--encoding", "rope")
    config = asked["config"]
    assert (config.model.encoding, config.model.width) == ("rope", 32)
    assert (config.data.task, config.data.files) == ("copy", ())
    other = tmp_path / "first"
    other.symlink_to(finished)
    whorl("train", str(file), "--from", str(other), "--task", "text")
    assert asked["config"].start.folder == str(other)
    done = whorl("train", "--from", str(finished), "--set", "slopes=trained")
    assert "--set goes with --encoding" in done.err


def test_from_says_what_was_kept(whorl: Whorl, finished: Path, tmp_path: Path) -> None:
    where = ["--from", str(finished), "--out", str(tmp_path / "run"), "--steps", "2"]
    done = whorl("train", *where, "--encoding", "t5")
    assert done.code == 0, done.err
    assert "note: started from " in done.err
    words = " ".join(done.out.split())
    assert "(alibi, step 3); kept: " in words
    assert "dropped: nothing; new: encoding (64 parameters)." in words
    found = json.loads(whorl("train", *where, "--encoding", "t5", "--json").out)
    assert found["start"]["new"][0]["names"] == ["encoding.weight"]
    refused = whorl("train", *where, "--width", "48")
    assert (refused.code, refused.out) == (2, "")
    assert "--width must be 32, as in" in refused.err.replace("\n", " ")


def test_stages_in_a_file(whorl: Whorl, asked: dict[str, Any], tmp_path: Path) -> None:
    stage = "[[training.stages]]\nlength = {}\nbatch = {}\nsteps = {}\n"
    (file := tmp_path / "c.toml").write_text(stage.format(64, 8, 100) + stage.format(128, 4, 50))
    assert whorl("train", str(file)).code == 130
    training = asked["config"].training
    assert (training.length, training.batch, training.steps) == (128, 4, 150)
    assert training.warmup == 15
    done = whorl("train", str(file), "--length", "32")
    assert done.code == 2
    assert "--length must be left out or be 128" in done.err


def test_the_table_of_stages() -> None:
    stages = [{"stage": 1, "length": 64, "batch": 8, "steps": 100, "loss": 2.5, "accuracy": 0.25}]
    found = make_results() | {"stages": stages}
    lines = [line.split() for line in render(run_table(found)).splitlines()]
    assert lines[0] == ["stage", "length", "batch", "steps", "loss", "accuracy"]
    assert lines[2] == ["1", "64", "8", "100", "2.500", "25.0%"]


def make_results() -> dict[str, Any]:
    return {
        **dict.fromkeys(("parameters", "seconds", "tokens_per_second", "memory_mb"), 1),
        "learning_rate": 0.1,
        "folder": "runs/x",
        "length": 32,
        "measure": "accuracy",
        "results": [
            {
                "name": "rope",
                "by_length": {
                    "16": {"loss": 1.25, "accuracy": 0.5},
                    "32": {"loss": None, "accuracy": 0.25},
                },
            }
        ],
    }


def test_the_table_has_loss_and_accuracy() -> None:
    lines = [line.split() for line in render(run_table(make_results())).splitlines()]
    assert lines[0] == ["at", "tokens", "16", "32*"]
    assert lines[2:4] == [["rope", "accuracy", "50.0%", "25.0%"], ["loss", "1.250", "\u2013"]]


def render(part: Any) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(part)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
