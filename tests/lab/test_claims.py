"""Published claims against made-up results: each outcome comes up where it should."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev
from typing import Any

import pytest

import whorl
from whorl.lab import EvaluationConfig, ModelConfig, RunConfig
from whorl.lab.compare import noise
from whorl.lab.compare.claims import CLAIMS, Claim, check_claims
from whorl.lab.compare.curves import LearningCurve
from whorl.lab.compare.gather import EncodingResults
from whorl.lab.compare.statistics import Estimate, estimate
from whorl.lab.evaluate import SCALINGS

from .made import CURVE, add_thirds, made

CONFIG = RunConfig()  # trains on 128 tokens, evaluates at 256 and 512 among others
SAME = [[2.0, 2.1, 1.9]]
# Two steady rows may differ by 0.03 with another seed, two rising ones by 0.28, curves by 0.1.
NOISE = {"steady": {"1": 0.01}, "rising": {"1": 0.1}, "curve": 0.05 / 2**0.5}


@pytest.fixture(autouse=True)
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_load_noise", lambda: NOISE)


def risen(by: float, noise: float = 0.01) -> list[list[float]]:
    return [[value + by + noise * n for n, value in enumerate(SAME[0])]]


def judge(
    claim: str, curves: dict[str, list[Sequence[float]]] | None = None, **losses: Any
) -> dict[str, Any]:
    found = {one["id"]: one for one in check_claims(made(curves, **losses), CONFIG)}
    return found[claim]


def outcome(claim: str, **losses: Any) -> str:
    return str(judge(claim, **losses)["outcome"])


@pytest.mark.parametrize(
    ("rise", "expected"),
    [(1.0, "reproduced"), (0.0, "not reproduced"), (0.09, "not decidable")],
)
@pytest.mark.parametrize(
    ("claim", "name"),
    [("learned-rises", "learned"), ("sinusoidal-rises", "sinusoidal"), ("rope-degrades", "rope")],
)
def test_rising(claim: str, name: str, rise: float, expected: str) -> None:
    assert outcome(claim, **{name: {128: SAME, 512: risen(rise)}}) == expected


@pytest.mark.parametrize(
    ("rise", "expected"),
    [(0.1, "reproduced"), (2.7, "not reproduced"), (1.5, "not decidable")],
)
@pytest.mark.parametrize("name", ["alibi", "kerple", "t5"])
def test_holding(name: str, rise: float, expected: str) -> None:
    losses = {"rope": {128: SAME, 512: risen(3.0)}, name: {128: SAME, 512: risen(rise)}}
    assert outcome(f"{name}-holds", **losses) == expected


def test_yarn() -> None:
    rope = {128: SAME, 512: risen(1.0)}
    # The scaling is worse at the trained length; the rise counts from RoPE's own loss.
    far, near = ({128: risen(0.5), 512: risen(by)} for by in (2.0, 0.2))
    assert outcome("yarn-carries", rope=rope, rope_yarn=near) == "reproduced"
    assert outcome("yarn-carries", rope=rope, rope_yarn=far) == "not reproduced"


def test_nothing_is_spared_where_nothing_rises() -> None:
    losses: dict[str, Any] = {"rope": {128: SAME, 512: SAME}, "alibi": {128: SAME, 512: risen(-1)}}
    found = judge("alibi-holds", **losses)
    assert found["outcome"] == "not decidable"
    why = "rise of rope at 4x: 0.00 [0.00, 0.00], not surely above 0.1 (one seed, 3 windows)"
    assert found["evidence"].endswith(f"{why}, so that nothing is there to avoid")
    for name in ("xpos", "nope"):
        losses[name] = {128: SAME, 512: risen(-1)}
        assert outcome(f"{name}-over-rope", **losses) == "not decidable"


@pytest.mark.parametrize(
    ("name", "other"), [("rope", "sinusoidal"), ("t5", "rope"), ("alibi", "t5")]
)
@pytest.mark.parametrize(
    ("twice", "far", "expected"),
    [
        (1.3, 1.5, "reproduced"),
        (1.3, -0.5, "not reproduced"),  # one of the three is enough
        (-0.5, 1.3, "not reproduced"),
        (0.05, 1.5, "not decidable"),
        (1.5, 0.05, "not decidable"),
    ],
)
def test_order_past_the_trained_length(
    name: str, other: str, twice: float, far: float, expected: str
) -> None:
    losses = {
        name: {128: SAME, 256: SAME, 512: SAME},
        other: {128: SAME, 256: risen(twice), 512: risen(far)},
    }
    found = judge(f"{name}-over-{other}", None, **losses)
    assert found["outcome"] == expected
    assert found["value"]["mean"] == pytest.approx(min(twice, far) + 0.01)  # the smaller one
    at = "2x" if twice < far else "4x"
    assert f"; loss of {other} at {at}, less that of {name}: " in found["evidence"]


@pytest.mark.parametrize("other", ["t5", "alibi"])
def test_kerple_over_others(other: str) -> None:
    kerple = {128: SAME, 512: SAME}
    claim = f"kerple-over-{other}"
    assert outcome(claim, kerple=kerple, **{other: {128: SAME, 512: risen(0.8)}}) == "reproduced"
    assert outcome(claim, kerple=kerple, **{other: {128: risen(5), 512: risen(-0.3)}}) == (
        "not reproduced"
    )


@pytest.mark.parametrize(
    ("name", "other"), [("nope", "rope"), ("nope", "alibi"), ("nope", "t5"), ("xpos", "rope")]
)
def test_rises_are_compared_not_losses(name: str, other: str) -> None:
    steep, slight = {128: SAME, 512: risen(2.0)}, {128: risen(2.0), 512: risen(2.4)}
    claim = f"{name}-over-{other}"
    assert outcome(claim, **{name: slight, other: steep}) == "reproduced"
    assert outcome(claim, **{name: steep, other: slight}) == "not reproduced"


@pytest.mark.parametrize(
    ("claim", "name", "others"),
    [
        ("rope-below-learned", "rope", ["learned"]),
        ("rope-below-t5", "rope", ["t5"]),
        ("deberta-gains", "deberta", ["learned"]),
        ("transformer-xl-gains", "transformer_xl", ["shaw", "sinusoidal"]),
    ],
)
def test_gains_within_the_length(claim: str, name: str, others: list[str]) -> None:
    mine, worse, near = ({128: risen(by), 512: SAME} for by in (0.0, 0.3, 0.02))
    first, *rest = others
    more = dict.fromkeys(rest, worse)
    assert outcome(claim, **{name: mine, first: worse}, **more) == "reproduced"
    assert outcome(claim, **{name: worse, first: mine}, **more) == "not reproduced"
    found = judge(claim, None, **{name: mine, first: near}, **more)
    assert found["outcome"] == "not decidable"
    assert "; a difference within 0.028, which another seed may reverse; with" in found["evidence"]


SCALED = ("linear", "ntk", "ntk_by_parts", "yarn")


@pytest.mark.parametrize(
    ("rises", "worst", "best"),
    [
        ((3.6, 2.0, 2.0, 0.8), "reproduced", "reproduced"),
        ((2.0, 3.6, 2.0, 0.8), "not reproduced", "reproduced"),
        ((3.6, 2.0, 0.8, 2.0), "reproduced", "not reproduced"),
        ((3.6, 2.0, 0.9, 0.8), "reproduced", "not decidable"),
        ((3.6, 2.0, 1.4, 0.8), "reproduced", "not decidable"),
    ],
)
def test_scalings(rises: tuple[float, ...], worst: str, best: str) -> None:
    losses: dict[str, Any] = {
        f"rope_{name}": {128: SAME, 512: risen(rise)}
        for name, rise in zip(SCALED, rises, strict=True)
    }
    assert outcome("linear-worst", **losses) == worst
    assert outcome("yarn-best", **losses) == best
    del losses["rope_ntk"]
    assert check_claims(made(**losses), CONFIG) == []


def judge_with_third(claim: str, now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The claim by the losses ``now``, which were those of ``before`` with a third of the steps."""
    entries = add_thirds(made(**now), made(**before))
    return {one["id"]: one for one in check_claims(entries, CONFIG)}[claim]


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


