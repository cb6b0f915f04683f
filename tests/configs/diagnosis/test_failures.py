"""A rule that fails, a reader that fails, edits that meet each other: the rest stands."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from whorl.configs import diagnosis, read_config
from whorl.configs.diagnosis import RULES, fix
from whorl.configs.diagnosis import model as loading
from whorl.configs.diagnosis.engine import LLAMA, Edit, Problem
from whorl.configs.diagnosis.model import DiagnosedModel

TWO = {**LLAMA, "rope_scaling": {"factor": 4.0, "attn": 1}}


def break_rule(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    def check(model: DiagnosedModel) -> Iterator[Problem]:
        yield Problem("factor", "this much was seen.")
        raise OverflowError("intermediate overflow in fsum")

    monkeypatch.setitem(RULES, id, dataclasses.replace(RULES[id], check=check))


def test_a_rule_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = diagnosis.diagnose(TWO)
    assert [f.rule for f in before.findings] == ["lone-factor", "unknown-key"]
    assert not any(f.failed for f in before.findings)
    break_rule(monkeypatch, "beta-order")
    found = diagnosis.diagnose(TWO).findings
    assert [f.rule for f in found if f.rule != "beta-order"] == ["lone-factor", "unknown-key"]
    seen, failed = [f for f in found if f.rule == "beta-order"]
    assert (seen.message, seen.failed) == ("this much was seen.", False)  # before it stopped
    assert failed.failed
    assert failed.severity == "warning"
    assert failed.message == (
        "this rule stopped with OverflowError: 'intermediate overflow in fsum'. That is a bug in"
        " whorl; whether the config has this problem is not known."
    )
    assert failed.remedy == (
        "Please report it together with the config. The other rules were applied; --ignore"
        " beta-order leaves this one out."
    )
    assert failed.to_dict()["failed"] is True
    assert diagnosis.diagnose(TWO, ignore=["beta-order"]).findings == before.findings


def test_a_reader_that_fails_leaves_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(x: Any, *, parity: Any = None) -> Any:
        raise KeyError("factor")

    monkeypatch.setattr(loading, "read_config", fail)
    assert [f.rule for f in diagnosis.diagnose(TWO).errors] == ["lone-factor"]
    (only,) = diagnosis.diagnose(LLAMA).errors
    assert only.rule == "unreadable"
    assert only.message.startswith(
        "whorl failed to read it (KeyError: \"'factor'\"); please report"
    )


def test_an_edit_whose_place_is_gone_is_left_out() -> None:
    data = {"a": {"b": {"c": 1}}, "d": [1], "e": 2, "f": 3}
    edits = [
        Edit("set", ("a",), {"c": 1}),
        Edit("set", ("a", "b", "c"), 2),
        Edit("remove", ("a", "x")),
        Edit("set", ("d", "x"), 2),
        Edit("remove", ("nowhere", "x")),
        Edit("rename", ("e",), "f"),  # taken
        Edit("rename", ("gone",), "g"),
    ]
    assert fix.apply_edits(data, edits) == {"a": {"c": 1}, "d": [1], "e": 2, "f": 3}


def test_corrections_that_make_room_for_others() -> None:
    """The parameters are moved out of their layer type, and only then is their type corrected."""
    inner = {"rope_type": "Linear", "factor": 4.0, "rope_theta": 1e6}
    config = {**LLAMA, "rope_parameters": {"full_attention": inner, "rope_theta": 1e6}}
    found = diagnosis.diagnose(config)
    flat = {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0}
    assert found.fixed() == {**LLAMA, "rope_parameters": flat}
    assert found.correct().errors == ()
    assert found.config == config


def test_parameters_with_two_values_are_not_moved() -> None:
    inner = {"rope_type": "su", "factor": 4.0, "rope_theta": 1e6}
    config = {**LLAMA, "rope_parameters": {"full_attention": inner, "factor": 2}}
    after = diagnosis.diagnose(config).correct()
    parameters = {"full_attention": {**inner, "rope_type": "longrope"}, "factor": 2}
    assert after.config["rope_parameters"] == parameters
    assert "unused-parameters" in {f.rule for f in after.errors}


def test_a_correction_asks_as_the_diagnosis_did() -> None:
    config = {**LLAMA, "rope_thta": 5e5, "max_position_embeddings": 4096.0}
    found = diagnosis.diagnose(config, length=100_000, ignore=["misspelt-key"])
    after = found.correct()
    assert after.config == {**LLAMA, "rope_thta": 5e5}
    assert type(after.config["max_position_embeddings"]) is int
    assert "beyond-seen" in {f.rule for f in after.findings}
    assert read_config(after.config).context == 4096
