"""Writing into config.json: its own dialect, the original kept, the result diagnosed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.extend.test_angles import PLAIN
from whorl.configs import ConfigError, read_config
from whorl.extend import plan_extension, write_extension
from whorl.scaling import YaRN


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN))
    return path


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_it_writes_the_own_dialect_and_keeps_the_original(file: Path) -> None:
    before = file.read_bytes()
    written = write_extension(plan_extension(file, to="4x"))
    assert written.path == file
    assert written.original == file.with_name("config.original.json")
    assert written.original.read_bytes() == before
    data = load(file)
    assert list(data)[: len(PLAIN)] == list(PLAIN)
    assert "rope_parameters" not in data
    assert data["rope_scaling"]["rope_type"] == "yarn"
    assert data["max_position_embeddings"] == 16_384
    (group,) = read_config(file).groups
    assert group.rotation is not None
    assert group.rotation.options["scaling"] == YaRN(4.0, 4096)
    assert [path.name for path in sorted(file.parent.iterdir())] == [
        "config.json",
        "config.original.json",
    ]
    assert written.remaining.errors == ()


def test_a_config_of_version_5_stays_one(file: Path) -> None:
    five = {k: v for k, v in PLAIN.items() if k != "rope_theta"}
    five |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    file.write_text(json.dumps(five))
    write_extension(plan_extension(file, to="4x", method="linear"))
    assert load(file)["rope_parameters"] == {
        "rope_type": "linear",
        "rope_theta": 1e4,
        "factor": 4.0,
    }
    assert "rope_scaling" not in load(file)


def test_a_second_original_gets_another_name(file: Path) -> None:
    write_extension(plan_extension(file, to="4x"))
    first = file.read_bytes()
    again = write_extension(plan_extension(file, to="8x"))
    assert again.original is not None
    assert again.original.name == "config.original.2.json"
    assert again.original.read_bytes() == first
    assert load(file)["rope_scaling"]["factor"] == 8.0


def test_out_leaves_the_config_alone(file: Path) -> None:
    before, out = file.read_bytes(), file.with_name("longer.json")
    written = write_extension(plan_extension(file, to="4x"), out)
    assert (written.path, written.original) == (out, None)
    assert file.read_bytes() == before
    assert load(out)["rope_scaling"]["factor"] == 4.0
    with pytest.raises(ConfigError, match=r"out: '.*longer.json' exists already; name another"):
        write_extension(plan_extension(file, to="4x"), out)


def test_a_preset_needs_out(tmp_path: Path) -> None:
    plan = plan_extension("qwen3-8b", to="4x")
    with pytest.raises(ConfigError, match=r"qwen3-8b is no file that could be changed; pass out="):
        write_extension(plan)
    assert write_extension(plan, tmp_path / "qwen3.json").path.exists()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dynamic_yarn", "dynamic_yarn cannot be written: transformers has no type for"),
    ],
)
def test_nothing_is_written_that_cannot_be(file: Path, method: str, message: str) -> None:
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=message):
        write_extension(plan_extension(file, to="4x", method=method))
    assert file.read_bytes() == before
    assert len(list(file.parent.iterdir())) == 1


def test_nothing_is_written_if_nothing_is_needed() -> None:
    with pytest.raises(ConfigError, match="nothing to write: the published config claims 131,072"):
        write_extension(plan_extension("llama-3.1-8b", to="128k"))


def test_nothing_is_written_if_nobody_runs_it(file: Path) -> None:
    file.write_text(json.dumps({**PLAIN, "model_type": "foo_bar"}))
    with pytest.raises(ConfigError, match="nothing to write: No framework runs any"):
        write_extension(plan_extension(file, to="4x"))


def test_a_dialect_that_cannot_express_it_is_named(file: Path) -> None:
    from whorl.configs import presets

    bert = {**presets.load("modernbert-base"), "transformers_version": "4.48.0"}
    file.write_text(json.dumps(bert))
    plan = plan_extension(file, to="4x", method="yarn")
    if plan.dialect in plan.configs:
        pytest.skip("version 4 can express it")
    with pytest.raises(ConfigError, match="is written for transformers 4, whose keys cannot expr"):
        write_extension(plan)


def test_a_full_disk_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def fail(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whorl.extend.writing.write_file_atomically", fail)
    with pytest.raises(OSError, match="cannot be written: No space left on device; nothing was"):
        write_extension(plan_extension(file, to="4x"))
    assert file.read_bytes() == before