def test_only_what_can_be_judged() -> None:
    assert [one["id"] for one in check_claims(made(rope={128: SAME, 512: SAME}), CONFIG)] == [
        "rope-degrades"
    ]
    short = RunConfig(evaluation=EvaluationConfig(multiples=(1.0, 2.0)))
    entries = made(rope={128: SAME, 256: SAME}, t5={128: SAME, 256: SAME})
    assert [one["id"] for one in check_claims(entries, short)] == [
        "rope-beats-t5",
        "rope-below-t5",
    ]


def test_models_that_know_nothing_are_not_judged() -> None:
    entries = made(learned={128: [[8.7, 8.8]], 512: [[9.7, 9.9]]})
    (found,) = check_claims(entries, CONFIG)
    assert found["outcome"] == "not yet"
    assert found["evidence"] == "learned: the loss is hardly below that of token frequencies"


def make_scaled(rope: list[list[float]]) -> list[EncodingResults]:
    """RoPE with these losses, and its scalings, of which Linear has lost what was learned."""
    losses: dict[str, Any] = {f"rope_{name}": {128: SAME, 512: SAME} for name in SCALED}
    losses["rope_linear"] = {128: [[8.7, 8.8, 8.9]], 512: [[8.8, 8.9, 8.8]]}
    scaled = [replace(one, encoding="rope", scaling=one.name[5:]) for one in made(**losses)]
    return [*made(rope={128: rope, 512: rope}), *scaled]


