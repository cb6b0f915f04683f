"""Weights of which some have one layout and some the other: named, and never converted blindly."""

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.types import Layout
from whorl.weights import Detection, LayerFinding, Stated, convert, detect
from whorl.weights.detect import detect_layers, list_layers
from whorl.weights.evidence import (
    CROSSINGS,
    LAYOUTS,
    NO_SUMS,
    PAIRINGS,
    compute_crossed_probabilities,
    compute_probabilities,
    compute_products,
    compute_strength,
    compute_z,
    sum_agreement,
)
from whorl.weights.layers import AttentionLayer

from .made import interleave, llama_config, load, save, write_config
from .test_evidence import CALIBRATION, layer, slow_z, taught

D, HEADS = 32, 6
HALF, OTHER = ("half", "half"), ("interleaved", "interleaved")
CROSSED = ("half", "interleaved")


def weights(layouts: Sequence[tuple[str, str]], strength: float = 0.9) -> dict[str, Tensor]:
    """The q and k of layers, each in the layouts of its q and of its k."""
    found = {}
    for n, (q_layout, k_layout) in enumerate(layouts):
        heads = [taught(100 * n + h, strength) for h in range(HEADS)]
        q, k = (torch.cat(parts) for parts in zip(*((q[0], k) for q, k in heads), strict=True))
        for part, rows, layout in (("q", q, q_layout), ("k", k, k_layout)):
            rows = rows if layout == "half" else interleave(rows, D)
            found[f"model.layers.{n}.self_attn.{part}_proj.weight"] = rows
    return found


def folder_of(path: Path, layouts: Sequence[tuple[str, str]], strength: float = 0.9) -> Path:
    path.mkdir()
    save(path / "model.safetensors", weights(layouts, strength))
    sizes = {"heads": HEADS, "key_heads": HEADS, "head_dim": D, "layers": len(layouts)}
    write_config(path, **llama_config(**sizes))
    return path


@pytest.fixture
def alternating(tmp_path: Path) -> Path:
    """Layers 0, 2, 4 interleaved and 1, 3, 5 half."""
    return folder_of(tmp_path / "in", [OTHER, HALF] * 3)


WORDS = "half in layers 1, 3, 5; interleaved in layers 0, 2, 4"


def test_layers_that_disagree(alternating: Path) -> None:
    found = detect(alternating)
    assert [layer.layout for layer in found.layers] == ["interleaved", "half"] * 3
    assert found.mixed
    assert found.layout is None
    assert found.crossed is None
    assert found.in_words() == WORDS
    document = found.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["mixed"] is True
    assert document["evident"]["half"] == [f"model.layers.{n}.self_attn" for n in (1, 3, 5)]


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("check", [False, True])
def test_what_is_mixed_is_not_converted(alternating: Path, to: Layout, check: bool) -> None:
    out = alternating.parent / "out"
    with pytest.raises(ValueError, match=f"layers have different layouts: {WORDS}") as caught:
        convert(alternating, out, to=to, check=check)
    assert not out.exists()
    right = "1|3|5" if to == "half" else "0|2|4"
    pattern = f"leave=^model[.]layers[.]({right})[.]self_attn[.]"
    where = f"whorl convert {alternating} {out} --to {to}"
    assert f"\n  {where} --pattern '{pattern}' --check\nwhorl detect shows" in str(caught.value)
    # And what it advises gives a model of one layout.
    done = convert(alternating, out, to=to, check=True, patterns=[pattern])
    assert done.check is not None
    assert (done.check.layout, len(done.tensors)) == (to, 6)
    assert done.check.confidence >= 0.95
    assert detect(out).layout == to
    layout = HALF if to == "half" else OTHER
    written, want = load(out / "model.safetensors"), weights([layout] * 6)
    assert all(torch.equal(written[name], want[name]) for name in want)


