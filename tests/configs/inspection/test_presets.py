"""The configs of well-known models that ship with whorl."""

import json
import re
from datetime import date
from pathlib import Path

import pytest

from whorl.configs import ConfigError, diagnosis, presets, read_config
from whorl.configs.inspection import inspect

FOLDER = Path(presets.__file__).parent
#: A file at one commit, or a thread.
ADDRESS = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+/(blob/[0-9a-f]{40}/[\w./-]+|pull/[0-9]+)"
)
#: Presets whose numbers no copy that could be named has.
WITHOUT_COPY = {"glm-4-9b", "modernbert-base"}


def test_every_file_is_a_preset_with_its_source() -> None:
    assert presets.names() == sorted(path.stem for path in FOLDER.glob("*.json"))
    assert len(presets.names()) >= 60
    for name in presets.names():
        config = presets.load(name)
        assert config["_source"].startswith("https://huggingface.co/")
        assert presets.get_repository(config).count("/") == 1
        assert date.fromisoformat(config["_recorded"]) >= date(2026, 11, 16)
        if name not in WITHOUT_COPY:
            assert ADDRESS.fullmatch(config["_copy"]), name
        assert config == json.loads((FOLDER / f"{name}.json").read_text())


def test_a_preset_is_new_at_each_call() -> None:
    presets.load("llama-3.1-8b")["rope_scaling"]["factor"] = 1.0
    assert presets.load("llama-3.1-8b")["rope_scaling"]["factor"] == 8.0


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_read_and_inspected(name: str) -> None:
    found = inspect(name, length=10_000)
    assert found.source == name
    assert found.model == read_config(presets.load(name))
    assert any(report.encoding is not None for report in found.groups)
    assert found.verdict.startswith(found.model.model_type or "")
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_unknown_preset() -> None:
    with pytest.raises(ConfigError, match=r"no preset 'llama-3-8'; did you mean 'llama-3-8b'\?"):
        presets.load("llama-3-8")
    with pytest.raises(
        ConfigError, match=r"no preset '../llama'.* whorl inspect --list shows all 6"
    ):
        presets.load("../llama")


#: What the doctor says about published configs, on purpose.
KNOWN_WARNINGS = {
    "ministral-3-3b": {"theta-inside-only"},
    "qwen3-8b-yarn": {"factor-mismatch"},
}


@pytest.mark.parametrize("name", presets.names())
def test_the_doctor_has_no_objection(name: str) -> None:
    found = diagnosis.diagnose(name)
    assert not found.errors
    warned = {each.rule for each in found.findings if each.severity == "warning"}
    assert warned == KNOWN_WARNINGS.get(name, set())
    assert all(group.refusal is None for group in read_config(name).groups)


def test_a_repository_has_its_published_preset() -> None:
    assert presets.find_repository("Qwen/Qwen3-8B") == "qwen3-8b"  # not the one with YaRN
    assert presets.find_repository("nobody/nothing") is None
    assert presets.find("QWEN3-8B") == "qwen3-8b"
    assert presets.find("qwen3") is None


def test_the_pages_say_how_many_there_are() -> None:
    docs = Path(__file__).parents[3] / "docs"
    copied = [each for each in presets.describe() if each["copy"] is not None]
    assert {each["name"] for each in presets.describe()} - WITHOUT_COPY == {
        each["name"] for each in copied
    }
    named = sum(each["inferred"] is None for each in copied)
    assert f"{named} of the {len(copied)} copies name" in (docs / "configs.md").read_text()
    assert f"of {len(presets.names())} published models" in (docs / "configs.md").read_text()
    assert f"--list shows {len(presets.names())}" in (docs / "inspect.md").read_text()
