"""Claims are judged only if more steps would not change them: else they are "not yet"."""

from dataclasses import replace
from typing import Any

import pytest

from whorl.lab.compare.claims import check_claims
from whorl.lab.compare.curves import LearningCurve

from .judged import CONFIG, SAME, judge_with_third, risen
from .made import add_thirds, made

pytestmark = pytest.mark.usefixtures("known_noise")


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (1.0, 1.0, "reproduced"),
        (1.0, 0.2, "reproduced"),  # it grows
        (1.0, 1.3, "reproduced"),  # 0.7 after three times the steps, by this change
        (1.0, 2.0, "not yet"),  # 0.0 after three times the steps
        (0.0, 0.1, "not reproduced"),
        (0.0, -0.2, "not yet"),
        (0.09, 0.09, "not decidable"),
        (0.09, 5.0, "not yet"),
    ],
)
def test_not_yet_where_more_steps_may_reverse_it(now: float, before: float, expected: str) -> None:
    rope = {128: SAME, 512: risen(now)}
    found = judge_with_third(
        "rope-degrades", {"rope": rope}, {"rope": {128: SAME, 512: risen(before)}}
    )
    assert found["outcome"] == expected
    assert f"; with a third of the steps {before + 0.01:.2f}" in found["evidence"]
    words = ", so that more steps may change the outcome"
    assert found["evidence"].endswith(words) is (expected == "not yet")


def test_a_lead_that_was_lost_is_not_settled() -> None:
    """RoPE was 0.7 ahead of T5's bias and is 0.3 ahead now, as in whorl 0.1.0: not the end."""
    now: dict[str, Any] = {"rope": {128: SAME, 512: SAME}, "t5": {128: risen(0.3), 512: SAME}}
    before: dict[str, Any] = {"rope": {128: SAME, 512: SAME}, "t5": {128: risen(0.7), 512: SAME}}
    assert judge_with_third("rope-below-t5", now, now)["outcome"] == "reproduced"
    assert judge_with_third("rope-below-t5", now, before)["outcome"] == "not yet"


def test_seeds_may_be_what_is_missing() -> None:
    """A lead of 0.055 that was 0.054 would stay, but the noise of one seed is half as large."""
    now: dict[str, Any] = {"rope": {128: SAME, 512: SAME}, "t5": {128: risen(0.045), 512: SAME}}
    before = {**now, "t5": {128: risen(0.044), 512: SAME}}
    found = judge_with_third("rope-below-t5", now, before)
    assert found["outcome"] == "not decidable"
    assert found["evidence"].endswith("; seeds differ too much to say what more steps do")
    before["t5"] = {128: risen(0.11), 512: SAME}  # 0.065 are lost, more than what is left
    assert judge_with_third("rope-below-t5", now, before)["outcome"] == "not yet"


@pytest.mark.parametrize(("last", "expected"), [(2.2, "not yet"), (2.005, "reproduced")])
def test_one_row_may_go_on_while_the_other_stays(last: float, expected: str) -> None:
    """A lead of 0.3 that stands still proves nothing while both rows still gain 0.5.

    last: validation loss with a third of the steps; it ends at 1.998.
    """
    now: dict[str, Any] = {"rope": {128: SAME, 512: SAME}, "learned": {128: risen(0.3), 512: SAME}}
    before: dict[str, Any] = {
        "rope": {128: risen(0.5), 512: SAME},
        "learned": {128: risen(0.8), 512: SAME},
    }
    short = [replace(entry, curves={0: LearningCurve((33,), (last,))}) for entry in made(**before)]
    found = check_claims(add_thirds(made(**now), short), CONFIG)
    assert {one["id"]: one["outcome"] for one in found}["rope-below-learned"] == expected


def test_every_number_of_a_claim_must_have_settled() -> None:
    now: dict[str, Any] = {
        "alibi": {128: SAME, 256: SAME, 512: SAME},
        "t5": {128: SAME, 256: risen(0.5), 512: risen(0.5)},
    }
    before = {**now, "t5": {128: SAME, 256: risen(1.1), 512: risen(0.5)}}
    found = judge_with_third("alibi-over-t5", now, before)
    assert found["outcome"] == "not yet"
    assert "loss of t5 at 2x" in found["evidence"]


def test_not_yet_without_the_run_of_a_third() -> None:
    now: dict[str, Any] = {"rope": {128: SAME, 512: risen(1.0)}}
    found = judge_with_third("rope-degrades", now, {"alibi": {128: SAME, 512: SAME}})
    assert found["outcome"] == "not yet"
    assert found["evidence"].endswith("; no run with a third of the steps")
    nothing: dict[str, Any] = {"rope": {128: SAME, 512: [[float("nan")] * 3]}}
    assert judge_with_third("rope-degrades", now, nothing)["outcome"] == "not yet"


def test_thirds_must_have_the_same_seeds() -> None:
    windows = [2.0, 2.1, 1.9]
    rope = {128: [windows] * 2, 512: [[x + 3 for x in windows]] * 2}
    (entry,) = made(rope=rope)
    assert check_claims([entry], CONFIG)[0]["outcome"] == "reproduced"
    assert entry.third is not None
    third = replace(entry.third, evaluations={0: entry.third.evaluations[0]})
    (found,) = check_claims([replace(entry, third=third)], CONFIG)
    assert found["outcome"] == "not yet"
    assert found["evidence"].endswith("; no run with a third of the steps")
