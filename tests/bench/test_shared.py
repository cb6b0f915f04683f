"""What the benchmarks share: published files, targets, contestants."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import run_fresh
from whorl.bench import BenchmarkTarget, attention, models, rotation, training
from whorl.bench.contestants import Contestant, describe_error, prepare_contestants

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.json"))
# Others come from the lab and from the detector of layouts.
PUBLISHED = [
    path
    for path in FILES
    if not path.stem.endswith(("-compare", "-experiment", "-plan", "detector", "seed-noise"))
    and not path.stem.startswith(("real-model", "extend-", "extension-"))
]
REPORTS: dict[Any, Any] = {
    part.Report.FORMAT: part.Report for part in (rotation, attention, training, models)
}


def test_formats_tell_the_benchmarks_apart() -> None:
    assert list(REPORTS) == [1, "attention 1", "training 1", "models 1"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_report_is_read_and_written_unchanged(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    report = REPORTS[json.loads(text)["format"]].load(path)
    assert report.complete
    assert report.cells
    assert report.render_markdown().startswith(report.environment["cpu"])
    report.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text(encoding="utf-8") == text


def test_there_are_published_reports() -> None:
    assert len(PUBLISHED) >= 2


def test_targets() -> None:
    assert BenchmarkTarget.at_most("a", 2, 2.0) == ("a", "<= 2", 2.0, True)
    assert BenchmarkTarget.at_most("a", 2, 2.1).ok is False
    assert BenchmarkTarget.at_least("a", 1.5, 1.5) == ("a", ">= 1.5", 1.5, True)
    assert BenchmarkTarget.at_least("a", 1.5, 1.4).ok is False
    assert BenchmarkTarget.at_most("a", 2, None) == ("a", "<= 2", None, None)
    assert BenchmarkTarget.at_least("a", 2, None).ok is None


def test_only_the_right_contestants_are_ready() -> None:
    def fails() -> Contestant:
        raise RuntimeError("no compiler\nand a long story")

    right = Contestant("right", lambda: None, lambda: None)
    wrong = Contestant("wrong", lambda: None, lambda: "is off by 1")
    found = prepare_contestants(
        [("right", lambda: right), ("wrong", lambda: wrong), ("fails", fails)]
    )
    assert found == ([right], {"wrong": "is off by 1", "fails": "RuntimeError: no compiler"})
    assert describe_error(ValueError()) == "ValueError: "
    assert len(describe_error(ValueError(300 * "x"))) == 200


def test_attention_imports_where_resource_is_missing() -> None:
    code = "import sys; sys.modules['resource'] = None; import whorl.bench.attention.peak"
    assert run_fresh(code).error is None
