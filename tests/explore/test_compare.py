"""The numbers of the page that compares encodings: biases, report cards, results of the lab."""

import json
from typing import Any

import pytest

from whorl.explore import api, compare
from whorl.explore.state import ExplorerState


def test_biases_are_those_of_the_modules() -> None:
    found = api.answer_bias(
        ExplorerState(), {"encodings": ["alibi", "t5", "alibi"], "length": 1000}
    )
    alibi, t5 = found["curves"]
    assert alibi["heads"][0][1] == pytest.approx(-0.5 * alibi["distances"][1])
    assert len(alibi["distances"]) <= 400
    assert (alibi["trained"], t5["trained"] > 0) == (0, True)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"encodings": []}, "encodings must be a list out of alibi"),
        ({"encodings": ["rope"]}, "encodings must be a list out of alibi"),
        (
            {"encodings": ["alibi"], "length": 10**9},
            "length must be a whole number from 2 to 65,536",
        ),
    ],
)
def test_what_biases_refuse(request_: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        api.answer_bias(ExplorerState(), request_)


def test_the_card_of_an_encoding() -> None:
    row = api.answer_card(ExplorerState(), {"encoding": "nope"})
    assert row["verdicts"]["unique"] == "no"
    assert "unique" in row["rules"]
    assert any(line.startswith("rank: ") for line in row["words"])
    assert json.dumps(row, allow_nan=False)
    with pytest.raises(ValueError, match="encoding must be one of alibi"):
        api.answer_card(ExplorerState(), {"encoding": "rop"})


def test_lab_results() -> None:
    assert "--runs FOLDER" in api.answer_lab(ExplorerState(), {})["why"]
    comparison: dict[str, Any] = {
        "settings": {"measure": "loss", "length": 64, "lengths": [128, 64]},
        "rows": [{"name": "rope", "by_length": {"64": {"mean": 1.5}}, "tokens_per_second": None}],
        "notes": ["One seed."],
        "claims": [],
    }
    found = compare.build_lab_results(comparison)
    assert found["lengths"] == [64, 128]
    assert found["rows"][0]["by_length"] == {"64": 1.5}
    assert found["unit"] == "tokens"
    comparison["settings"] |= {"seeds": [0], "layers": 3}
    comparison["claims"] = [{"claim": "x", "outcome": "reproduced", "evidence": "y", "url": "z"}]
    (claim,) = compare.build_lab_results(comparison)["claims"]
    assert claim == {"claim": "x", "outcome": "reproduced (1 seed, 3 layers)", "evidence": "y"}
