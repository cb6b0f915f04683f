"""What rules are given: parts of models, layer types, dialects, and configs of any kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.effort import bounded
from whorl.configs import ConfigError, Rotation, diagnosis, presets, read_config
from whorl.configs.diagnosis import RULES, model
from whorl.configs.diagnosis.engine import LLAMA
from whorl.configs.diagnosis.rules import keys, nested
from whorl.weights import config_file

HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 10**400, -(10**400), 1e308, 5e-324, float("nan"), float("inf")),
    *("", "yarn", "1e999", "x" * 10_000, [], [None], [[]], {}, {"a": {"b": {}}}, [1.0] * 10_000),
]
SEEDS = [
    RULES[name].trigger.config
    for name in (
        "factor-list-length",
        "truncate-nested",
        "sections",
        "low-high-order",
        "beta-order",
    )
]


def test_a_part_is_named_by_its_path() -> None:
    text = {**LLAMA, "rope_scaling": {"factor": 4.0}}
    found = diagnosis.diagnose({"model_type": "llava", "text_config": text, "vision_config": {}})
    assert [(f.rule, f.where) for f in found.errors] == [
        ("lone-factor", "text_config.rope_scaling.factor")
    ]


def test_text_keys_beside_a_vision_part_are_those_of_the_text() -> None:
    config = {
        **LLAMA,
        "model_type": "qwen2_vl",
        "vision_config": {"model_type": "qwen2_vl"},
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 30]},
    }
    found = diagnosis.diagnose(config)
    assert [(f.rule, f.where) for f in found.errors] == [("sections", "rope_scaling.mrope_section")]


def test_a_fix_inside_a_part() -> None:
    text = {**LLAMA, "rope_thta": 500000.0}
    found = diagnosis.diagnose({"model_type": "llava", "text_config": text})
    assert found.fixed()["text_config"]["rope_theta"] == 500000.0


def test_a_layer_type_is_named() -> None:
    config = RULES["truncate-nested"].trigger.config
    found = diagnosis.diagnose(config)
    assert found.warnings[0].where == "rope_parameters.full_attention.truncate"


def test_window_layers_are_judged_by_their_window() -> None:
    config = {
        **LLAMA,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention"] * 2,
    }
    assert "beyond-seen" not in {f.rule for f in diagnosis.diagnose(config, length=32768).findings}
    config["layer_types"] = ["sliding_attention", "full_attention"]
    assert "beyond-seen" in {f.rule for f in diagnosis.diagnose(config, length=32768).findings}


@pytest.mark.parametrize("name", presets.names())
def test_published_configs_have_no_errors(name: str) -> None:
    assert diagnosis.diagnose(name).errors == ()


PUBLISHED: dict[str, dict[str, Any]] = {
    "Kimi-K2": {
        "model_type": "deepseek_v3",
        "max_position_embeddings": 131072,
        "qk_rope_head_dim": 64,
        "rope_scaling": {
            "type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "Yarn-Llama-2-7b-128k": {
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "finetuned": True,
        },
    },
    "Hunyuan-A13B": {
        "model_type": "hunyuan_v1_moe",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "type": "dynamic",
            "alpha": 1000.0,
            "factor": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_unusual_but_right_configs_raise_no_alarm(name: str) -> None:
    found = diagnosis.diagnose({**LLAMA, **PUBLISHED[name]})
    assert found.errors == found.warnings == ()


def test_a_file_wins_over_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("llama-3.1-8b").write_text(json.dumps({**LLAMA, "rope_scaling": {"factor": 4.0}}))
    assert [f.rule for f in diagnosis.diagnose("llama-3.1-8b").errors] == ["lone-factor"]


def test_files_that_cannot_be_loaded_are_refused(tmp_path: Path) -> None:
    for name in ("nowhere.json", "x" * 5000, "a\0b"):
        with pytest.raises(ConfigError):
            diagnosis.diagnose(str(tmp_path / name))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        diagnosis.diagnose(tmp_path)


def test_a_config_of_meta_is_read_too(tmp_path: Path) -> None:
    params = {"dim": 4096, "n_layers": 2, "n_heads": 32, "rope_theta": 500000.0, "norm_eps": 1e-5}
    (tmp_path / "params.json").write_text(json.dumps(params))
    found = diagnosis.diagnose(tmp_path, length=2_097_152)
    assert {f.rule for f in found.findings} >= {"float32-angles"}


def paths(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in it."""
    found = [here] if here else []
    for key, value in data.items():
        found += paths(value, (*here, key)) if isinstance(value, dict) else [(*here, key)]
    return found


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed["model_type"])
def test_any_value_for_any_key_gives_an_answer(seed: dict[str, Any]) -> None:
    for path in paths(seed):
        for value in HOSTILE:
            config = json.loads(json.dumps(seed))
            place = config
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            with bounded(what=(path, value)):
                try:
                    found = diagnosis.diagnose(config, length=8192)
                except ConfigError:  # too large to be looked at
                    continue
                json.dumps(found.to_dict())
                found.fixed()


def test_a_misspelt_preset_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"doctor: there is no file .* did you mean 'qwen3-8b'"):
        diagnosis.diagnose("qwen3-8")


def test_a_gguf_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.configs.gguf_files import gguf_bytes, metadata
    from whorl.configs import gguf_header

    calls: list[str] = []
    original = gguf_header.read_metadata

    def counted(file: Any, where: str) -> Any:
        calls.append(where)
        return original(file, where)

    monkeypatch.setattr(gguf_header, "read_metadata", counted)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(metadata("llama")))
    assert diagnosis.diagnose(path).reading is not None
    assert calls == [str(path)]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-4b", "qwen3-8b-yarn", "deepseek-v3"])
def test_a_config_is_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reading for all rules, and of each rotation one module for one length."""
    readings, lengths = [], []
    read, frequencies = read_config, Rotation.frequencies

    def count_reading(x: Any, *, parity: Any = None) -> Any:
        readings.append(parity)
        return read(x, parity=parity)

    def count_frequencies(self: Rotation, length: int | None = None) -> Any:
        lengths.append((repr(self), length))
        return frequencies(self, length)

    for module in (model, keys, nested, config_file):
        monkeypatch.setattr(module, "read_config", count_reading)
    monkeypatch.setattr(Rotation, "frequencies", count_frequencies)
    found = diagnosis.diagnose(name)
    assert found.errors == ()
    assert readings == [None]
    assert len(lengths) == len(set(lengths)) > 0


def test_families_that_are_not_followed_are_read_as_transformers_does_too() -> None:
    config = {**LLAMA, "model_type": "of-its-own", "partial_rotary_factor": 0.5}
    loaded = model.load_model(config, None)
    ((part, ours, theirs),) = loaded.compared_readings
    assert part.where == ()
    assert loaded.reading is not None
    assert loaded.reading.transformers_groups is None
    assert len(ours.groups) == len(theirs) == 1
