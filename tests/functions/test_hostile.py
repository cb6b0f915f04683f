"""``whorl.check`` and ``whorl.identify`` on mistakes that hide, and on odd but right forms."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl

from . import hostile
from .hostile import RIGHT, WRONG, Two
from .mistakes import D, sound


def named(value: Any) -> str:
    if isinstance(value, str):
        return value if len(value) < 20 else ""
    return getattr(value, "__name__", type(value).__name__)


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "words", "fn", "kind"), WRONG, ids=named)
def test_a_hidden_mistake_is_named_alone_and_truly(
    wanted: str, words: str, fn: Any, kind: Any
) -> None:
    report = whorl.check(fn, D, kind=kind)
    assert [d.id for d in report.diagnoses] == [wanted]
    assert words in report.diagnoses[0].words
    assert not report.ok
    assert not all(found.ok for found in report.properties.values())
    assert max(map(len, str(report).splitlines())) <= 80
    json.dumps(report.to_dict())


@pytest.mark.slow
@pytest.mark.parametrize(("fn", "kind"), RIGHT, ids=named)
def test_an_unusual_form_is_right(fn: Any, kind: Any) -> None:
    report = whorl.check(fn, D, kind=kind)
    assert report.ok, str(report)
    found = whorl.identify(fn, D, kind=kind)
    assert found.exact, str(found)
    assert found.keys is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qk", "cos_sin"])
def test_the_apply_function_of_gpt_oss(kind: Any) -> None:
    """Its tables have one entry for each pair."""
    code = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")

    def both(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        cos, sin = whorl.RoPE(D).tables(positions)
        return code.apply_rotary_pos_emb(q, k, cos[None].to(q), sin[None].to(q))

    fn = code.apply_rotary_pos_emb if kind == "cos_sin" else both
    report = whorl.check(fn, D, kind=kind)
    assert report.ok, str(report)
    assert report.identified is not None
    assert (report.identified.layout, report.identified.base) == ("half", 10_000.0)


@pytest.mark.parametrize(
    ("fn", "line"),
    [
        (hostile.keys_interleaved, "layout: queries half, keys interleaved"),
        (hostile.keys_of_another_base, "keys base 100000, 32 from 1 to 1.43301e-05 radians"),
        (hostile.keys_backwards, "direction: queries forwards, keys backwards"),
        (hostile.keys_one_ahead, "positions: queries as given, keys as given +1"),
        (hostile.queries_scaled, "scale: queries 1.44, keys 1"),
        (hostile.swapped, "the first result is made of k alone and the second of q alone"),
        (hostile.keys_far_wrong, "from position 2,001 on, angles do not continue the first ones"),
    ],
    ids=named,
)
def test_identify_looks_at_keys(fn: Any, line: str) -> None:
    found = whorl.identify(fn, D, kind="qk")
    assert line in " | ".join(found.departs)
    assert not found.exact
    assert line in " ".join(str(found).split())


def test_keys_are_identified_on_their_own() -> None:
    found = whorl.identify(hostile.keys_interleaved, D, kind="qk")
    assert found.layout == "half"
    assert found.keys is not None
    assert (found.keys.layout, found.keys.exact) == ("interleaved", True)
    assert found.to_dict()["keys"]["layout"] == "interleaved"

    def unrotated(q: Tensor, k: Tensor, positions: Tensor) -> Two:
        return sound(q, positions), k.clone()

    found = whorl.identify(unrotated, D, kind="qk")
    assert "queries rotate, keys do not rotate" in found.departs[0]
    assert not found.exact


def test_keys_that_do_not_follow_the_length() -> None:
    dynamic = whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=512))

    def fn(q: Tensor, k: Tensor, positions: Tensor) -> Two:
        return dynamic.rotate(q, positions), sound(k, positions)

    found = whorl.identify(fn, D, kind="qk")
    assert "frequencies: queries base 10000, dynamic_ntk" in found.departs[0]
    assert found.keys is not None
    assert found.keys.scaling is None


@pytest.mark.slow
def test_both_roles_of_xpos_are_one_encoding() -> None:
    found = whorl.identify(whorl.XPos(D), D, kind="qk")
    assert (found.encoding, found.role, found.keys, found.departs) == ("xpos", "query", None, ())
    report = whorl.check(whorl.XPos(D), D, kind="qk")
    assert [d.id for d in report.diagnoses] == ["position-dependent-norm"]
    assert report.properties["relative"].ok

    def exchanged(q: Tensor, k: Tensor, positions: Tensor) -> Two:
        xpos = whorl.XPos(D)
        return (
            xpos.rotate(q, positions, role="key"),
            xpos.rotate(k, positions, role="query"),
        )

    found = whorl.identify(exchanged, D, kind="qk")
    assert "XPos: queries get the scale of a key, keys of a query" in found.departs[0]


def test_an_offset_is_not_in_the_config_and_said_so() -> None:
    rope = whorl.RoPE(D)
    found = whorl.identify(lambda x, positions: rope.rotate(x, positions + 100), D)
    assert (found.offset, found.exact) == (100, False)
    assert "call the encoding with positions +100, where it differs by" in found.departs[0]
    assert found.error > 0.1


def test_a_table_that_ends_is_reported() -> None:
    """It is right as far as it goes; how far, and what it raised, is said."""

    def table(x: Tensor, positions: Tensor) -> Tensor:
        return sound(x, torch.arange(512)[positions])

    report = whorl.check(table, D)
    assert report.ok
    assert report.properties["far"].ok
    assert report.unmeasured["far"].startswith("past position 511 it raised IndexError: index")
    assert report.to_dict()["unmeasured"] == report.unmeasured
    text = " ".join(str(report).split())
    assert "1 not measured, nothing is wrong" in text
    assert "-- far not further: past position 511 it raised IndexError" in text


@pytest.mark.slow
def test_what_is_not_measured_is_said() -> None:
    numpy = whorl.check(hostile.numpy_rows, D)
    assert numpy.unmeasured == {
        "backward": "NumPy has no gradients",
        "bfloat16": "NumPy has no bfloat16",
    }
    assert "-- backward     not measured: NumPy has no gradients" in str(numpy)
    stacked = whorl.check(hostile.both_at_once, D, kind="qk")
    assert stacked.unmeasured["grouped"].startswith("with 4 heads of q and 2 of k it raised")
    views = whorl.check(hostile.views_only, D)
    assert views.unmeasured["strides"].startswith("it takes contiguous tensors only: it raised")
    small = whorl.check(whorl.RoPE(8).rotate, 8)
    assert small.unmeasured == {"decay": "only 4 pairs; it takes 8"}

    def no_halves(x: Tensor, positions: Tensor) -> Tensor:
        if x.dtype in (torch.float16, torch.bfloat16):
            raise TypeError("float32 or wider")
        return sound(x, positions)

    narrow = whorl.check(no_halves, D)
    assert narrow.ok
    assert narrow.unmeasured["float16"] == "it raised TypeError: float32 or wider"


def test_nothing_is_said_of_the_axes_of_a_function_that_answers_nothing() -> None:
    (said,) = whorl.check(lambda x, positions: x * float("nan"), D).diagnoses
    assert "[B, T, H, D]" not in said.words
