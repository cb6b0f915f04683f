"""What other seeds may change counts against a claim, and differences are paired by seed."""

from typing import Any

import pytest

from whorl.lab.compare.claims import check_claims

from .judged import CONFIG, SAME, judge, outcome, risen
from .made import made

pytestmark = pytest.mark.usefixtures("known_noise")


def test_two_seeds_are_averaged_by_window() -> None:
    """Over two seeds Student's t would need a difference of 12.7 standard errors."""
    windows = [2.0, 2.1, 1.9]
    rope = {128: [windows, windows], 512: [[x + 1.0 for x in windows], [x + 1.2 for x in windows]]}
    found = judge("rope-degrades", rope=rope)
    assert found["outcome"] == "reproduced"
    assert found["value"]["mean"] == pytest.approx(1.1)
    assert "(two seeds, 3 windows)" in found["evidence"]
    losses: dict[str, Any] = {"rope": {128: [windows] * 2}, "t5": {128: [windows] * 2}}
    # Two seeds change 0.028 / sqrt(2), which is 0.02, and 2 v - w by sqrt(5) times that.
    for by, expected in ((0.06, "reproduced"), (0.03, "not decidable"), (0.01, "not decidable")):
        losses["t5"] = {128: [[x + by for x in windows]] * 2, 512: [windows] * 2}
        losses["rope"][512] = [windows] * 2
        assert outcome("rope-below-t5", **losses) == expected
    # Here the two seeds themselves disagree: 0.02 and 0.1.
    losses["t5"][128] = [[x + by for x in windows] for by in (0.02, 0.1)]
    found = judge("rope-below-t5", None, **losses)
    assert found["outcome"] == "not decidable"
    assert "; a difference within 0.08, which another seed may reverse;" in found["evidence"]


@pytest.mark.parametrize(
    ("ours", "theirs", "needed"),
    [
        (0.0, 0.0, 0.028),  # both keep their loss
        (0.0, 1.0, 0.2),
        (1.0, 2.0, 0.28),
        (0.04, 0.04, 0.028),
        (0.06, 0.06, 0.28),  # nearly kept: another seed may lift it
    ],
)
def test_rows_that_rise_differ_more_from_seed_to_seed(
    ours: float, theirs: float, needed: float
) -> None:
    losses: dict[str, Any] = {
        "kerple": {128: SAME, 512: risen(ours, 0.0)},
        "alibi": {128: SAME, 512: risen(theirs, 0.0)},
    }
    found = judge("kerple-over-alibi", None, **losses)
    assert f"must exceed {needed:.2g} (one seed" in found["evidence"]


def test_a_rise_must_exceed_what_a_seed_may_change() -> None:
    losses: dict[str, Any] = {"rope": {128: SAME, 512: risen(0.25)}}
    found = judge("rope-degrades", None, **losses)
    assert found["outcome"] == "not decidable"
    assert "must exceed 0.3 (one seed" in found["evidence"]


def test_factors_of_a_measure_count() -> None:
    """Half of RoPE's rise, less ALiBi's: 2 sqrt(0.05^2 + 0.005^2 + 2 0.01^2) is 0.10."""
    losses: dict[str, Any] = {"rope": {128: SAME, 512: risen(3.0)}, "alibi": {128: SAME, 512: SAME}}
    assert "must exceed 0.1 (one seed" in judge("alibi-holds", None, **losses)["evidence"]


def test_no_seed_in_common() -> None:
    rope, t5 = made(rope={128: SAME, 512: SAME}, t5={128: SAME, 512: SAME})
    t5.curves[7] = t5.curves.pop(0)
    t5.evaluations[7] = t5.evaluations.pop(0)
    found = {one["id"]: one for one in check_claims([rope, t5], CONFIG)}
    assert found["rope-beats-t5"]["evidence"] == "no seed in common"
    assert "must exceed 0 (no seed in common)" in found["rope-below-t5"]["evidence"]
    assert found["rope-beats-t5"]["outcome"] == "not decidable"
    assert found["rope-below-t5"]["outcome"] == "not yet"


def test_seeds_are_paired() -> None:
    """Seeds that differ much, encodings that differ little but always the same way."""
    rope = {128: [[1.0], [3.0], [5.0]], 512: [[1.0], [3.0], [5.0]]}
    learned = {128: [[1.1], [3.11], [5.09]], 512: [[9.0], [9.0], [9.0]]}
    found = judge("rope-below-learned", rope=rope, learned=learned)
    assert found["outcome"] == "reproduced"
    assert found["evidence"] == (
        "rope 3.00 (1x), learned 3.10 (1x); loss of learned at 1x, less that of rope: 0.10 [0.08,"
        " 0.12], must exceed 0 (3 seeds); with a third of the steps 0.10"
    )
    learned[128] = [[1.1], [2.9], [5.09]]
    found = judge("rope-below-learned", rope=rope, learned=learned)
    assert found["outcome"] == "not decidable"
    assert "; the interval contains 0;" in found["evidence"]
