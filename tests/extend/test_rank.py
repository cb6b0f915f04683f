"""The order of methods follows the stated rule."""

from dataclasses import replace

from tests.extend.test_angles import PLAIN
from whorl.extend import AngleReport, FrameworkSupport, MethodReport, plan_extension
from whorl.extend.rank import RULE, find_first, rank_methods, write_reason
from whorl.scaling import DynamicNTK, Scaling

ANGLES = AngleReport(16_384, 0, 32, 10.0, 1.0, 1.0, 1.0)


def make(
    name: str, runs: int = 2, scaling: Scaling | None = None, **changed: float
) -> MethodReport:
    support = tuple(
        FrameworkSupport(f"f{n}", "1", "by reading", "runs" if n < runs else "differs")
        for n in range(3)
    )
    angles = replace(ANGLES, **changed)  # type: ignore[arg-type]
    return MethodReport(name, name, scaling, angles, support, {})


def test_each_step_of_the_rule_decides_before_the_next() -> None:
    methods = [
        make("nobody", runs=0, angle_change=0.0),
        make("new angles", runs=3, angle_change=0.0, out_of_distribution=1),
        make("follows", runs=3, angle_change=0.0, scaling=DynamicNTK(2.0, 4096)),
        make("large change", runs=3, angle_change=1000.0),
        make("few", runs=1, angle_change=5.0),
        make("more change", angle_change=11.0),
        make("scaled", attention_scale=1.1),
        make("best"),
    ]
    ranked = rank_methods(methods)
    names = ["best", "scaled", "more change", "few", "large change", "follows", "new angles"]
    assert [each.name for each in ranked] == [*names, "nobody"]
    assert len(RULE.split("; ")) == 7
    first = find_first(ranked)
    assert first is not None
    assert first.name == "best"


def test_nothing_comes_first_if_nobody_runs_anything() -> None:
    assert find_first(rank_methods([make("a", runs=0)])) is None
    assert find_first([]) is None


def test_the_reason_names_what_decided() -> None:
    best = make("best")
    cases = {
        "the next, has 1 such pairs": make("other", out_of_distribution=1),
        "the next, is run by 1.": make("other", runs=1),
        "the next, follows the length": make("other", scaling=DynamicNTK(2.0, 4096)),
        "angles by up to 10 rad (other, the next, by 11)": make("other", angle_change=11.0),
        "no other method is run": make("other", runs=0),
    }
    for words, other in cases.items():
        assert words in write_reason(best, [best, other], 4096)


def test_the_reason_of_a_plan() -> None:
    plan = plan_extension(PLAIN, to="4x")
    assert plan.reason.startswith(
        "yarn: no pair is out of distribution, every framework runs it and llama3, the next, is run"
    )
    assert [each.name for each in rank_methods(plan.methods)] == [e.name for e in plan.methods]


def test_a_model_trained_with_yarn_keeps_it() -> None:
    """Linear is run by more frameworks here, but would change short texts by 4,000 rad."""
    assert plan_extension("gpt-oss-20b", to="64x").recommended == "yarn"
