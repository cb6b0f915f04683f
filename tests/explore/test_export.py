"""The page in one file: its numbers are those of the live page, and it needs nothing else."""

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.configs import ConfigError
from whorl.explore import api, export, heat
from whorl.explore.state import ExplorerState

STATE = ExplorerState()


def load(name: str) -> Any:
    return STATE.find_config({"preset": name})


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "FACTORS", (4.0,))
        patch.setattr(export, "list_methods", lambda: ["linear", "yarn"])
        calls: list[tuple[int, int, str]] = []
        found = export.build_document(
            [load("smollm2-135m")], progress=lambda *moment: calls.append(moment)
        )
    assert calls == [(n, 3, "smollm2-135m") for n in (1, 2, 3)]
    return found


@pytest.mark.slow
def test_steps_are_those_of_the_live_page(document: dict[str, Any]) -> None:
    (model,) = document["models"]
    (group,) = model["groups"]
    assert [(step["method"], step["factor"]) for step in group["steps"]] == [
        ("config", None),
        ("linear", 4.0),
        ("yarn", 4.0),
    ]
    step = group["steps"][2]
    choice = {"method": "yarn", "factor": 4.0}
    asked = {"source": {"preset": "smollm2-135m"}, "length": 32_768}
    live = api.answer_view(STATE, {**asked, "choices": [choice]})
    assert step["length"] == 4 * 8192
    assert step["likeness"] == live["likeness"]
    assert step["heat"] == live["heat"]
    assert step["curves"][1]["wavelengths"] == pytest.approx(
        live["curves"][1]["wavelengths"], rel=1e-5
    )
    assert step["curves"][1]["statuses"] == live["curves"][1]["statuses"]
    report = api.answer_report(STATE, {"source": asked["source"], "choice": choice})
    assert step["configs"] == report["configs"]
    assert json.loads(step["configs"]["transformers 4"])["rope_scaling"]["factor"] == 4.0
    assert model["verdict"].startswith("llama: ")


@pytest.mark.slow
def test_the_page_is_complete(document: dict[str, Any]) -> None:
    document = {**document, "models": [{**document["models"][0], "name": "</script><b>{{data}}"}]}
    page = export.render_page(document).decode()
    assert page.count("</script>") == 2  # of the data and of the script
    assert not re.search(r"^(import|export) ", page, re.MULTILINE)
    assert "{{title}}" not in page
    inside = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(inside) == json.loads(json.dumps(document))
    found = set(re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(", page))
    assert found <= {"data:,"}
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[\w./-]+", page.replace(inside, "")))
    assert addresses == {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_two_models_are_compared_as_published() -> None:
    found = export.build_document([load("llama-3-8b"), load("llama-3.1-8b")])
    assert [len(model["groups"][0]["steps"]) for model in found["models"]] == [1, 1]
    differ = [fact["name"] for fact in found["difference"]["facts"] if fact["differs"]]
    assert "scaling" in differ
    assert "base" not in differ
    assert found["difference"]["verdict"].startswith(
        "llama-3-8b and llama-3.1-8b differ in context"
    )


def test_a_model_without_rotation_is_refused() -> None:
    text = json.dumps({"model_type": "gpt2", "n_positions": 1024})
    with pytest.raises(ConfigError, match="nothing to draw"):
        export.build_document([STATE.find_config({"text": text})])
    broken = STATE.find_config({"text": json.dumps({"model_type": "llama", "rope_theta": -1})})
    with pytest.raises(ConfigError, match=r"pasted config: .*rope_theta"):
        export.build_document([broken])


def test_the_heat_map_by_hand() -> None:
    found = heat.build_heat_map(torch.tensor([1.0, math.pi / 1000], dtype=torch.float64), 1000)
    values = base64.b64decode(found["values"])
    columns = len(found["distances"])
    assert (found["distances"][0], found["distances"][-1], len(values)) == (1, 1000, 2 * columns)
    assert values[0] == round(127 + 127 * math.cos(1))
    assert values[-1] == 0  # half a rotation
    assert heat.build_heat_map(torch.zeros(1), 10)["distances"][-1] == 10
    assert len(heat.build_heat_map(torch.full((128,), 0.1), 100)["pairs"]) == 64


@pytest.mark.slow
def test_the_page_opens_from_the_disk(
    document: dict[str, Any], browser: Any, tmp_path: Path
) -> None:
    """Without a network, and on a phone."""
    file = tmp_path / "page.html"
    file.write_bytes(export.render_page(document))
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    assert "YaRN x 4, at 32,768 tokens: no pair has" in page.inner_text("#live")
    assert '"rope_type": "yarn"' in page.inner_text("#configs")
    page.select_option("#method", "linear")
    assert "linear x 4" in page.inner_text("#live")
    assert page.locator("canvas").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert problems == []
    context.close()
