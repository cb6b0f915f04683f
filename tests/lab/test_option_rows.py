"""Rows of one encoding with different options, from runs to tables, verdict, claims and charts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import RunConfig, train, use_threads
from whorl.lab.compare import ComparisonPlan, build_comparison
from whorl.lab.compare.claims import check_claims
from whorl.lab.compare.gather import find_runs
from whorl.lab.compare.tables import render_markdown

from .made import made

pytest.importorskip("altair")

ROWS = ("rope(base=100)", "rope(base=1e6)", "rope(frequencies=trained)")


@pytest.fixture(scope="module")
def found(small: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("rows")
    plan = ComparisonPlan(encodings=ROWS, scalings=("yarn",), thirds=False, base=small)
    with use_threads(1):
        for run in plan.list_runs():
            train(run.config, folder / run.name, scalings=run.scalings)
    return build_comparison(find_runs(folder))


def test_each_option_is_a_row(found: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in found["rows"]}
    assert rows.keys() == {*ROWS, *(f"{name}+yarn" for name in ROWS)}
    for name in ROWS:
        assert rows[f"{name}+yarn"]["trained_as"] == rows[f"{name}+yarn"]["encoding"] == name
        assert rows[name]["learning_rate"] == 0.02
    assert len({rows[name]["by_length"]["32"]["mean"] for name in ROWS}) == 3
    assert rows[ROWS[0]]["encoding_parameters"] == 0
    assert rows[ROWS[2]]["encoding_parameters"] == 8


def test_tables_and_charts_tell_them_apart(found: dict[str, Any]) -> None:
    from whorl.plots import lab_lengths

    text = render_markdown(found, claims=True)
    lines = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert {*ROWS} < {*lines}
    assert any(f"the best one, {name}, has " in text for name in ROWS)  # none has learned
    spec = json.dumps(lab_lengths(found).to_dict())
    assert all(f'"name": {json.dumps(name)}' in spec for name in ROWS)


def test_claims_are_about_rows_without_options() -> None:
    config = RunConfig()
    losses = {length: [[2.0, 2.1]] for length in config.lengths}
    rope, alibi = made(rope={**losses, 512: [[4.0, 4.1]]}, alibi=losses)
    assert check_claims([rope, alibi], config)
    other = dataclasses.replace(rope, name="rope(base=100)", encoding="rope(base=100)")
    assert check_claims([other, alibi], config) == []


def test_folders_of_rows_are_plain(small: RunConfig) -> None:
    plan = ComparisonPlan(encodings=ROWS, base=small)
    for run in plan.list_runs():
        assert Path(run.name).name == run.name
        assert not {*run.name} & {*'()=<>:"/\\|?* '}
