"""``whorl extend``: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.extend.test_angles import PLAIN

from .conftest import Whorl


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN))
    return path


def test_a_page(whorl: Whorl) -> None:
    done = whorl("extend", "qwen3-8b", "--to", "128k")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "qwen3-8b to 131,072 tokens, 4x: by angles, not measured",
        "Write yarn (factor 4): no pair is out of distribution at 131,072 tokens.",
        "All 5 frameworks run it. Short texts: angles off by up to 17.1 rad, scale 1.139.",
    ]
    assert "by angles, not measured" in done.out
    assert "transformers 5, config.json" in done.out
    assert "llama-server -m MODEL.gguf -c 131072" in done.out


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("config", ["qwen3-8b", "llama-3.1-8b", "gpt-oss-20b", "qwen2.5-vl-7b"])
def test_a_row_of_the_table_stays_on_one_line(
    whorl: Whorl, monkeypatch: pytest.MonkeyPatch, config: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = whorl("extend", config, "--to", "64x")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= columns
    for name in ("dynamic_linear", "ntk_by_parts", "raised_base", "none"):
        (row,) = [line for line in lines if line.startswith(f"{name} ")]
        assert len(row.split()) == 10, row
        assert set(row.split()[5:]) <= {"yes", "no", "?"}


def test_json(whorl: Whorl) -> None:
    done = whorl("extend", "qwen3-8b", "--to", "4x", "--json")
    found = json.loads(done.out)
    assert (found["recommended"], found["target"]) == ("yarn", 131_072)
    assert {each["framework"] for each in found["recipes"]} == {
        *("transformers 4", "transformers 5", "vLLM", "llama.cpp", "mlx-lm")
    }
    assert "written" not in found


def test_write(whorl: Whorl, file: Path) -> None:
    done = whorl("extend", str(file), "--to", "4x", "--write")
    assert done.code == 0
    original = file.with_name("config.original.json")
    words = " ".join(done.out.split())
    assert f"written to {file}; the original is {original}" in words
    assert "what the doctor says about it" in words
    assert json.loads(original.read_text()) == PLAIN
    assert json.loads(file.read_text())["rope_scaling"]["rope_type"] == "yarn"


def test_write_as_json(whorl: Whorl, file: Path) -> None:
    out = file.with_name("longer.json")
    done = whorl("extend", str(file), "--to", "4x", "--out", str(out), "--json")
    found = json.loads(done.out)
    assert (found["written"], found["original"], found["method"]) == (str(out), None, "yarn")
    assert found["remaining"]["counts"]["error"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "2k"], "error: --to must be longer than the trained length, 4,096 tokens"),
        (["--to", "soon"], "error: --to must be a number of tokens up to 2**40"),
        (["--to", "4x", "--method", "yran"], "error: --method 'yran' is unknown; did you mean"),
        (
            ["--to", "4x", "--write", "--out", "x.json"],
            "error: --write changes config.json, --out writes another file; choose one.",
        ),
    ],
)
def test_what_it_refuses(whorl: Whorl, file: Path, options: list[str], message: str) -> None:
    done = whorl("extend", str(file), *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_files_that_cannot_be_read(whorl: Whorl, tmp_path: Path) -> None:
    broken = tmp_path / "config.json"
    broken.write_text("{")
    done = whorl("extend", str(broken), "--to", "4x")
    assert (done.code, done.out) == (2, "")
    assert "error: " in done.err
    missing = whorl("extend", "nonesuch", "--to", "4x")
    assert "there is no file 'nonesuch', and no preset of that name" in missing.err


def test_what_to_pass_is_named_as_an_option(whorl: Whorl, file: Path) -> None:
    linear = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    file.write_text(json.dumps(linear))
    done = whorl("extend", str(file), "--to", "8x")
    assert done.err.endswith("the trained length does not follow; pass --trained N.\n")
    assert whorl("extend", str(file), "--to", "8x", "--trained", "1k").code == 0
    preset = whorl("extend", "qwen3-8b", "--to", "4x", "--write")
    assert "pass --out FILE to write the extended config there" in preset.err


def test_on_weights(whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from tests.extend.weights import TEXT, save_llama

    monkeypatch.chdir(tmp_path)
    save_llama(tmp_path / "tiny")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    command = ["extend", "tiny", "--to", "2x", "--text", str(text), "--methods", "yarn"]
    command += ["--retrieval", "0", "--windows", "1"]
    done = whorl(*command, "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert {row["name"] for row in found["rows"]} == {"none", "yarn", "sliding_window"}
    folder = tmp_path / "runs" / "extend-tiny-128"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("report.html", "report.md", "results.json")
    ]
    page = whorl(*command, "--chart", "chart.json")
    assert page.code == 0
    assert "perplexity at" in page.out
    assert "kept in runs/extend-tiny-128: results.json, report.html, report.md" in page.out
    assert json.loads((tmp_path / "chart.json").read_text())["vconcat"]
    longer = whorl(*command, "--to", "3x")  # the last one counts
    assert "kept in runs/extend-tiny-192: results.json" in longer.out
    assert json.loads((folder / "results.json").read_text())["settings"]["target"] == 128
    other = whorl(*command[:-1], "2")
    assert other.code == 2
    assert "windows is 1 there, 2 here. Choose another folder, or pass --force to" in other.err
    assert whorl(*command[:-1], "2", "--force").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--windows", "2"), "--methods, --budget, --windows, --retrieval, --seed, --minutes,"),
        (("--text", "no.txt"), "--text 'no.txt' cannot be read: No such file or directory."),
        (("--text", "no.txt", "--write"), "--write writes a config, and --text measures; run"),
    ],
)
def test_options_that_do_not_go_together(
    whorl: Whorl, options: tuple[str, ...], message: str
) -> None:
    done = whorl("extend", "qwen3-8b", "--to", "4x", *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_a_text_that_is_not_utf8(whorl: Whorl, tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"ab\xff")
    done = whorl("extend", "qwen3-8b", "--to", "4x", "--text", str(path))
    assert "must be UTF-8; byte 2 is not: 'invalid start byte'." in " ".join(done.err.split())


def test_without_a_model_a_small_one_is_trained_once(
    whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from dataclasses import replace

    from whorl.extend.evaluation import default
    from whorl.lab import ModelConfig, TrainingConfig

    small = replace(
        default.DEFAULT_MODEL,
        model=ModelConfig(layers=1, width=16, heads=2),
        training=TrainingConfig(length=256, batch=4, steps=2, warmup=1),
    )
    monkeypatch.setattr(default, "DEFAULT_MODEL", small)
    monkeypatch.chdir(tmp_path)
    command = ["extend", "--to", "2x", "--methods", "yarn", "--windows", "1", "--retrieval", "1"]
    done = whorl(*command)
    assert done.code == 0, done.err
    where = "runs/extend-default-model"
    assert f"no MODEL: training a small one once, which is kept in {where}" in done.err
    words = " ".join(done.out.split())
    assert f"the model is kept in {where}" in words
    assert "kept in runs/extend-default-512: results.json" in words
    assert "Retrieval, passkey, was not measured: the model as published gives" in words
    again = whorl(*command, "--json")
    assert (again.code, "training" in again.err) == (0, False)
    assert json.loads(again.out)["model"] == "extend-default-model"
    for option in (["--write"], ["--method", "yarn"]):
        refused = whorl("extend", "--to", "2x", *option)
        assert refused.code == 2
        assert "writes a config, and there is none; name a CONFIG." in refused.err
