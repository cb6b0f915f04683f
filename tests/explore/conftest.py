"""A server and a browser for the tests of the pages.

Without Chromium or playwright those tests are skipped; with WHORL_BROWSER=required that is a
failure.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whorl.explore import server
from whorl.explore.state import ExplorerState

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

COMPARISON: dict[str, Any] = {
    "settings": {"measure": "loss", "length": 128, "lengths": [64, 128, 256, 512]},
    "corpus": {"unit": "bytes"},
    "rows": [
        {
            "name": name,
            "by_length": {str(64 * 2**n): {"mean": loss} for n, loss in enumerate(losses)},
            "tokens_per_second": 19_000.0,
        }
        for name, losses in {
            "rope": (2.0, 1.94, 2.24, 2.8),
            "alibi": (2.0, 1.96, 1.96, 1.96),
        }.items()
    ],
    "notes": ["One seed."],
    "claims": [],
}


def missing(what: str) -> None:
    if os.environ.get("WHORL_BROWSER") == "required":
        pytest.fail(f"WHORL_BROWSER=required, but {what}", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A running server, in a thread."""
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    found = server.open_socket(None)
    port = found.getsockname()[1]
    running = uvicorn.Server(server.make_config(ExplorerState(comparison=COMPARISON), port))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [found]})
    thread.start()
    yield f"http://127.0.0.1:{port}/"
    running.should_exit = True
    thread.join(10)
    found.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        missing("no Chromium is installed: apt-get install chromium-headless-shell")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=path)
        yield running
        running.close()


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    """Open a page; at the end there was no error in the console and no request to elsewhere.

    faults=True: the browser may log that the server failed, because the test makes it fail.
    """
    contexts: list[Any] = []
    wrong: list[str] = []

    def note(message: Any, faults: bool) -> None:
        failed = faults and "a status of 500" in message.text
        if message.type in ("error", "warning") and not failed:
            wrong.append(message.text)

    def watch(request: Any) -> None:
        if not request.url.startswith((address, "blob:", "data:")):
            wrong.append(f"asked for {request.url}")

    def open_page(path: str = "", *, width: int = 1280, scheme: str = "light", **more: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": more.get("height", 900)},
            color_scheme=scheme,
            reduced_motion=more.get("motion", "reduce"),
            accept_downloads=True,
            has_touch=more.get("touch", False),
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a busy machine measures the report card for long
        page.on("console", lambda message: note(message, more.get("faults", False)))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", watch)
        page.goto(address + path)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
