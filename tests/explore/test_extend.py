"""The table of ``whorl extend`` in the explorer: its address, and its part of the page."""

import json
from typing import Any

import pytest

from whorl.configs import ConfigError
from whorl.explore import api
from whorl.explore._checks import RequestError
from whorl.explore.state import ExplorerState
from whorl.extend import plan_extension

from .page import Visit, says, text, until

QWEN = {"source": {"preset": "qwen3-8b"}}


def answer(request: Any) -> dict[str, Any]:
    return api.answer_extend(ExplorerState(), request)


def test_it_is_the_plan_of_the_command() -> None:
    found = answer({**QWEN, "to": "4x"})
    expected = json.loads(json.dumps(plan_extension("qwen3-8b", to="4x").to_dict()))
    assert {**found, "legend": None} == {**expected, "source": "qwen3-8b", "legend": None}
    assert "by angles, not measured" in found["legend"]


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        ({**QWEN, "to": "2k"}, ConfigError, "Extend to must be longer than what the config claims"),
        ({**QWEN, "to": "soon"}, ConfigError, "Extend to must be a number of tokens"),
        ({**QWEN, "to": 4.5}, RequestError, "to must be a length such as"),
        ({**QWEN, "to": True}, RequestError, "to must be a length such as"),
        (QWEN, RequestError, "to must be a length such as"),
        ({**QWEN, "to": "4x", "method": "yarn"}, RequestError, "has no 'method'"),
        ({"source": {"text": '{"model_type": 5}'}, "to": "4x"}, ConfigError, "model_type"),
        ({"source": {"text": '{"model_type": "bloom"}'}, "to": "4x"}, ConfigError, "no rotary"),
    ],
)
def test_what_it_refuses(request_: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        answer(request_)


def test_the_table_and_what_to_write(visit: Visit) -> None:
    page = visit()
    page.select_option("#preset", "qwen3-8b")
    says(page, "#extend-result", "Write yarn (factor 4): no pair is out of distribution at 131,072")
    rows = page.locator("#longer tbody tr")
    assert rows.count() == 10
    assert rows.first.inner_text().split("\t")[0].strip() == "yarn"
    page.locator("#longer summary").click()
    assert "llama-server -m MODEL.gguf -c 131072" in text(page, "#longer details")
    page.fill("#extend-to", "8x")
    says(page, "#extend-result", "at 262,144 tokens")
    page.fill("#extend-to", "soon")
    says(page, "#extend-error", "Extend to must be a number of tokens")
    assert rows.count() == 0
    page.fill("#extend-to", "4x")
    until(lambda: rows.count() == 10)


def test_it_is_hidden_where_nothing_can_be_extended(visit: Visit) -> None:
    page = visit()
    page.click("summary:has-text('Paste or drop')")
    page.fill("#text", '{"model_type": "bloom"}')
    page.click("#read")
    until(lambda: not page.locator("#longer").is_visible())
    page.select_option("#preset", "qwen3-8b")
    says(page, "#extend-result", "Write yarn")


def test_it_fits_a_phone(visit: Visit) -> None:
    page = visit(width=390)
    page.select_option("#preset", "qwen3-8b")
    says(page, "#extend-result", "Write yarn")
    wide = "() => document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 390
    page.locator("#longer summary").click()
    assert page.evaluate(wide) <= 390
