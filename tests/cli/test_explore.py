"""``whorl explore``: which page it opens, and files instead of a server."""

from pathlib import Path
from typing import Any

import pytest

from whorl.explore.state import ExplorerState

from .conftest import Whorl


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--export", "page.html"], "--export and --picture need a config; name one."),
        (["qwen3-8b", "--export", "page.txt"], "name a file that ends in .html, not 'page.txt'"),
        (["qwen3-8b", "--picture", "page.gif"], "page.gif"),
        (["qwen3-8b", "--factor", "4"], "--method and --factor are about --picture; add it"),
        (["nonesuch", "--export", "page.html"], "explore: there is no file 'nonesuch'"),
    ],
)
def test_what_it_refuses(whorl: Whorl, args: list[str], message: str) -> None:
    done = whorl("explore", *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.slow
def test_pictures_need_no_browser(whorl: Whorl, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert whorl("explore", "qwen3-8b", "--picture", str(one), "--factor", "8").out == f"{one}\n"
    assert "as extended by yarn to 262,144" in one.read_text()
    assert "qwen3-8b, full_attention: wavelengths" in one.read_text()
    assert whorl("explore", "llama-3-8b", "llama-3.1-8b", "--picture", str(two)).code == 0
    assert "llama-3-8b" in two.read_text()
    refused = whorl("explore", "gpt-neox-20b", "qwen3-8b", "--picture", str(two), "--factor", "2")
    assert "--method and --factor extend one model" in refused.err


def test_two_configs_open_the_page_of_two_models(
    whorl: Whorl, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whorl.explore import server

    calls: list[tuple[ExplorerState, dict[str, Any]]] = []
    monkeypatch.setattr(server, "serve", lambda state, **options: calls.append((state, options)))
    assert whorl("explore", "qwen3-8b", "llama-3-8b", "--port", "8700").code == 0
    assert whorl("explore", "qwen3-8b", "--no-open").code == 0
    (two, opened), (one, printed) = calls
    assert (two.preset, two.other_preset) == ("qwen3-8b", "llama-3-8b")
    assert (one.preset, one.other_preset) == ("qwen3-8b", None)
    assert opened == {"port": 8700, "browser": True, "page": "models"}
    assert printed == {"port": None, "browser": False, "page": ""}
