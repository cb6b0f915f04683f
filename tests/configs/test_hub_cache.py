"""Models by name: a path, a preset, or a repository in the local cache of Hugging Face."""

import json
import os
from pathlib import Path

import pytest

import whorl
from tests.cached_models import CONFIG, add
from whorl.configs import ConfigError, hub_cache, presets
from whorl.configs.names import get_model_name, resolve_config, resolve_model

VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*VARIABLES, "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("variable", "inner"),
    [
        ("HF_HUB_CACHE", "."),
        ("HUGGINGFACE_HUB_CACHE", "."),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_hugging_face_has_it(
    variable: str, inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "here"))
    snapshot = add(tmp_path / "here" / inner, "Qwen/Qwen3-8B", "abc", main=True)
    assert hub_cache.find_snapshot("Qwen/Qwen3-8B") == snapshot
    assert whorl.RoPE.from_config("Qwen/Qwen3-8B").config.base == 123456.0
    for lower in VARIABLES[VARIABLES.index(variable) + 1 :] if variable in VARIABLES else ():
        monkeypatch.setenv(lower, str(tmp_path / "elsewhere"))
    assert hub_cache.find_snapshot("Qwen/Qwen3-8B") == snapshot  # the first that is set counts


def test_main_comes_first_then_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    old, new = (add(tmp_path, "gpt2", commit) for commit in ("aaa", "bbb"))
    os.utime(old, (1, 1))
    assert hub_cache.find_snapshot("gpt2") == new
    refs = tmp_path / "models--gpt2" / "refs"
    refs.mkdir()
    (refs / "main").write_text("aaa\n")
    assert hub_cache.find_snapshot("gpt2") == old
    (refs / "main").write_text("../../../etc")
    assert hub_cache.find_snapshot("gpt2") == new
    (tmp_path / "models--gpt2" / "blobs" / "blob-bbb").unlink()  # as after a broken download
    assert hub_cache.find_snapshot("gpt2") == old


def test_a_path_comes_first_then_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    add(tmp_path / "cache", "qwen3-8b", "abc", main=True)
    assert resolve_config("qwen3-8b") == presets.load("qwen3-8b")
    assert resolve_config("Qwen3-8B") == presets.load("qwen3-8b")
    assert get_model_name(resolve_model("qwen3-8b")) == "qwen3-8b"  # a preset has no weights
    Path("qwen3-8b").write_text(json.dumps(CONFIG))
    assert resolve_config("qwen3-8b") == "qwen3-8b"
    assert whorl.read_config("qwen3-8b").build().config.base == 123456.0  # type: ignore[attr-defined]
    for x in ({"a": 1}, None, "", '{"model_type": "llama"}', "a\0b", "x" * 5000):
        assert resolve_config(x) is x


def test_errors_say_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = f"{tmp_path}/home/.cache/huggingface/hub"
    with pytest.raises(ConfigError) as missing:
        resolve_config("Qwen/Qwen3-8B", "here")
    assert str(missing.value) == (
        "here: there is no file 'Qwen/Qwen3-8B', and no preset of that name. There is no such model"
        f" in the cache of Hugging Face, {default} (the default), which does not exist. The preset"
        " 'qwen3-8b' has its keys about positions. Nothing is downloaded."
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"It is in .*hub \(HF_HOME\), but without a config\. Not"
    ):
        resolve_model("a/b")
    with pytest.raises(ConfigError, match=r"hub \(HF_HOME\); did you mean 'a/b'\? Nothing"):
        resolve_config("A/b")
    with pytest.raises(ConfigError, match=r"hub \(HF_HOME\)\. Nothing"):
        resolve_config("nobody/nothing")
    with pytest.raises(
        ConfigError,
        match=r"^here: 'https://huggingface.co/a/c/tree/main' is the address of a page, and nothing"
        r" is downloaded\. The name 'a/c' is looked up in the local cache of Hugging Face\.$",
    ):
        resolve_config("https://huggingface.co/a/c/tree/main", "here")
    with pytest.raises(ConfigError, match="the name of the model is empty; pass a path, a preset"):
        whorl.read_config("")
    with pytest.raises(ConfigError, match=r"no file 'x/y.json', and no preset of that name\. Noth"):
        resolve_config("x/y.json")
    with pytest.raises(
        ConfigError, match="model: 'qwen3-8b' is a preset, which has no weights; pa"
    ):
        resolve_model("qwen3-8b", "model")


def test_nothing_outside_the_cache_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    add(tmp_path / "cache", "a/b", "abc", main=True)
    for name in ("../cache/a", "a/../b", "a/b/c", "/a/b", "a//b", "a/b\n", ""):
        assert hub_cache.find_snapshot(name) is None
