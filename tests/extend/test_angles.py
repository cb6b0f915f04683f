"""Effective context, out-of-distribution pairs and the change for short texts, against hand.py."""

import math

import pytest

from tests.extend import hand
from whorl.extend import plan_extension
from whorl.extend.angles import AngleReport, combine_worst

PLAIN = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
}
#: A config, a target, and by hand: head width, base, trained length.
CASES = [
    (PLAIN, "4x", 64, 1e4, 4096),
    ("llama-2-7b", "16k", 128, 1e4, 4096),
    ("qwen3-8b", "4x", 128, 1e6, 32_768),
    ("llama-3.1-8b", "256k", 128, 5e5, 8192),
]


@pytest.mark.parametrize("method", hand.METHODS)
@pytest.mark.parametrize(("config", "to", "d", "base", "trained"), CASES)
def test_angles_are_those_computed_by_hand(
    config: object, to: str, d: int, base: float, trained: int, method: str
) -> None:
    plan = plan_extension(config, to=to)
    assert plan.trained.tokens == trained
    found = plan.find_method(method)
    assert found is not None
    old, s = hand.unscaled(d, base), plan.target / trained
    published = hand.llama3(d, base, 8.0, trained) if config == "llama-3.1-8b" else old
    new = hand.METHODS[method](d, base, s, trained)
    if method == "none":
        new = published
    angles = found.angles
    assert angles.pairs == d // 2
    assert angles.out_of_distribution == hand.count_new(old, new, trained, plan.target)
    assert angles.effective_context == math.floor(hand.find_context(old, new, trained) + 1e-6)
    change = hand.find_change(published, new, trained)
    assert angles.angle_change == pytest.approx(change, rel=1e-9, abs=1e-9)
    scale = 0.1 * math.log(s) + 1 if method == "yarn" else 1.0
    assert angles.attention_scale == pytest.approx(scale, rel=1e-12)
    assert angles.published_scale == 1.0


def test_numbers_that_are_easy_to_check() -> None:
    plan = plan_extension(PLAIN, to="4x")
    linear, none = plan.find_method("linear"), plan.find_method("none")
    assert linear is not None
    assert none is not None
    # The fastest pair rotates by 1 rad per token: after 4096 tokens a quarter of 4096 is left.
    assert linear.angles.angle_change == pytest.approx(4096 * 3 / 4)
    assert linear.angles.effective_context == 16_384
    assert none.angles.effective_context == 4096
    # 2 pi 10000^(i / 32) > 4096 from i = 22.5 on.
    assert none.angles.out_of_distribution == 32 - 23
    assert none.angles.angle_change == 0


def test_methods_that_follow_the_length_leave_short_texts_alone() -> None:
    plan = plan_extension(PLAIN, to="4x")
    for name in ("dynamic_linear", "dynamic_ntk", "dynamic_yarn"):
        found = plan.find_method(name)
        assert found is not None
        assert found.angles.angle_change == 0
        assert found.angles.attention_scale == 1.0
        assert found.angles.out_of_distribution == 0
    yarn = plan.find_method("dynamic_yarn")
    assert yarn is not None
    assert yarn.angles.target_scale == pytest.approx(0.1 * math.log(4) + 1)


def test_a_dynamic_factor_is_no_larger_than_needed() -> None:
    found = plan_extension(PLAIN, to="4x").find_method("dynamic_ntk")
    assert found is not None
    # 1 + f (s - 1) is the factor of the raised base, 4^(31 / 23).
    assert found.scaling is not None
    assert found.scaling.factor == pytest.approx((4 ** (31 / 23) - 1) / 3)  # type: ignore[attr-defined]
    assert found.angles.effective_context == 16_384


def test_no_limit_if_every_pair_comes_round_in_training() -> None:
    fast = {**PLAIN, "rope_theta": 100.0}
    plan = plan_extension(fast, to="4x")
    none = plan.find_method("none")
    assert none is not None
    assert none.angles.effective_context is None
    assert none.angles.out_of_distribution == 0
    assert plan.recommended == "none"


def test_a_window_limits_distances() -> None:
    windowed = {**PLAIN, "model_type": "mistral", "sliding_window": 1024}
    found = plan_extension(windowed, to="4x").find_method("none")
    assert found is not None
    assert found.angles.out_of_distribution == 0
    assert found.angles.effective_context is None


def test_a_window_longer_than_training_limits_what_the_base_must_do() -> None:
    windowed = {**PLAIN, "model_type": "mistral", "sliding_window": 8192}
    found = plan_extension(windowed, to="4x").find_method("raised_base")
    assert found is not None
    assert found.scaling is not None
    assert found.scaling.factor == pytest.approx(2 ** (31 / 23))  # type: ignore[attr-defined]
    assert found.angles.out_of_distribution == 0


def test_the_worst_of_several_groups_counts() -> None:
    one = AngleReport(4096, 3, 32, 1.0, 1.2, 1.0, 1.2)
    other = AngleReport(None, 5, 64, 0.5, 1.0, 1.0, 1.0)
    assert combine_worst([one, other]) == AngleReport(4096, 5, 64, 1.0, 1.2, 1.0, 1.2)


def test_it_is_called_by_angles() -> None:
    plan = plan_extension(PLAIN, to="4x")
    assert {each["basis"] for each in plan.to_dict()["methods"]} == {"by angles"}
    assert "by angles, not measured" in str(plan).splitlines()[0]