def test_a_scaling_may_lose_what_was_learned() -> None:
    """Linear scaling without fine-tuning does: that is the claim, not a lack of training."""
    found = {one["id"]: one["outcome"] for one in check_claims(make_scaled(SAME), CONFIG)}
    assert found["linear-worst"] == "reproduced"


@pytest.mark.parametrize("claim", ["linear-worst", "yarn-best", "yarn-carries"])
def test_rope_must_have_learned_what_scalings_lose(claim: str) -> None:
    entries = make_scaled([[8.7, 8.8, 8.9]])
    found = {one["id"]: one for one in check_claims(entries, CONFIG)}
    assert found[claim]["outcome"] == "not yet"
    assert found[claim]["evidence"] == "rope: the loss is hardly below that of token frequencies"


def test_a_loss_that_is_no_number() -> None:
    entries = made(rope={128: SAME, 512: [[float("nan"), 2.0, 2.0]]})
    (found,) = check_claims(entries, CONFIG)
    assert found["outcome"] == "not yet"
    assert "; a loss is not finite;" in found["evidence"]
    (found,) = check_claims(made(rope={128: [[1.0]], 512: [[2.0]]}), CONFIG)
    assert found["outcome"] == "not decidable"
    assert "; one value has no interval;" in found["evidence"]


def test_claims_are_about_decoders() -> None:
    entries = made(rope={128: SAME, 512: SAME})
    for model in (ModelConfig(kind="encoder"), ModelConfig(attention="linear")):
        assert check_claims(entries, RunConfig(model=model)) == []
    yarn = made(rope={128: SAME, 512: SAME}, rope_yarn={128: SAME, 512: SAME})
    twice = RunConfig(evaluation=EvaluationConfig(factor=2.0))
    assert [one["id"] for one in check_claims(yarn, twice)] == ["rope-degrades"]


def test_every_claim_is_published_once() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids) == 24
    for claim in CLAIMS:
        assert claim.url.startswith("https://") or "by construction" in claim.published


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_compares_rows_that_exist(claim: Claim) -> None:
    for name in claim.needs:
        encoding, _, scaling = name.partition("+")
        assert encoding in whorl.names()
        assert not scaling or scaling in SCALINGS
    if claim.kind == "speed":
        assert (len(claim.needs), claim.measures) == (2, ())
        return
    asked: set[tuple[str, int]] = set()

    def loss(name: str, times: int) -> float:
        asked.add((name, times))
        return 2.0

    for measure in claim.measures:
        measure.compute(loss)
    assert {name for name, _ in asked} == set(claim.needs)  # all that it needs, and no other
    assert {times for _, times in asked} == set(claim.multiples)  # as the evidence shows


def test_statistics() -> None:
    assert estimate([2.0]) == Estimate(2.0)
    assert str(estimate([1.0])) == "1.00"
    assert estimate([0.5]).format_percent() == "50 %"
    assert estimate([0.3, 0.31, 0.32]).format_percent() == "31 % [29 %, 33 %]"
    two = estimate([1.0, 2.0])
    assert two.high == pytest.approx(1.5 + 12.706 * 0.5, rel=1e-3)


@pytest.mark.parametrize(("degrees", "point"), [(5, 2.571), (11, 2.201), (30, 2.042), (63, 1.998)])
def test_students_t(degrees: int, point: float) -> None:
    """97.5 % points as printed in tables."""
    values = [(-1.0) ** n for n in range(degrees + 1)]
    half = stdev(values) / (degrees + 1) ** 0.5
    found = estimate(values)
    assert found.high is not None
    assert (found.high - found.mean) / half == pytest.approx(point, abs=3e-3)
