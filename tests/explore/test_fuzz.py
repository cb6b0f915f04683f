"""Whatever a request holds, the answer is JSON, or a message about the request or its config."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from whorl.configs import ConfigError, presets
from whorl.explore import api, choices
from whorl.explore._checks import RequestError
from whorl.explore.state import ExplorerState

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just([])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
CHOICES = st.fixed_dictionaries(
    {"method": st.sampled_from(["config", "none", *choices.list_methods()])},
    optional={
        "factor": st.floats(1e-3, 1e6) | SCALARS,
        "base": st.floats(1, 1e15) | st.sampled_from([1.0, 1e15]) | SCALARS,
    },
)
NUMBERS = {
    "length": st.integers(1, 2**24) | SCALARS,
    "trained": st.integers(1, 2**40) | SCALARS,
    "group": st.integers(0, 2) | SCALARS,
}


@st.composite
def sources(draw: st.DrawFn) -> dict[str, Any]:
    """A preset, or one with some of its keys changed."""
    name = draw(st.sampled_from(presets.names()))
    if draw(st.booleans()):
        return {"preset": name}
    config = presets.load(name)
    for key in draw(st.lists(st.sampled_from(sorted(config)), max_size=2)):
        config[key] = draw(JSON)
    return {"text": json.dumps(config)}


def answers(call: Any, request: Any) -> None:
    try:
        found = call(ExplorerState(), request)
    except (ConfigError, RequestError) as error:  # others are mistakes of whorl
        found = {"error": str(error)}
    assert json.dumps(found, allow_nan=False) != '{"error": ""}'


@settings(max_examples=100)
@given(sources(), st.lists(CHOICES, max_size=3), st.fixed_dictionaries({}, optional=NUMBERS))
def test_views(source: dict[str, Any], choices: list[Any], numbers: dict[str, Any]) -> None:
    answers(api.answer_view, {"source": source, "choices": choices, "distance": 7, **numbers})


@settings(max_examples=100)
@given(sources(), CHOICES, st.fixed_dictionaries({}, optional=NUMBERS))
def test_reports(source: dict[str, Any], choice: Any, numbers: dict[str, Any]) -> None:
    answers(api.answer_report, {"source": source, "choice": choice, **numbers})


@settings(max_examples=100)
@given(
    JSON,
    st.sampled_from(
        [
            *(api.answer_view, api.answer_report, api.answer_models),
            *(api.answer_bias, api.answer_card, api.answer_lab),
        ]
    ),
)
def test_anything(request: Any, call: Any) -> None:
    answers(call, request)
