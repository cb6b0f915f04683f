"""``vision``: accuracies at every resolution, with and without scikit-learn."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whorl.lab.experiments import ExperimentPlan, RowRequest, RowResults
from whorl.lab.experiments.vision import check_row, list_tables, run_row, shorten_row


def get_tables(name: str, **training: Any) -> dict[str, Any]:
    """Tables of a row of the smoke budget, with the generated task alone."""
    rows = ExperimentPlan.from_budget("vision", "smoke").rows
    (row,) = (row for row in rows if row.name == name)
    more = {"training": {**row.tables["training"], **training}, "tasks": {"names": ["marks"]}}
    return {**row.tables, **more}


def test_rows_have_every_resolution(tmp_path: Path) -> None:
    results = []
    for name in ("axial", "learned"):
        (tmp_path / name).mkdir()
        moments: list[Any] = []
        found = run_row(RowRequest(get_tables(name), 0, tmp_path / name, moments.append))
        assert {"marks@1", "marks@1.5", "marks@2"} <= set(found.values)
        assert ("marks counted@2" in found.values) == (name == "axial")
        assert list(found.curves["marks by step"]["x"]) == [1, 2, 3]
        assert {moment.phase for moment in moments} == {"marks: training"}
        again = run_row(RowRequest(get_tables(name), 0, tmp_path / name, moments.append))
        assert again == found
        results.append(RowResults(name, {0: found}))
    counted, tasks = list_tables(results, tmp_path)
    assert counted.heads == ("", "marks, 12 x 12", "marks, 16 x 16")
    assert counted.rows[1] == ("learned", "\u2013", "\u2013")
    assert tasks.rows[0][:2] == ("marks", "8")
    assert "Digits were left out, because scikit-learn is not installed" in tasks.note


def test_without_scikit_learn_the_generated_task_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_spec

    def hide(name: str) -> ModuleSpec | None:
        return None if name == "sklearn" else real(name)

    monkeypatch.setattr("whorl.lab.experiments.vision.find_spec", hide)
    for row in ExperimentPlan.from_budget("vision").rows:
        assert row.tables["tasks"]["names"] == ["marks"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": {"names": ["digit"]}}, r"tasks\.names must be a list of digits, marks; got"),
        ({"tasks": {}}, r"tasks\.names must be a list of digits, marks; got None"),
        ({"model": {"encoding": "rope"}}, "must be one of axial_rope, learned, sinusoidal, nope"),
        ({"training": {"steps": "many"}}, r"training\.steps must be a whole number"),
    ],
)
def test_wrong_tables(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_row({**get_tables("axial"), **change})


def test_a_third_of_the_steps() -> None:
    assert shorten_row(get_tables("axial", steps=90))["training"]["steps"] == 30
    assert shorten_row(get_tables("axial", steps=2))["training"]["steps"] == 1


def test_the_terminal_shows_the_extra_in_brackets() -> None:
    pytest.importorskip("rich")
    from rich.console import Console

    from whorl.lab.experiments.tables import build_terminal_tables

    note = "pip install 'whorl[tsne]'"
    table = {"title": "Tasks", "heads": ["task"], "rows": [["marks, which is one of two"]]}
    where = {"date": "", "cpu": "", "cores": 1, "whorl": "", "torch": "", "python": ""}
    empty = dict.fromkeys(("rows", "contrasts", "measures", "unfinished", "notes"), ())
    result = {"question": "?", "sentence": ".", "environment": where, **empty}
    console = Console(width=80)
    with console.capture() as written:
        console.print(*build_terminal_tables({**result, "tables": [{**table, "note": note}]}))
    assert note in " ".join(written.get().split())
