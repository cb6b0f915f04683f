"""What tests do with a page: wait until it says or draws something, move a slider."""

import time
from collections.abc import Callable
from typing import Any

__all__ = ["Visit", "marks", "says", "slide", "text", "until"]

Visit = Callable[..., Any]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.03)


def text(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def says(page: Any, selector: str, words: str) -> None:
    until(lambda: words in text(page, selector))


def slide(page: Any, selector: str, value: float) -> None:
    page.locator(selector).evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", value
    )


def marks(page: Any, chart: str) -> int:
    """Shapes in a chart, each with something drawn in it."""
    found = page.locator(f"#{chart} .plot path.mark, #{chart} .plot path.line")
    count = "(all) => all.filter((one) => (one.getAttribute('d') ?? '').length > 20).length"
    return int(found.evaluate_all(count))