def test_one_layer_among_many(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "in", [*[HALF] * 8, OTHER])
    found = detect(source)
    assert found.in_words() == "half in layers 0-7; interleaved in layer 8"
    with pytest.raises(ValueError, match=r"interleaved in layer 8\..*leave=\^model\[\.\]layers"):
        convert(source, tmp_path / "out", to="half")


def test_layers_too_weak_to_be_named(tmp_path: Path) -> None:
    """Half of them have the one layout and half the other, and only together they show it."""
    source = folder_of(tmp_path / "in", [HALF, OTHER] * 24, strength=0.05)
    found = detect(source)
    assert {layer.layout for layer in found.layers} == {None}
    assert found.mixed
    assert found.layout is None
    words = "half in all layers together; interleaved in all layers together"
    assert found.in_words() == words
    advice = "Which tensors these are cannot be told, .* take the weights from the original again"
    with pytest.raises(ValueError, match=rf"{words}\. .*{advice}\.\nwhorl detect shows"):
        convert(source, tmp_path / "out", to="interleaved")


@pytest.mark.parametrize(("crossing", "layouts"), CROSSINGS.items())
@pytest.mark.parametrize("to", LAYOUTS)
def test_q_and_k_that_disagree(tmp_path: Path, crossing: Any, layouts: Any, to: Layout) -> None:
    """As a port leaves them that moves the rows of one of the two."""
    source = folder_of(tmp_path / "in", [layouts] * 3)
    found = detect(source)
    assert (found.crossed, found.layout, found.mixed) == (crossing, None, False)
    assert found.confidence >= 0.95
    assert found.in_words() == crossing
    assert found.to_dict()["crossed"] == crossing
    right = "q" if layouts[0] == to else "k"
    words = (
        rf"q and k have different layouts: {crossing} .*leave those of {right}, which has the {to}"
        r" layout, as they are\. This does so \(--force, because q and k move apart\); in Python,"
        r" patterns=\['leave=.*'\], force=True:\n  whorl convert .* --force --check"
    )
    with pytest.raises(ValueError, match=words):
        convert(source, tmp_path / "out", to=to, check=True)
    assert not (tmp_path / "out").exists()
    leave = [f"leave={right}_proj"]
    done = convert(source, tmp_path / "out", to=to, patterns=leave, force=True, check=True)
    assert done.check is not None
    assert (done.check.layout, done.notes[:1]) == (to, done.notes[:1])
    assert detect(tmp_path / "out").layout == to


def test_one_layer_with_q_and_k_that_disagree(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "in", [HALF, CROSSED, HALF])
    found = detect(source)
    assert found.mixed
    assert found.in_words() == "half in layers 0, 2; q half, k interleaved in layer 1"
    with pytest.raises(ValueError, match="layers have different layouts: half in layers 0, 2; q h"):
        convert(source, tmp_path / "out", to="interleaved")


def test_the_check_goes_by_the_evidence(tmp_path: Path) -> None:
    """The rows go where they should and scores are equal, and yet a layer is left behind."""
    source = folder_of(tmp_path / "in", [HALF] * 4)
    leave = [r"leave=layers[.]2[.]"]
    words = (
        r"convert: the converted weights show half in layer 2; interleaved in layers 0-1, 3, where"
        r" all should be interleaved; nothing was kept\. Correct the patterns"
    )
    with pytest.raises(ValueError, match=words):
        convert(source, tmp_path / "out", to="interleaved", patterns=leave, check=True)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    options: Any = {"to": "interleaved", "patterns": leave, "check": True, "force": True}
    done = convert(source, tmp_path / "out", **options)
    assert done.check is not None
    assert done.check.layout is None
    assert any(note.startswith("the converted weights show half in layer 2") for note in done.notes)


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        ([OTHER, HALF] * 3, "layers 0, 2, 4 showed interleaved before and do not show interleaved"),
        ([HALF] * 5 + [OTHER], "layer 5 showed interleaved before and does not show interleaved"),
        ([OTHER] * 3, "layers 0-2 showed interleaved before and do not show interleaved now"),
    ],
    ids=["every second", "one", "all"],
)
def test_the_check_names_layers_that_force_broke(
    tmp_path: Path, layouts: list[tuple[str, str]], words: str
) -> None:
    """They show nothing any more, while the others make the whole look right."""
    source = folder_of(tmp_path / "in", layouts)
    options: Any = {"to": "interleaved", "check": True, "force": True}
    done = convert(source, tmp_path / "out", **options)
    assert any(note.startswith(words) for note in done.notes)
    assert done.check is not None
    assert done.check.layout is None


