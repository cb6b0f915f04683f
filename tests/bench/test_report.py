"""Reports: JSON and back, Markdown, terminal."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from whorl.bench import Accuracy, Report, Shape
from whorl.bench.render import format_duration, format_ratio
from whorl.bench.rotation.results import CellResult, Result

from .conftest import cell_of

TRAINING = Shape("training", 8, 12, 12, 128, 64)


@pytest.fixture
def report() -> Report:
    environment = {
        "cpu": "a CPU", "cores": 2, "date": "2030-01-01", "torch": "2.13.0", "whorl": "0.1.0",
        "kernel": "native, avx2", "peers": {"transformers": "5.0"}, "command": "",
        "missing": {"mlx": "ModuleNotFoundError: No module named 'mlx'"},
        "notes": {"Meta complex": "on contiguous [B, T, H, D]"},
    }  # fmt: skip
    times = {
        ("copy", "out"): 10e-3,
        ("whorl", "inplace"): 8e-3,
        ("whorl", "out"): 11e-3,
        ("whorl", "fresh"): 50e-3,
        ("hf", "fresh"): 300e-3,
    }
    meta = ("meta", "fresh")
    train = {
        ("copy", "training"): 1e-3,
        ("whorl", "training"): 2e-3,
        ("hf", "training"): 9e-3,
    }
    wrong = Result("ort", "out", problem="q is off by 1.2, more than 2e-06")
    half = cell_of(times)
    cells = (
        CellResult(half.cell, (*half.results, wrong)),
        cell_of({**times, meta: 40e-3}, layout="interleaved"),
        cell_of(train, shape=TRAINING),
        cell_of(times, threads=2),
    )
    effort = {"peers": None, "compiled": None, "repeats": 3, "sample_seconds": 0.001}
    errors: dict[str, tuple[float, ...]] = {"whorl": (3e-8, 3e-8), "Hugging Face": (5e-8, 0.7)}
    return Report(environment, effort, cells, accuracy=Accuracy((1, 2**24 - 1), errors))


def test_round_trip_through_json(report: Report, tmp_path: Any) -> None:
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    report.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == report


def test_dict_has_ratios_targets_and_losses(report: Report) -> None:
    data = report.to_dict()
    inplace = data["cells"][0]["results"][1]
    assert (inplace["name"], inplace["to_copy"]) == ("whorl", pytest.approx(0.8))
    compared = data["cells"][0]["comparisons"][0]
    assert (compared["peer"], compared["ratio"]) == ("hf", pytest.approx(8 / 300))
    assert data["losses"][0]["peer"] == "meta"
    assert any(target["ok"] for target in data["targets"])


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 0, and this benchmark reads 1; run the benchmark"):
        Report.from_dict({"format": 0})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "{",
            "is not JSON: Expecting property name .*; choose a file that whorl bench wrote",
        ),
        ("[" * 100_000, "r.json' is nested more than 64 deep; no file of results is"),
        ("[1, 2]", r"r.json' must hold a JSON object, as whorl bench writes it; got \[1, 2\]\."),
        ('{"format": "' + "x" * 5000 + '"}', r"format 'x+\.\.\.x+', and this benchmark reads 1"),
    ],
    ids=lambda text: text[:12],
)
def test_files_without_results(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        Report.load(tmp_path / "r.json")
    assert len(str(caught.value)) < 400


def test_markdown(report: Report) -> None:
    text = report.with_command("whorl bench --full").render_markdown()
    assert text.startswith("a CPU, 2 cores, 2030-01-01; torch 2.13.0, transformers 5.0;")
    assert "Command: `whorl bench --full`." in text
    assert "**float32, half / interleaved, 1 thread: multiples of copy_**" in text
    assert "|  | prefill 4096 | training 128 |" in text
    assert "| copy_ | 10 ms | 1 ms |" in text
    assert "| whorl in place | 0.80 / 0.80 | - |" in text
    assert "| whorl fresh | 5.00 / 5.00 | 2.00 / - |" in text
    assert "| Meta complex | - / 4.00 | - |" in text
    assert "**float32, half / interleaved, 2 threads: multiples of copy_**" in text
    assert "| Hugging Face | 5e-08 | 7e-01 |" in text
    assert "| prefill-4096/float32/interleaved/1 | fresh | Meta complex fresh | 1.25 |" in text
    assert "| all | MLX | ModuleNotFoundError" in text
    assert "| prefill-4096/float32/half/1 | onnxruntime out= | q is off by 1.2" in text
    assert "Slower than a peer beyond noise in 1 comparison." in text
    assert "Missed: comparisons lost beyond noise: 1 (<= 0)." in text
    widths = {line.count("|") for line in text.split("\n\n")[2].splitlines()}
    assert len(widths) == 1


def test_an_unfinished_report_says_so(report: Report) -> None:
    empty = Report(report.environment, report.effort, complete=False)
    assert "The run was not finished." in empty.render_markdown()
    assert "Targets" not in empty.render_markdown()


def test_terminal_tables_fit_eighty_columns(report: Report) -> None:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=80, file=io.StringIO())
    for part in report.build_terminal_tables():
        console.print(part)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for words in ("whorl in place", "Meta complex", "7e-01", "missed", "onnxruntime out="):
        assert words in text
    assert "…" not in text


def test_numbers_for_people() -> None:
    assert [format_duration(x) for x in (2.5, 0.0123, 4.56e-6)] == ["2.5 s", "12.3 ms", "4.56 us"]
    assert [format_ratio(x) for x in (None, 0.784, 12.34, 123.4)] == ["-", "0.78", "12.3", "123"]
