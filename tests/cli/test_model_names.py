"""Commands take a model by its name in the local cache of Hugging Face, and list the presets."""

import json
from pathlib import Path

import pytest

from tests.cached_models import add
from whorl.configs import presets
from whorl.configs.names import get_model_name

from .conftest import Whorl


@pytest.mark.slow
def test_commands_take_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whorl: Whorl
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = add(tmp_path, "Some/Model-2.5B", "abc", main=True)
    assert get_model_name(snapshot) == "Model-2.5B"
    name = "Some/Model-2.5B"
    assert "base 123,456" in whorl("inspect", name).out
    assert json.loads(whorl("doctor", name, "--json").out)["path"].startswith(str(snapshot))
    chart = whorl("plot", "wavelengths", "--config", name, "--json")
    assert "123456" in json.loads(chart.out)["encoding"].replace(",", "")
    assert whorl("extend", name, "--to", "4x").code == 0
    refused = whorl("extend", name, "--to", "4x", "--write")
    assert refused.code == 2
    assert (
        "is in the cache of Hugging Face, which other programs read too; pass out= (--out FILE)"
        in refused.err
    )
    assert whorl("extend", name, "--to", "4x", "--out", str(tmp_path / "new.json")).code == 0
    fix = whorl("doctor", name, "--fix")
    assert "--fix: " in fix.err
    assert "is in the cache of Hugging Face" in fix.err
    text = ("--text", __file__)
    for command in (
        ("detect", name),
        ("finetune", name, *text),
        ("convert", name, "out", "--to", "half"),
    ):
        assert "snapshots/abc" in whorl(*command).err  # no weights there


@pytest.mark.slow
def test_inspect_lists_the_presets(whorl: Whorl) -> None:
    page = whorl("inspect", "--list").out
    rows = {
        line.split()[0]: line for line in page.splitlines() if line[:2] == "  " and line[2] != " "
    }
    assert sorted(rows) == presets.names()
    assert "131,072" in rows["llama-3.1-8b"]
    listed = json.loads(whorl("inspect", "--list", "--json").out)
    assert [each["name"] for each in listed] == presets.names()
    assert listed[0] == {
        "name": "aya-23-8b",
        "repository": "CohereForAI/aya-23-8B",
        "model_type": "cohere",
        "context": 8192,
        "source": presets.load("aya-23-8b")["_source"],
        "copy": presets.load("aya-23-8b")["_copy"],
        "entry": "aya-23",
        "inferred": "the 8B by its sizes",
        "recorded": "2026-11-19",
    }
    assert "name a config.json, a folder, a preset or a model; see" in whorl("inspect").err
