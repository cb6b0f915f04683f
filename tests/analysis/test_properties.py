"""The report card: what is measured agrees with what the formulas say, for every encoding."""

import dataclasses
import json
import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import whorl
from whorl.analysis import Properties, properties
from whorl.encodings import base


@pytest.fixture(scope="module")
def card() -> dict[str, Properties]:
    return {row.name: row for row in properties(lengths=[]).rows}


def test_every_registered_encoding_is_on_it(card: dict[str, Properties]) -> None:
    assert list(card) == whorl.names()
    keys = [
        "unique",
        "deterministic",
        "extrapolates",
        "relative",
        "decays",
        "n-D",
        "norm",
        "linear",
    ]
    for row in card.values():
        assert list(row.verdicts) == list(row.evidence) == keys
        assert json.loads(json.dumps(row.to_dict()))["name"] == row.name


@pytest.mark.parametrize("name", whorl.names())
def test_measured_is_what_the_cards_say(card: dict[str, Properties], name: str) -> None:
    said = base.get_classes()[name].card
    assert said is not None
    row = card[name]
    assert (row.verdicts["relative"] == "yes") is said.relative
    assert row.verdicts["linear"] == said.linear_attention
    if name != "nope":  # which has no positions at all
        assert (row.verdicts["n-D"] == "yes") is said.many_axes


def test_the_rules_are_those_that_judge() -> None:
    """Every verdict follows from the numbers shown and the thresholds printed."""
    found = properties(lengths=[])
    new, far = (int(x) / 100 for x in re.findall(r"<= (\d+)%", found.rules["extrapolates"])[:2])
    rank = float(re.findall(r"rank < (\S+),", found.rules["decays"])[0])
    assert list(found.rules) == list(found.rows[0].verdicts)
    for row in found.rows:
        if "new" in row.numbers:
            within = row.numbers["new"] <= new or row.numbers["far"] <= far
            assert (row.verdicts["extrapolates"] == "yes") is within, row.name
            assert row.evidence["extrapolates"] == (
                f"{row.numbers['new']:.0%} new, {row.numbers['far']:.0%} far"
            )
        falls = row.numbers["decay_rank"] < rank and row.numbers["decay_fall"] > 1e-6
        assert (row.verdicts["decays"] == "yes") is falls, row.name


def test_cards_speak_of_trained_models_by_another_name(card: dict[str, Properties]) -> None:
    """What a formula does past its length and what a model does are two things, and two words."""
    fields = {field.name for field in dataclasses.fields(base.Card)}
    assert "longer" in fields
    assert "extrapolates" not in fields
    said = {name: cls.card.longer for name, cls in base.get_classes().items() if cls.card}
    differ = {name for name, row in card.items() if row.verdicts["extrapolates"] != said[name]}
    listed = {"nope", "t5", "relative_bias", "shaw", "deberta", "transformer_xl", "axial_rope"}
    assert differ == listed | {"xpos"}  # the table of docs/analysis.md


def test_known_verdicts(card: dict[str, Properties]) -> None:
    def verdicts(key: str) -> dict[str, str]:
        return {name: row.verdicts[key] for name, row in card.items()}

    unique = verdicts("unique")
    assert unique["nope"] == "no"
    assert {n for n, v in unique.items() if v == "partly"} == {"relative_bias", "shaw", "t5"}
    assert card["shaw"].numbers["distinct"] == 17  # 0 .. 16, then clipped
    assert card["relative_bias"].numbers["distinct"] == 129
    fixed = {"alibi", "axial_rope", "mrope", "nope", "rope", "sinusoidal", "xpos"}
    assert {n for n, v in verdicts("deterministic").items() if v == "yes"} == fixed
    assert {n for n, v in verdicts("extrapolates").items() if v == "with scaling"} == {
        "rope",
        "mrope",
    }
    assert card["learned"].evidence["extrapolates"] == "refuses 257"
    decays = {n for n, v in verdicts("decays").items() if v == "yes"}
    assert decays == {"alibi", "kerple", "mrope", "rope", "sinusoidal", "xpos"}
    assert {n for n, v in verdicts("norm").items() if v == "yes"} == {"axial_rope", "mrope", "rope"}
    assert card["rope"].numbers["norm_change"] < 1e-12
    assert card["sinusoidal"].numbers["shift_change"] > 0.1


def test_new_angles_are_those_of_slow_pairs(card: dict[str, Properties]) -> None:
    """Of 16 pairs those that do not turn within 256 positions, each with two channels."""
    theta = whorl.RoPE(32).frequencies().inv_freq
    slow = int((theta * 256 < 2 * torch.pi).sum())
    assert card["rope"].numbers["new"] == pytest.approx(slow / 16, abs=1 / 32 + 1e-9)


class Bump(whorl.Encoding):
    """A bias that rises with distance: neither a decay nor unknown to the card."""

    config = whorl.Config()

    def distance_bias(self, distance: Tensor) -> Tensor | None:
        return distance.abs().double().expand(4, *distance.shape)


@pytest.fixture
def bump() -> Iterator[None]:
    base.register("bump")(Bump)
    yield
    del base._REGISTRY["bump"]


@pytest.mark.usefixtures("bump")
def test_one_of_somebody_else() -> None:
    (row,) = properties(["bump"], lengths=[]).rows
    assert row.verdicts["decays"] == "no"
    assert row.numbers["decay_rank"] == pytest.approx(1.0)
    assert row.verdicts["relative"] == "yes"
    assert row.numbers["far"] > 0.99


def test_each_is_measured_once() -> None:
    card = properties(["nope", "nope"], lengths=[8, 8])
    assert [row.name for row in card.rows] == ["nope"]
    assert len(card.rows[0].costs) == 1
    assert any(line.startswith("new: share of the encoding") for line in card.words)


def test_attention_of_t5_to_far_tokens_is_even(card: dict[str, Properties]) -> None:
    assert card["t5"].numbers["far"] == pytest.approx(card["nope"].numbers["far"], abs=0.05)


def test_costs_of_a_composition() -> None:
    (row,) = properties(["learned+alibi"], lengths=[64, 300]).rows
    assert [cost.length for cost in row.costs] == [64, 300]
    assert all(cost.milliseconds > 0 and cost.times_nope > 0 for cost in row.costs)
    assert row.verdicts["relative"] == "no"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), r"properties: encodings must have at least one name; got none\."),
        ((["rop"],), r"unknown encoding 'rop'; did you mean 'rope'\?"),
        ((["rope"], [0]), r"each of lengths must be an int >= 1 and at most 65,536; got 0\."),
    ],
)
def test_errors(arguments: tuple[list[str], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        properties(arguments[0], lengths=arguments[1] if len(arguments) > 1 else [])  # type: ignore[arg-type]
