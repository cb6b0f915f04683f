"""``whorl explain``: a page to read, and the same as JSON."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

import whorl as library
import whorl.scaling


def test_rope_as_in_the_readme(whorl: Callable[..., Any]) -> None:
    done = whorl("explain", "rope", "--position", "3", "--dim", "6")
    assert done.code == 0
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert "RoPE(6)" in lines
    assert "   1   1, 4       0.046416      135.367" in lines
    assert "   0   3.000000   171.887   -0.989992   0.141120" in lines
    assert "|x|   9.539392   9.539392" in lines
    assert sum(line.split()[2:3] == ["1"] for line in lines if len(line.split()) == 4) == 3
    assert max(map(len, lines)) <= 80


def test_json(whorl: Callable[..., Any]) -> None:
    found = json.loads(whorl("explain", "rope", "--dim", "6", "--base", "100", "--json").out)
    assert found["encoding"] == "RoPE(6, base=100.0)"
    assert found["steps"][0]["heads"][0] == "pair"
    assert found["steps"][0]["rows"][0][2] == 1.0


@pytest.mark.parametrize("name", [*library.names(), "rope+alibi"])
def test_every_encoding_fits_80_columns(whorl: Callable[..., Any], name: str) -> None:
    done = whorl("explain", name)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "Is it relative?" in done.out
    assert "-0.000000 " not in done.out


def test_huge_numbers_leave_room_for_the_rest(whorl: Callable[..., Any]) -> None:
    done = whorl("explain", "xpos", "--position", "100000")
    assert done.code == 0
    assert "degrees" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert "e+" in done.out


def test_what_it_refuses(whorl: Callable[..., Any]) -> None:
    assert "did you mean 'rope'?" in whorl("explain", "rop").err
    done = whorl("explain", "rope", "--position", "-1")
    assert done.code == 2
    assert "position must be an int >= 0" in done.err
    assert "must be even" in whorl("explain", "rope", "--dim", "7").err
    for args in (["alibi", "--base", "5"], ["rope", "--heads", "2"], ["nope", "--dim", "8"]):
        done = whorl("explain", *args)
        assert done.code == 2
        assert f"does not use {args[1]}; leave it out." in done.err


def test_a_table_that_was_made_longer_says_so(whorl: Callable[..., Any]) -> None:
    note = "The table has 71 rows instead of 64, to hold position 70."
    assert note in whorl("explain", "learned", "--position", "70").out
    found = json.loads(whorl("explain", "learned", "--position", "70", "--json").out)
    assert found["notes"] == [note]
    assert json.loads(whorl("explain", "learned", "--position", "63", "--json").out)["notes"] == []


@pytest.mark.parametrize("name", library.scaling.names())
def test_every_scaling_fits_80_columns(whorl: Callable[..., Any], name: str) -> None:
    done = whorl("explain", name)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "https://arxiv.org/" in done.out
    assert "5. Effective context" in done.out


def test_a_scaling_by_hand(whorl: Callable[..., Any]) -> None:
    done = whorl("explain", "linear", "--factor", "8", "--trained", "1k", "--dim", "4", "--json")
    found = json.loads(done.out)
    assert found["position"] == 8191
    training, scaled, rotations, attention, _ = found["steps"]
    assert [row[0] for row in training["rows"]] == [0, 1]
    assert training["rows"][0][2] == pytest.approx(1024 / math.tau)
    assert [row[2] for row in scaled["rows"]] == [8.0, 8.0]
    assert rotations["rows"][1][2] == pytest.approx(8191 / (8 * 100 * math.tau))
    assert attention["words"] == "a = 1: scores are not scaled."
    unscaled = whorl("explain", "dynamic_ntk", "--position", "100", "--dim", "4", "--json")
    assert json.loads(unscaled.out)["position"] == 100


def test_angles_that_training_did_not_have_are_shown(whorl: Callable[..., Any]) -> None:
    """At the position after the effective context, a pair leaves the angles of training."""
    args = ("explain", "linear", "--factor", "2", "--json", "--position")
    known, unknown = (json.loads(whorl(*args, at).out)["steps"][2] for at in ("8191", "8200"))
    assert [row[3] for row in known["rows"]] == ["yes"] * 4
    assert [row[3] for row in unknown["rows"]] == ["yes", "yes", "yes", "no"]


def test_options_of_the_other_kind_are_refused(whorl: Callable[..., Any]) -> None:
    assert "did you mean 'yarn'? Encodings: alibi," in whorl("explain", "yran").err
    assert (
        "--factor is about a scaling, such as yarn" in whorl("explain", "rope", "--factor", "3").err
    )
    assert "--heads is about an encoding" in whorl("explain", "yarn", "--heads", "3").err
    assert "factor must be a number from 1 to" in whorl("explain", "yarn", "--factor", "0.5").err
    assert "trained must be an int >= 2" in whorl("explain", "yarn", "--trained", "1").err
