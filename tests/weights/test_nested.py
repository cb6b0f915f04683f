"""Configs with the text in a part of its own: the layout is written where it is read again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl import read_config
from whorl.configs import ConfigError
from whorl.weights import convert
from whorl.weights.sizes import Stated, find_sizes

from .made import llama, llama_config, load, save, write_config

TEXT = {name: value for name, value in llama_config().items() if name != "model_type"}
AXES = {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
VISION = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}


def nested(whole: str, text: str, *path: str, **more: Any) -> dict[str, Any]:
    """The config of a model ``whole`` whose text, of the type ``text``, lies at a path of keys."""
    part: dict[str, Any] = {"model_type": text, **(AXES if "qwen2_5" in whole else TEXT)}
    for name in reversed(path or ("text_config",)):
        part = {name: part}
    return {"model_type": whole, "vision_config": VISION, **part, **more}


CONFIGS = {
    "mistral3": nested("mistral3", "mistral"),
    "gemma3": nested("gemma3", "gemma3_text"),
    "llava": nested("llava", "llama"),
    "qwen2_5_vl": nested("qwen2_5_vl", "qwen2_5_vl_text"),
    "deeper": nested("qwen2_5_omni", "qwen2_5_omni_text", "thinker_config", "text_config"),
    "heads outside too": nested("llava", "llama", num_attention_heads=96),
    "beside the parts": {"model_type": "qwen2_vl", "vision_config": {"depth": 1}, **AXES},
    "unknown": {"model_type": "my_model", "decoder": {"model_type": "llama", **TEXT}},
    "said outside": nested("llava", "llama", rope_traditional=False),
    "no model type": {"model_type": "llava", "text_config": TEXT},
}


def made(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    save(folder / "model.safetensors", llama())
    write_config(folder, **config)
    return folder


def said(folder: Path) -> set[str]:
    groups = read_config(folder).groups
    return {group.rotation.options.get("layout", "half") for group in groups if group.rotation}


@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    """What is written is read as what was asked for, and can be converted back."""
    source = made(tmp_path / "in", CONFIGS[name])
    assert said(source) == {"half"}
    convert(source, tmp_path / "there", to="interleaved", check=True)
    assert said(tmp_path / "there") == {"interleaved"}
    with pytest.raises(ValueError, match="was converted to the interleaved layout before"):
        convert(tmp_path / "there", tmp_path / "x", to="interleaved")
    convert(tmp_path / "there", tmp_path / "back", to="half", check=True)
    assert said(tmp_path / "back") == {"half"}
    first, there, back = (load(tmp_path / n / "model.safetensors") for n in ("in", "there", "back"))
    assert any(not torch.equal(first[name], there[name]) for name in first)
    assert all(torch.equal(first[name], back[name]) for name in first)
    config = json.loads((tmp_path / "back/config.json").read_text())
    before = {k: v for k, v in CONFIGS[name].items() if k != "rope_traditional"}
    assert config == before


def test_the_part_that_is_read_has_the_key(tmp_path: Path) -> None:
    """As mlx-lm reads it; the parts of the reading have the layout too, other towers do not."""
    source = made(tmp_path / "in", CONFIGS["mistral3"])
    convert(source, tmp_path / "out", to="interleaved")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["text_config"]["rope_traditional"] is True
    assert "rope_traditional" not in config
    found = read_config(tmp_path / "out")
    assert found.kind == "mlx"
    assert found.parts["text_config"].groups == found.groups
    before = read_config(source).parts["vision_config"].groups
    assert found.parts["vision_config"].groups == before


def test_the_part_wins_over_the_whole() -> None:
    config = nested("mistral3", "mistral", rope_traditional=False)
    config["text_config"]["rope_traditional"] = True
    (group,) = read_config(config).groups
    assert group.rotation is not None
    assert group.rotation.options["layout"] == "interleaved"
    config["text_config"]["rope_traditional"] = "yes"
    with pytest.raises(ConfigError, match=r"text_config\.rope_traditional must be"):
        read_config(config)


def test_the_mark_wins_over_the_config(tmp_path: Path) -> None:
    """Beside a config that was copied from the original, the file knows better."""
    source = made(tmp_path / "in", llama_config())
    convert(source, tmp_path / "there", to="interleaved")
    write_config(tmp_path / "there", **llama_config())
    assert said(tmp_path / "there") == {"half"}
    convert(tmp_path / "there", tmp_path / "back", to="half", check=True)
    first, back = (load(tmp_path / n / "model.safetensors") for n in ("in", "back"))
    assert all(torch.equal(first[name], back[name]) for name in first)


def test_sizes_are_those_of_the_part(tmp_path: Path) -> None:
    path = write_config(tmp_path, **CONFIGS["heads outside too"])
    size = find_sizes(path, Stated())(0)
    assert size is not None
    assert (size.num_heads, size.num_kv_heads) == (4, 2)


def test_a_config_without_a_word_for_the_layout(tmp_path: Path) -> None:
    """Mistral's own params.json under the name config.json."""
    params = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 8}
    source = made(tmp_path / "in", {**params, "hidden_dim": 64, "rope_theta": 1e4})
    with pytest.raises(ValueError, match="cannot be made to say the half layout, because") as found:
        convert(source, tmp_path / "out", to="half")
    assert "is interleaved whatever keys it has" in str(found.value)
    assert "Put it elsewhere and state sizes" in str(found.value)
    assert not (tmp_path / "out").exists()
