"""``whorl bench``: the arguments it passes on, what it writes, and how it ends early."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl.bench.rotation
from whorl.bench import Plan, Report
from whorl.bench.rotation import runner

Whorl = Callable[..., Any]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick plan, cut to two cells without peers or accuracy: under a second."""
    small = dataclasses.replace(
        Plan.quick().select(shapes=["decode-1"], dtypes=["float32"], peers=[]),
        repeats=1,
        sample_seconds=0.0,
        accuracy=False,
        isolated=False,  # in this process, which the tests reach into
    )
    monkeypatch.setattr(Plan, "quick", lambda: small)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks of ``run``, which measures nothing here."""
    found: dict[str, Any] = {}

    def run(plan: Plan, **options: Any) -> Report:
        found.update(options, plan=plan)
        options["progress"](0, 1, "prefill-512 [half]")
        environment = {
            "cpu": "a CPU",
            "cores": 1,
            "date": "",
            "torch": "",
            "kernel": "",
            "peers": {},
        }
        return Report(environment | {"missing": {}, "command": ""}, plan.describe_effort())

    monkeypatch.setattr(whorl.bench.rotation, "run", run)
    return found


def test_quick_is_the_default(whorl: Whorl, asked: dict[str, Any]) -> None:
    assert whorl("bench").code == 0
    assert asked["plan"] == Plan.quick()
    assert asked["sink"] is None
    assert asked["resume"] is None


def test_options_reach_the_plan(whorl: Whorl, asked: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = whorl("bench", "--full", "--peers", "hf, mlx", "--threads", "1,all", "--out", str(out))
    assert done.code == 0
    counts = sorted({1, torch.get_num_threads()})
    assert asked["plan"] == Plan.full().select(peers=["hf", "mlx"], threads=counts)
    assert (asked["sink"], asked["resume"]) == (out, None)
    assert whorl("bench", "--shapes", "training-1024,decode-1", "--dtypes", "float16").code == 0
    assert asked["plan"] == Plan.quick().select(
        shapes=["training-1024", "decode-1"], dtypes=["float16"]
    )
    assert whorl("bench", "--out", str(out), "--resume").code == 0
    assert asked["resume"] == out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--resume"], "error: --resume goes on with the file of --out; add --out FILE.json.\n"),
        (
            ["--out", "a.txt"],
            "error: --out: 'a.txt' must be a .json file in a folder that exists.\n",
        ),
        (["--out", "no/a.json"], "error: --out: 'no/a.json' must be a .json file in a folder"),
        (
            ["--chart", "a.pdf"],
            "error: --chart: 'a.pdf' must end in .png, .svg, .html or .json.\n",
        ),
        (["--chart", "no/a.png"], "error: --chart: the folder 'no' of 'a.png' does not exist"),
        (["--out", "a.json", "--chart", "a.json"], "error: --chart would overwrite the results in"),
        (["--threads", "0"], "error: --threads takes counts such as 1,4 or 1,all; got '0'.\n"),
        (
            ["--threads", "1,some"],
            "error: --threads takes counts such as 1,4 or 1,all; got '1,some'.",
        ),
        (["--threads", ","], "error: --threads takes counts such as 1,4 or 1,all; got ','.\n"),
        (["--peers", "nobody"], "error: --peers: 'nobody' is unknown; known: hf, "),
        (["--shapes", "decode"], "error: --shapes: 'decode' is unknown; known: prefill-512, "),
        (["--dtypes", "float64"], "error: --dtypes: 'float64' is unknown; known: float32, bf"),
        (
            ["--shapes", ","],
            "error: --shapes, dtypes and layouts must each have at least one entry",
        ),
    ],
)
def test_bad_input_is_refused_before_measuring(
    whorl: Whorl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny: None,
    args: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = whorl("bench", *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["not json", "{}", "[1]", '{"format": 1}'])
def test_resume_from_something_else(whorl: Whorl, tmp_path: Path, tiny: None, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    done = whorl("bench", "--out", str(path), "--resume")
    assert (done.code, done.out) == (2, "")
    assert f"--resume: '{path}' is not a report of whorl bench" in done.err
    assert "leave out --resume to overwrite it." in done.err
    assert path.read_text() == content


def test_a_missing_extra(
    whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: None
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    done = whorl("bench", "--chart", str(tmp_path / "c.png"))
    assert done == (1, "", "whorl.plots needs altair: pip install 'whorl[plots]'.\n")


def test_a_real_run_writes_all_it_was_asked_for(whorl: Whorl, tmp_path: Path, tiny: None) -> None:
    pytest.importorskip("altair")
    out, chart = tmp_path / "r.json", tmp_path / "c.svg"
    done = whorl("bench", "--json", "--out", str(out), "--chart", str(chart))
    assert (done.code, done.err) == (0, "")
    printed = json.loads(done.out)
    assert printed == json.loads(out.read_text())
    assert printed["complete"] is True
    assert [cell["key"] for cell in printed["cells"]] == [
        "decode-1/float32/half/1",
        "decode-1/float32/interleaved/1",
    ]
    assert printed["environment"]["command"].startswith("whorl")
    assert "multiples of copy_" in chart.read_text()


def test_the_table_fits_80_columns(whorl: Whorl, tiny: None) -> None:
    done = whorl("bench")
    assert done.code == 0
    assert "decode" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("keep", [True, False])
def test_an_interrupt_says_what_was_kept(
    whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: None, keep: bool
) -> None:
    real, calls = runner.measure_cell, []

    def stop_at_the_second(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "measure_cell", stop_at_the_second)
    out = tmp_path / "r.json"
    done = whorl("bench", "--json", *(["--out", str(out)] if keep else []))
    assert done.code == 130
    assert json.loads(done.out)["complete"] is False
    if not keep:
        line = "1 of 2 cells measured, not kept, as --out was not given.\n"
        assert done.err == line + "interrupted.\n"
        return
    assert (
        done.err == f"1 of 2 cells measured, kept in {out}: add --resume to go on.\ninterrupted.\n"
    )
    assert len(Report.load(out).cells) == 1
    done = whorl("bench", "--json", "--out", str(out), "--resume")
    assert done.code == 0
    assert len(calls) == 3  # the first cell was not measured again
    assert len(json.loads(done.out)["cells"]) == 2


def test_attention_has_no_charts_or_peers(whorl: Whorl) -> None:
    for option, value in (
        ("--chart", "a.png"),
        ("--peers", "hf"),
        ("--shapes", "decode-1"),
        ("--dtypes", "float32"),
    ):
        done = whorl("bench", "attention", option, value)
        assert (done.code, done.out) == (2, "")
        homes = "rotation and models" if option == "--shapes" else "rotation"
        assert f"{option} is for whorl bench {homes}; leave it out for attention." in done.err
    done = whorl("bench", "models", "--shapes", "gpt2")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --shapes must begin keys of cells")
