"""What must not be converted: twice, in part, or not known to the end."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.weights import Stated, convert, detect

from .made import llama, llama_config, load, random, save, save_sharded, write_config

ATTENTION = "model.layers.0.self_attn"


def adapter(folder: Path, about: dict[str, str] | None = None) -> Path:
    """LoRA of q and v, as PEFT saves it by default."""
    folder.mkdir()
    name = "base_model.model.model.layers.0.self_attn"
    tensors = {
        f"{name}.{part}_proj.lora_{factor}.weight": random(*shape)
        for part in "qv"
        for factor, shape in (("A", (3, 16)), ("B", (32, 3)))
    }
    save(folder / "adapter_model.safetensors", tensors, about)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    return folder


@pytest.mark.parametrize("about", [None, {"format": "pt", "made by": "hand"}])
def test_an_adapter_is_converted_once(tmp_path: Path, about: dict[str, str] | None) -> None:
    """Its weights show no layout, and it has no config.json that could say it."""
    source, stated = adapter(tmp_path / "in", about), Stated(head_dim=8)
    convert(source, tmp_path / "a", to="interleaved", stated=stated, check=True)
    with pytest.raises(ValueError, match="was converted to the interleaved layout before") as found:
        convert(tmp_path / "a", tmp_path / "b", to="interleaved", stated=stated)
    assert "force=True (--force)" in str(found.value)
    assert not (tmp_path / "b").exists()
    convert(tmp_path / "a", tmp_path / "b", to="interleaved", stated=stated, force=True)
    convert(tmp_path / "a", tmp_path / "back", to="half", stated=stated, check=True)
    files = [tmp_path / n / "adapter_model.safetensors" for n in ("in", "a", "back")]
    first, there, back = (load(path) for path in files)
    moved = next(name for name in first if "q_proj.lora_B" in name)
    assert not torch.equal(first[moved], there[moved])
    assert all(torch.equal(first[name], back[name]) for name in first)
    with pytest.raises(ValueError, match="was converted to the half layout before"):
        convert(tmp_path / "back", tmp_path / "c", to="half", stated=stated)
    if about:
        raw = files[1].read_bytes()
        assert b'"made by":"hand"' in raw


def test_other_readers_take_the_mark(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    source = adapter(tmp_path / "in")
    convert(source, tmp_path / "out", to="interleaved", stated=Stated(head_dim=8))
    path = tmp_path / "out" / "adapter_model.safetensors"
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "rope_layout": "interleaved"}
        for name, tensor in load(path).items():
            assert torch.equal(file.get_tensor(name), tensor)


def test_marks_that_are_none(tmp_path: Path) -> None:
    stated = Stated(head_dim=8)
    odd = adapter(tmp_path / "odd", {"rope_layout": "neox"})
    with pytest.raises(ValueError, match="has rope_layout 'neox' in __metadata__; it must be"):
        convert(odd, tmp_path / "out", to="half", stated=stated)
    folder = tmp_path / "in"
    folder.mkdir()
    index = save_sharded(folder, llama(), 2)
    write_config(folder, **llama_config())
    for n, path in enumerate(sorted(folder.glob("model-*"))):
        save(path, load(path), {"rope_layout": ("half", "interleaved")[n]})
    assert index.exists()
    with pytest.raises(ValueError, match="were converted to different layouts: model-00001"):
        convert(folder, tmp_path / "out", to="half")


def test_files_without_q_and_k_stay_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    tensors = {"a": random(3), **llama(layers=1)}
    where = {name: "x.safetensors" if name == "a" else "y.safetensors" for name in tensors}
    save(folder / "x.safetensors", {"a": tensors.pop("a")})
    save(folder / "y.safetensors", tensors)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    write_config(folder, **llama_config(layers=1))
    convert(folder, tmp_path / "out", to="interleaved", check=True)
    same = [(tmp_path / n / "x.safetensors").read_bytes() for n in ("in", "out")]
    assert same[0] == same[1]
    assert b"rope_layout" in (tmp_path / "out" / "y.safetensors").read_bytes()


def made(tmp_path: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    save(folder / "model.safetensors", tensors)
    write_config(folder, **llama_config(**config))
    return folder


@pytest.mark.parametrize(("lacks", "has"), [("k", "q"), ("q", "k")])
def test_one_of_the_two_is_missing(tmp_path: Path, lacks: str, has: str) -> None:
    tensors = llama()
    del tensors[f"model.layers.1.self_attn.{lacks}_proj.weight"]
    source = made(tmp_path, tensors)
    words = f"layer 1 has the weights of {has} and none of {lacks}"
    with pytest.raises(ValueError, match=words):
        convert(source, tmp_path / "out", to="interleaved")
    done = convert(source, tmp_path / "out", to="interleaved", force=True, check=True)
    assert len(done.tensors) == 3


def test_layers_that_use_the_keys_of_others(tmp_path: Path) -> None:
    tensors = llama()
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    source = made(tmp_path, tensors, num_kv_shared_layers=1)
    done = convert(source, tmp_path / "out", to="interleaved")
    assert len(done.tensors) == 3


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.attn.wq_custom.weight",
        "model.layers.0.self_attn.kv_proj.weight",
        "model.layers.0.self_attn.to_q.weight",
        "model.layers.0.attention.query.weight",
        "model.layers.0.self_attn.linear_k.bias",
    ],
)
def test_names_that_look_like_q_or_k(tmp_path: Path, name: str) -> None:
    source = made(tmp_path, llama() | {name: random(32, 16)})
    with pytest.raises(
        ValueError, match="are not known and may belong to q or k, by their names"
    ) as e:
        convert(source, tmp_path / "out", to="interleaved")
    assert name in str(e.value)
    assert not (tmp_path / "out").exists()
    detect(source)  # which looks at what it knows
    suggested = str(e.value).split(", leave=")[-1].removesuffix(" if it stays.")
    convert(source, tmp_path / "out", to="interleaved", patterns=[f"leave={suggested}"])


def test_numbers_for_each_channel(tmp_path: Path) -> None:
    """A factor of q after the rotation, as TimesFM has it, must move or be left on purpose."""
    name = f"{ATTENTION}.temper"
    source = made(tmp_path, llama() | {name: random(8), f"{ATTENTION}.v_norm.weight": random(8)})
    with pytest.raises(ValueError, match=f"a number for each channel of a head: '{name}'"):
        convert(source, tmp_path / "out", to="interleaved")
    done = convert(source, tmp_path / "out", to="interleaved", patterns=["q=temper$"])
    assert name in done.tensors
    known = made(tmp_path, llama() | {f"{ATTENTION}.scaling": random(8)})
    done = convert(known, tmp_path / "known", to="interleaved", check=True)
    assert f"{ATTENTION}.scaling" in done.tensors


def test_heads_that_do_not_fit(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.safetensors",
        {
            f"{ATTENTION}.q_proj.weight": random(48, 16),
            f"{ATTENTION}.k_proj.weight": random(32, 16),
        },
    )
    for call in (
        lambda: convert(path, tmp_path / "out", to="interleaved", stated=Stated(head_dim=16)),
        lambda: detect(path, stated=Stated(head_dim=16)),
    ):
        with pytest.raises(
            ValueError, match=r"heads.*q must have a multiple, so a head has anothe"
        ):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patterns": ["q=("]}, "is no regular expression"),
        ({"patterns": "q=x"}, 'patterns must be a list such as \\["q=REGEX"'),
        ({"patterns": [3]}, "a pattern must be text"),
        ({"stated": {"head_dim": 8}}, "stated must be a Stated"),
    ],
)
def test_what_callers_get_wrong(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    source = made(tmp_path, llama())
    with pytest.raises(ValueError, match=words):
        convert(source, tmp_path / "out", to="interleaved", **options)
    with pytest.raises(ValueError, match=words):
        detect(source, **options)


@pytest.mark.parametrize("family", ["jetmoe", "zaya", "bailing_hybrid"])
def test_unusual_families(tmp_path: Path, family: str) -> None:
    source = made(tmp_path, llama(), model_type=family)
    with pytest.raises(ValueError, match=f"{family} is not supported: "):
        convert(source, tmp_path / "out", to="interleaved")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none(tmp_path: Path, value: float) -> None:
    tensors = llama(head_dim=16)
    tensors["model.layers.1.self_attn.k_proj.weight"][3, 5] = value
    source = made(tmp_path, tensors, head_dim=16)
    found = detect(source)
    assert [layer.not_finite for layer in found.layers] == [0, 1]
    assert found.to_dict()["not_finite"] == 1
    done = convert(source, tmp_path / "out", to="interleaved", check=True)
    assert done.check is not None
    assert done.check.heads == 3, "all but the one whose scores would be NaN"


def test_links(tmp_path: Path) -> None:
    """As in the cache of the hub: read, and never written through; others are not followed."""
    blobs = tmp_path / "hub" / "blobs"
    folder = tmp_path / "hub" / "snapshots" / "main"
    folder.mkdir(parents=True)
    blobs.mkdir()
    save(blobs / "abc", llama())
    write_config(blobs, **llama_config())
    (blobs / "words").write_text("{}")
    (tmp_path / "secret").write_text("mine")
    targets = {"model.safetensors": "abc", "config.json": "config.json", "tokenizer.json": "words"}
    for name, blob in targets.items():
        (folder / name).symlink_to(f"../../blobs/{blob}")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    before = {path.name: path.read_bytes() for path in blobs.iterdir()}
    done = convert(folder, tmp_path / "out", to="interleaved", check=True)
    assert done.left_out == ("notes.txt",)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(targets)
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert before == {path.name: path.read_bytes() for path in blobs.iterdir()}


def test_an_index_that_leaves_out_a_layer(tmp_path: Path) -> None:
    """Its shards fit it, and the config has more layers."""
    folder = tmp_path / "in"
    folder.mkdir()
    tensors = llama()
    some = {name: tensor for name, tensor in tensors.items() if "layers.1." not in name}
    index = save_sharded(folder, some, 2)
    write_config(folder, **llama_config())
    for source in (folder, index):
        with pytest.raises(ValueError, match="has 2 layers, and of layer 1 there is no tensor"):
            convert(source, tmp_path / "out", to="interleaved")
    assert not (tmp_path / "out").exists()
    one = folder / "model-00001-of-00002.safetensors"
    convert(folder, tmp_path / "a", to="interleaved", force=True)
    whole = tmp_path / "whole"
    whole.mkdir()
    save(whole / one.name, {name: t for name, t in tensors.items() if "layers.1." in name})
    write_config(whole, **llama_config())
    convert(whole / one.name, tmp_path / "b", to="interleaved")  # named by itself: one of several


def test_as_many_heads_of_k_as_the_config_says(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "model.safetensors", llama(key_heads=2))
    write_config(folder, **llama_config(key_heads=4))
    with pytest.raises(ValueError, match="k must have 4 heads of 8 channels, as the config"):
        convert(folder, tmp_path / "out", to="interleaved")
    stated = Stated(num_kv_heads=2)
    assert convert(folder, tmp_path / "out", to="interleaved", stated=stated).tensors
    config = {k: v for k, v in llama_config().items() if k != "num_key_value_heads"}
    write_config(folder, **config)  # not said: counted from the rows
    assert convert(folder, tmp_path / "more", to="interleaved").tensors


def test_what_to_know_of_the_output_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "model.safetensors", llama())
    write_config(folder, **llama_config())
    there = convert(folder, tmp_path / "there", to="interleaved")
    (note,) = there.notes
    assert note.startswith("transformers does not read the key for the layout (rope_traditional)")
    assert note.endswith("Use them with code that rotates in the interleaved layout")
    assert there.to_dict()["notes"] == [note]
    assert convert(tmp_path / "there", tmp_path / "back", to="half").notes == ()
    source = adapter(tmp_path / "adapter")
    done = convert(source, tmp_path / "lora", to="half", stated=Stated(head_dim=8), check=True)
    assert done.notes[0].startswith("that heads have 8 channels is as stated; there is no config")
