"""Who runs a method: the same evidence as ``whorl inspect``, in both dialects."""

import pytest

from tests.extend.test_angles import PLAIN
from whorl.configs.inspection import inspect
from whorl.extend import plan_extension
from whorl.extend.support import list_frameworks

FRAMEWORKS = ["transformers 4", "transformers 5", "vLLM", "llama.cpp", "mlx-lm"]


def outcomes(config: object, method: str, to: str = "4x") -> dict[str, str]:
    found = plan_extension(config, to=to).find_method(method)
    assert found is not None
    return {each.framework: each.outcome for each in found.support}


def test_the_frameworks_and_their_basis() -> None:
    found = list_frameworks()
    assert [name for name, _, _ in found] == FRAMEWORKS
    assert found[0] == ("transformers 4", "4.52+", "by reading")
    assert {name: basis for name, _, basis in found}["mlx-lm"] == "executed in tests"


@pytest.mark.parametrize("method", ["yarn", "linear", "ntk_by_parts", "llama3", "ntk"])
@pytest.mark.parametrize("config", ["qwen3-8b", "llama-2-7b"])
def test_the_outcome_is_that_of_inspect(config: str, method: str) -> None:
    extended = inspect(config, extend=method, factor=4).groups[0].frameworks
    expected = {each.framework: each.outcome for each in extended}
    found = outcomes(config, method)
    assert found["transformers 5"] == "runs"
    assert expected["transformers"] == "agrees"
    for name in ("vLLM", "llama.cpp", "mlx-lm"):
        assert found[name] == {"agrees": "runs"}.get(expected[name], expected[name])


def test_everybody_runs_yarn_and_a_raised_base() -> None:
    for method in ("none", "yarn", "linear", "raised_base"):
        assert outcomes(PLAIN, method) == dict.fromkeys(FRAMEWORKS, "runs")


def test_what_differs_says_why() -> None:
    found = plan_extension(PLAIN, to="4x").find_method("dynamic_ntk")
    assert found is not None
    why = {each.framework: each.why for each in found.support}
    assert why["transformers 5"] is None
    assert "'dynamic' is computed once" in (why["vLLM"] or "")
    assert "'dynamic' is not written" in (why["llama.cpp"] or "")


def test_what_no_config_can_say_is_run_by_nobody_and_comes_last() -> None:
    plan = plan_extension(PLAIN, to="4x")
    assert outcomes(PLAIN, "dynamic_yarn") == dict.fromkeys(FRAMEWORKS, "inexpressible")
    assert {each.name for each in plan.methods[-2:]} == {"dynamic_linear", "dynamic_yarn"}
    for name in ("dynamic_linear", "dynamic_yarn"):
        found = plan.find_method(name)
        assert found is not None
        assert found.why == f"transformers has no type for {name!r}"


def test_mlx_lm_runs_it_in_the_dialect_that_it_reads() -> None:
    five = {k: v for k, v in PLAIN.items() if k != "rope_theta"}
    five |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    found = plan_extension(five, to="4x").find_method("yarn")
    assert found is not None
    (mlx,) = [each for each in found.support if each.framework == "mlx-lm"]
    assert mlx.outcome == "runs"
    assert mlx.dialects == ("transformers 4",)


def test_a_family_that_nobody_read_is_unknown() -> None:
    found = outcomes({**PLAIN, "model_type": "olmo"}, "yarn")
    assert found["transformers 5"] == "runs"
    assert found["vLLM"] == found["llama.cpp"] == "unknown"


def test_positions_on_several_axes_are_known_for_transformers_only() -> None:
    found = outcomes("qwen2.5-vl-7b", "yarn")
    assert found["transformers 5"] == "runs"
    assert found["vLLM"] == "unknown"


def test_nothing_is_recommended_that_nobody_runs() -> None:
    plan = plan_extension({**PLAIN, "model_type": "foo_bar"}, to="4x")
    assert plan.recommended is None
    assert plan.chosen is None
    assert plan.recipes == ()
    assert plan.verdict[0].startswith("No framework can run any method")
    assert "foo_bar" in plan.verdict[1]
