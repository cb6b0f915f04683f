"""Two models side by side: what the command line and requests name, and the page in a browser."""

import json
from pathlib import Path
from typing import Any

import pytest

from whorl.configs import ConfigError
from whorl.explore import api, export
from whorl.explore._checks import RequestError
from whorl.explore.state import ExplorerState, load_models, load_state

from .page import Visit, marks, says, text, until

TWO = {"first": {"preset": "llama-3-8b"}, "second": {"preset": "llama-3.1-8b"}}
SMALL = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}


def write_config(folder: Path, **keys: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SMALL, **keys}))
    return str(folder / "config.json")


def test_the_page_gets_what_the_file_has() -> None:
    state = ExplorerState()
    models = [state.find_config(source) for source in TWO.values()]
    assert api.answer_models(state, TWO) == export.build_document(models)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        ({}, RequestError, "source must be one of preset, text, given and other"),
        ({**TWO, "third": 1}, RequestError, "has no 'third'"),
        ({**TWO, "second": {"other": True}}, RequestError, "no other config was given"),
        ({**TWO, "first": {"given": True}}, RequestError, "no config was given"),
        ({**TWO, "first": {"preset": "no such"}}, ConfigError, "no preset 'no such'"),
        ({**TWO, "first": {"text": '{"model_type": 3}'}}, ConfigError, "pasted config: "),
    ],
)
def test_what_it_refuses(request_: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        api.answer_models(ExplorerState(), request_)


def test_a_model_without_rotation_has_facts_and_no_curves() -> None:
    bert = {"text": '{"model_type": "bert", "hidden_size": 64}'}
    found = api.answer_models(ExplorerState(), {**TWO, "second": bert})
    with_curves, without = found["models"]
    assert (len(with_curves["groups"]), without["groups"]) == (1, [])
    assert without["verdict"] == "bert has no rotary embedding."
    facts = {fact["name"]: fact["second"] for fact in found["difference"]["facts"]}
    assert facts["base"] == "\u2013"


def test_configs_of_the_command_line(tmp_path: Path) -> None:
    one, other = write_config(tmp_path / "one"), write_config(tmp_path / "two", rope_theta=5e5)
    state = load_state(one, other)
    start = api.answer_start(state)
    assert (start["first"], start["second"]) == ({"given": True}, {"other": True})
    assert (start["given"], start["other"]) == (one, other)  # both files are called config.json
    found = api.answer_models(state, {"first": start["first"], "second": start["second"]})
    differ = {fact["name"] for fact in found["difference"]["facts"] if fact["differs"]}
    assert "base" in differ
    mixed = load_state(one, "Qwen3-8B")
    assert (mixed.other, mixed.other_preset) == (None, "qwen3-8b")
    assert mixed.given is not None
    assert mixed.given.name == "config.json"
    assert api.answer_start(mixed)["second"] == {"preset": "qwen3-8b"}
    assert [model.preset for model in load_models(["qwen3-8b", one])] == ["qwen3-8b", None]


@pytest.mark.parametrize("preset", [None, "llama-3.1-8b", "qwen3-8b"])
def test_one_model_has_another_beside_it(preset: str | None) -> None:
    start = api.answer_start(load_state(preset))
    assert start["first"] == {"preset": preset or "llama-3.1-8b"}
    assert start["first"] != start["second"]


@pytest.mark.slow
def test_two_models_in_a_browser(visit: Visit) -> None:
    page = visit("models", width=390)
    assert text(page, "#verdict").startswith("llama-3.1-8b and qwen3-8b differ in ")
    page.select_option("#second", "llama-3.1-8b")
    says(page, "#verdict", "llama-3.1-8b and llama-3.1-8b treat positions alike.")
    assert page.locator("tr.differs").count() == 0
    page.select_option("#second", "llama-3-8b")
    says(page, "#live", "llama-3-8b, at 8,192 tokens: no pair has")
    names = [each.strip() for each in page.locator("#wavelengths .key li").all_inner_texts()]
    assert names == ["llama-3.1-8b", "llama-3-8b"]
    for chart in ("wavelengths", "likeness", "decay"):
        assert marks(page, chart) >= 2, chart
    assert page.locator("#heat canvas").count() == 2
    assert page.locator("tr.differs").count() >= 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_a_model_without_rotation_in_a_browser(visit: Visit, both: bool) -> None:
    bert = {"text": '{"model_type": "bert", "hidden_size": 64}'}
    first = bert if both else {"preset": "qwen3-8b"}
    answer = json.dumps(api.answer_models(ExplorerState(), {"first": first, "second": bert}))
    page = visit("models")
    page.route("**/api/models", lambda route: route.fulfill(status=200, body=answer))
    page.select_option("#first", "qwen3-8b")
    says(page, "#facts", "bert has no rotary embedding.")
    assert page.locator("#heat canvas").count() == (0 if both else 1)
    assert ("neither model rotates" in text(page, "#decay")) == both


@pytest.mark.slow
def test_a_model_that_cannot_be_read_says_why(visit: Visit) -> None:
    page = visit("models")
    answer = json.dumps({"error": "a/config.json: rope_theta must be above 0."})
    page.route("**/api/models", lambda route: route.fulfill(status=200, body=answer))
    page.select_option("#first", "qwen3-8b")
    says(page, "#error", "a/config.json: rope_theta must be above 0.")
    assert page.locator("#results").is_hidden()
    page.unroute("**/api/models")
    page.select_option("#first", "mistral-7b-v0.3")
    until(page.locator("#error").is_hidden)
    until(lambda: marks(page, "wavelengths") >= 2)
