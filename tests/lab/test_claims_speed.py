"""Claims about speed: the steps that two encodings need to the same loss."""

from collections.abc import Sequence
from typing import Any

import pytest

from whorl.lab.compare.claims import check_claims
from whorl.lab.compare.statistics import estimate

from .judged import CONFIG, SAME, judge
from .made import CURVE, add_thirds, made

pytestmark = pytest.mark.usefixtures("known_noise")


@pytest.mark.parametrize("name", ["learned", "t5"])
def test_learning_faster(name: str) -> None:
    """RoPE is at 2.5 after 50 steps; the other ends there."""
    losses: dict[str, Any] = {key: {128: SAME, 512: SAME} for key in ("rope", name)}
    slow = (4.0, 3.5, 3.0, 2.6, 2.5)
    claim = f"rope-beats-{name}"
    found = judge(claim, {name: [slow]}, **losses)
    assert found["kind"] == "speed"
    assert found["outcome"] == "reproduced"
    assert found["value"]["mean"] == pytest.approx(0.5)
    # RoPE higher by 0.1 is at 2.5 after 58.33 steps; lower by 0.1 after 45.
    assert found["value"]["low"] == pytest.approx(1 - 0.5833, abs=1e-3)
    assert found["value"]["high"] == pytest.approx(0.55)
    assert found["evidence"] == (
        f"to a validation loss of 2.50: rope 50 steps, {name} 100; share of steps saved: 50 %"
        " [42 %, 55 %], must exceed 0 % (one seed; the interval is for curves 0.1 nats higher or"
        " lower)"
    )
    other = judge(claim, {"rope": [slow]}, **losses)
    assert other["outcome"] == "not reproduced"
    assert other["value"]["mean"] == pytest.approx(-1.0)
    even = judge(claim, **losses)
    assert even["outcome"] == "not decidable"
    assert even["evidence"].endswith("; the interval contains 0")
    near: list[Sequence[float]] = [[loss + 0.05 for loss in CURVE]]
    assert judge(claim, {name: near}, **losses)["outcome"] == "not decidable"


def test_speed_is_judged_before_losses_have_settled() -> None:
    losses: dict[str, Any] = {key: {128: SAME, 512: SAME} for key in ("rope", "t5")}
    entries = add_thirds(made({"t5": [(4, 3.5, 3.0, 2.6, 2.5)]}, **losses), [])
    found = {one["id"]: one["outcome"] for one in check_claims(entries, CONFIG)}
    assert found["rope-beats-t5"] == "reproduced"
    assert found["rope-below-t5"] == "not yet"


def test_speed_in_several_seeds_is_paired() -> None:
    """Seeds end at different losses, but RoPE always saves about half of the steps."""
    losses: dict[str, Any] = {
        key: {128: [[2.0]] * 3, 512: [[2.0]] * 3} for key in ("rope", "learned")
    }
    curves: dict[str, list[Sequence[float]]] = {
        "rope": [[loss + n for loss in CURVE] for n in range(3)],
        "learned": [[5.0 + n, 4.0 + n, 3.0 + n, 2.6 + n, 2.5 + n - 0.01 * n] for n in range(3)],
    }
    found = judge("rope-beats-learned", curves, **losses)
    assert found["outcome"] == "reproduced"
    savings = [1 - (50 + 25 * 0.01 * n / 0.3) / 100 for n in range(3)]
    wanted = estimate(savings)
    assert found["value"]["mean"] == pytest.approx(wanted.mean)
    assert found["value"]["low"] == pytest.approx(wanted.low)
    assert "rope 51 steps, learned 100;" in found["evidence"]
    assert found["evidence"].endswith("must exceed 0 % (3 seeds)")
    curves["rope"][2] = (9.0, 9.0, 9.0, 9.0, 9.0)
    assert judge("rope-beats-learned", curves, **losses)["outcome"] == "not decidable"


def test_speed_without_numbers() -> None:
    losses: dict[str, Any] = {key: {128: SAME, 512: SAME} for key in ("rope", "t5")}
    curves: dict[str, list[Sequence[float]]] = {"t5": [[float("nan")] * 5]}
    found = judge("rope-beats-t5", curves, **losses)
    assert found["outcome"] == "not decidable"
    assert found["evidence"] == "no steps can be compared: a loss is missing"
