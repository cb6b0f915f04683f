"""The configs of well-known models that ship with whorl."""

import json
from pathlib import Path

import pytest

from whorl.configs import ConfigError, presets, read_config
from whorl.configs.inspection import inspect

FOLDER = Path(presets.__file__).parent


def test_every_file_is_a_preset_with_its_source() -> None:
    assert presets.names() == sorted(path.stem for path in FOLDER.glob("*.json"))
    assert len(presets.names()) >= 12
    for name in presets.names():
        config = presets.load(name)
        assert config["_source"].startswith("https://huggingface.co/")
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
    with pytest.raises(
        ConfigError, match=r"no preset 'llama-3-8b'; did you mean 'llama-3\.1-8b'\?"
    ):
        presets.load("llama-3-8b")
    with pytest.raises(ConfigError, match=r"no preset '../llama'\. Presets: deepseek-v3,"):
        presets.load("../llama")


def test_a_name_is_resolved_once_for_all() -> None:
    assert presets.resolve("llama-2-7b", "here") == presets.load("llama-2-7b")
    for x in ({"a": 1}, None, __file__, '{"model_type": "llama"}'):
        assert presets.resolve(x, "here") is x
    for name in ("lama-2-7b", Path("lama-2-7b")):
        with pytest.raises(
            ConfigError,
            match=r"here: there is no file 'lama-2-7b', and no preset of that name; did you mean"
            r" 'llama-2-7b'\? Presets: .*\. Nothing is downloaded\.",
        ):
            presets.resolve(name, "here")
