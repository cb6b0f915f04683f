"""``whorl properties``: the report card on a screen and as JSON."""

import json
from collections.abc import Callable
from typing import Any


def test_the_page(whorl: Callable[..., Any]) -> None:
    done = whorl("properties", "--encodings", "rope,nope", "--lengths", "64")
    assert done.code == 0
    assert "with scaling" in done.out
    assert "256 of 256" in done.out
    assert "64: ms" in done.out
    assert "extrapolates: new <= 1% or far <= 31%, at 16 times the length" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_json_without_costs(whorl: Callable[..., Any]) -> None:
    done = whorl("properties", "--encodings", "alibi", "--lengths", "none", "--json")
    (row,) = json.loads(done.out)["rows"]
    assert row["verdicts"]["linear"] == "causal"
    assert row["costs"] == []


def test_what_it_refuses(whorl: Callable[..., Any]) -> None:
    done = whorl("properties", "--lengths", "many")
    assert done.code == 2
    assert "--lengths takes lengths such as 512,2k, or none: a length must be" in done.err
    assert "got 'many'." in done.err
    assert "did you mean 'alibi'?" in whorl("properties", "--encodings", "alib").err