def test_without_force_a_broken_layer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the source pass, as it does not by the check of it."""
    source = folder_of(tmp_path / "in", [HALF, HALF, OTHER])
    module = importlib.import_module("whorl.weights.convert")
    monkeypatch.setattr(module, "check_source", lambda *_: None)
    words = r"convert: layer 2 showed interleaved before and does not show interleaved now: moving"
    with pytest.raises(ValueError, match=words):
        convert(source, tmp_path / "out", to="interleaved", check=True)
    assert not (tmp_path / "out").exists()


def test_a_clear_layer_of_weights_that_are_unclear(tmp_path: Path) -> None:
    """All together show nothing, but one layer has the wanted layout already."""
    path = tmp_path / "x.safetensors"
    tensors = weights([OTHER], strength=0.15)
    for n in range(1, 60):
        q, k = layer(n, heads=1, rows=HEADS * D)
        tensors[f"model.layers.{n}.self_attn.q_proj.weight"] = q[0]
        tensors[f"model.layers.{n}.self_attn.k_proj.weight"] = k
    save(path, tensors)
    stated = Stated(head_dim=D)
    found = detect(path, stated=stated)
    assert found.layout is None
    assert list(found.evident) == ["interleaved"]
    with pytest.raises(ValueError, match=r"convert: layer 0 already has the interleaved layout"):
        convert(path, tmp_path / "out", to="interleaved", stated=stated)
    convert(path, tmp_path / "out", to="half", stated=stated)


# The statistic


def test_the_formula_of_a_crossing() -> None:
    """Rows of q in one layout and of k in the other, paired by hand."""
    q, k = layer(3, heads=2)
    as_half = [*range(0, 32, 2), *range(1, 32, 2)]
    found = sum_agreement(compute_products(q, k))
    want = slow_z(q, k[as_half], list(range(16)), list(range(16, 32)))
    assert compute_z(found["q half, k interleaved"]) == pytest.approx(want, rel=1e-9)
    want = slow_z(q[:, as_half], k, list(range(16)), list(range(16, 32)))
    assert compute_z(found["q interleaved, k half"]) == pytest.approx(want, rel=1e-9)


def test_crossings_of_weights_that_have_none() -> None:
    """Unlearnt weights, and those of a layout: about 0 with a spread of 1, and never named."""
    found = []
    for seed in range(300):
        q, k = layer(seed) if seed % 2 else taught(seed, 0.8)
        sums = sum_agreement(compute_products(q, k))
        found += [compute_z(sums[name]) for name in CROSSINGS]
    z = torch.tensor(found)
    assert -0.3 < float(z.mean()) < 0.2
    assert float(z.square().mean()) == pytest.approx(1, abs=4 * (2 / 600) ** 0.5)
    assert float(z.max()) < 4


def test_crossings_are_rarer() -> None:
    """What would name a layout does not yet name a crossing, and none outweighs a layout."""
    z: dict[Layout, float] = {"half": 0.0, "interleaved": 0.0}
    crossed = dict.fromkeys(CROSSINGS, 0.0)
    assert compute_probabilities({**z, "half": 3.6}).half >= 0.9
    for value, sure in ((3.6, False), (5.0, True)):
        found = compute_crossed_probabilities(z, {**crossed, "q half, k interleaved": value})
        assert (found["q half, k interleaved"] >= 0.9) is sure
        assert 0 <= found["q interleaved, k half"] < 0.1
    both = compute_crossed_probabilities(
        {**z, "half": 9.0}, {**crossed, "q half, k interleaved": 9.0}
    )
    assert both["q half, k interleaved"] < 0.1
    assert compute_strength("half", 3.2) >= 0.9 > compute_strength("q half, k interleaved", 3.2)


def judged(**z: float) -> Detection:
    """A detection of no layers in particular, from z of the pairings."""
    names = dict(zip(("half", "interleaved", "hi", "ih"), PAIRINGS, strict=True))
    every: Any = dict.fromkeys(PAIRINGS, 0.0) | {names[key]: value for key, value in z.items()}
    plain = {name: every[name] for name in LAYOUTS}
    crossed = {name: every[name] for name in CROSSINGS}
    return Detection("all layers", None, plain, compute_probabilities(plain), 0, crossed, ())


def test_traces_are_no_mixture() -> None:
    """In large models what is there by chance or leaks is far below what was trained."""
    assert judged(half=6.0, interleaved=4.0).mixed
    assert judged(half=9.0, hi=9.0).mixed
    assert not judged(half=40.0, interleaved=4.0, hi=5.0).mixed
    assert judged(half=40.0, interleaved=4.0).layout == "half"
    assert not judged(half=6.0, interleaved=2.5).mixed
    assert judged(ih=8.0).crossed == "q interleaved, k half"
    assert judged().in_words() == "neither layout"
    assert judged().evident == {}
    assert judged(half=3.1, interleaved=2.6).evident == {}, "strong alone, and unclear"


def test_no_calibrated_model_is_mixed() -> None:
    """Of their layers none was named wrongly, and all layers together show one layout or none."""
    document = json.loads(CALIBRATION.read_text())
    rows = [row[4:6] for row in document["each"]]
    assert len(rows) == 98
    assert not any(judged(half=half, interleaved=other).mixed for half, other in rows)
    sure = document["reliability"]["layers"][-1]
    assert sure["from"] == 0.9
    assert sure["right"] == sure["findings"]


# Which layers are looked at


def only(n: int, heads: Sequence[tuple[Tensor, Tensor]], opened: list[int]) -> AttentionLayer:
    def read() -> Iterator[tuple[list[Tensor], Tensor]]:
        opened.append(n)
        for q, k in heads:
            yield list(q), k

    return AttentionLayer(f"layers.{n}", n, read)


@pytest.mark.parametrize("where", [0, 4, 8])
def test_every_layer_counts(where: int) -> None:
    """Also the first and the last: only one of nine has learnt anything."""
    opened: list[int] = []
    quiet = [(torch.zeros(1, D, 64), torch.zeros(D, 64))]
    loud = [taught(h, 0.9) for h in range(HEADS)]
    found = detect_layers([only(n, loud if n == where else quiet, opened) for n in range(9)])
    assert opened == list(range(9))
    assert [one.layer for one in found.layers] == list(range(9))
    assert found.layers[where].layout == "half"
    assert found.layout == "half"


def test_lists_of_layers() -> None:
    def named(*numbers: int | None) -> list[LayerFinding]:
        z: dict[Layout, float] = {"half": 0.0, "interleaved": 0.0}
        crossed = dict.fromkeys(CROSSINGS, 0.0)
        chances = compute_probabilities(z)
        return [LayerFinding(f"at.{n}", n, z, chances, 0, crossed) for n in numbers]

    assert list_layers(named(3)) == "layer 3"
    assert list_layers(named(0, 1, 2, 5, 7, 8)) == "layers 0-2, 5, 7-8"
    assert list_layers(named(*range(0, 60, 2))).endswith("20, 22 and 18 more")
    assert list_layers(named(None, None)) == "layers 'at.None', 'at.None'"
    assert list_layers(named(1, 1)) == "layers 'at.1', 'at.1'"
    assert compute_z(NO_SUMS) == 0.0
