"""``whorl.check``: sound functions pass, every deliberate mistake is named."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whorl
from whorl.functions.properties import MEANINGS, measure_remaining_bound

from .mistakes import MISTAKES, D, frequencies, rotate_half, sound, sound_interleaved


def named(fn: Any) -> str:
    return str(fn.__qualname__).split(".")[0]


def complaints(report: whorl.functions.CheckReport) -> list[str]:
    return [name for name, found in report.properties.items() if not found.ok]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "fn", "kind"), MISTAKES, ids=lambda v: named(v) if callable(v) else v
)
def test_a_mistake_is_named(wanted: str, fn: Any, kind: Any) -> None:
    report = whorl.check(fn, D, kind=kind)
    assert not report.ok
    assert wanted in [diagnosis.id for diagnosis in report.diagnoses]
    assert complaints(report) or wanted == "doubled-exponent"  # a rotation like any other
    text = str(report)
    assert f"{wanted}: " in text
    assert max(map(len, text.splitlines())) <= 80


def numpy_rope(x: Any, positions: Any) -> Any:
    angles = positions[:, None] * 10_000.0 ** -(np.arange(0, D, 2) / D)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def both(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return sound(q, positions), sound(k, positions)


def hugging_face_apply(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def meta_complex(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions.double()[:, None] * frequencies()
    factors = torch.polar(torch.ones_like(angles), angles)
    numbers = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(numbers * factors).flatten(-2).to(x.dtype)


def rows_only(x: Tensor, positions: Tensor) -> Tensor:
    assert positions.dim() == 2
    return sound(x, positions)


def float_positions_only(x: Tensor, positions: Tensor) -> Tensor:
    assert positions.is_floating_point()
    return sound(x, positions)


def float32_only(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x @ torch.eye(D), positions)


def short_table(x: Tensor, positions: Tensor) -> Tensor:
    return sound(x, torch.arange(512)[positions])


SOUND: list[tuple[Any, str]] = [
    (sound, "x"),
    (sound_interleaved, "x"),
    (numpy_rope, "x"),
    (meta_complex, "x"),
    (rows_only, "x"),
    (float_positions_only, "x"),
    (float32_only, "x"),
    (short_table, "x"),
    (both, "qk"),
    (hugging_face_apply, "cos_sin"),
    (whorl.RoPE(D).rotate, "x"),
    (whorl.RoPE(D, precision="float32").rotate, "x"),
    (whorl.RoPE(D), "qk"),
    (whorl.RoPE(D, layout="interleaved", out_layout="half", rotary_dim=32).rotate, "x"),
    (whorl.RoPE(D, rotary_dim=16, rotary_start=48).rotate, "x"),
    (whorl.RoPE(D, scaling=whorl.YaRN(factor=4.0, original_context=4096)).rotate, "x"),
    (whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=512)).rotate, "x"),
    (whorl.RoPE(D, scaling=whorl.Proportional(rotary_share=0.25)).rotate, "x"),
]


@pytest.mark.parametrize(
    ("fn", "kind"), SOUND, ids=lambda v: named(v) if hasattr(v, "__qualname__") else ""
)
def test_a_sound_function_passes(fn: Any, kind: Any) -> None:
    report = whorl.check(fn, D, kind=kind)
    assert complaints(report) == []
    assert report.diagnoses == []
    assert report.ok


def test_the_intended_base_is_believed() -> None:
    rotate = whorl.RoPE(D, base=1e8).rotate
    assert [d.id for d in whorl.check(rotate, D).diagnoses] == ["doubled-exponent"]
    assert whorl.check(rotate, D, base=1e8).ok
    (other,) = whorl.check(rotate, D, base=5e5).diagnoses
    assert other == ("other-base", "The base is 100000000, not 500000.")
    (halved,) = whorl.check(whorl.RoPE(D, base=100.0).rotate, D, base=1e4).diagnoses
    assert halved.id == "halved-exponent"


def test_the_measured_errors() -> None:
    """A mix-up of layouts changes norms a lot, a sound rotation by rounding only."""
    report = whorl.check(MISTAKES[0][1], D)
    assert 0.1 < report.properties["norm"].error < 1
    exact = whorl.check(whorl.RoPE(D).rotate, D)
    for name in ("identity", "norm", "composition", "relative", "inverse", "backward", "layout"):
        assert exact.properties[name].error < 1e-12
    assert exact.properties["bfloat16"].error < 2**-8


def test_positions_in_half_types_are_caught_where_they_break() -> None:
    wrong = {f: whorl.check(f, D) for id_, f, _ in MISTAKES if id_.endswith("16-positions")}
    words = " ".join(d.words for report in wrong.values() for d in report.diagnoses)
    assert "Wrong from position 257 on" in words
    assert "Wrong from position 2049 on" in words


def test_the_report_is_plain_data() -> None:
    import json

    report = whorl.check(sound, D)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["ok"] is True
    assert plain["properties"]["norm"]["ok"] is True
    assert plain["identified"]["layout"] == "half"
    assert list(report.properties) == [name for name in MEANINGS if name in report.properties]


def test_what_an_error_inside_says() -> None:
    (said,) = whorl.check(MISTAKES[-2][1], D).diagnoses
    assert said.id == "no-answer"
    assert "raised RuntimeError: no kernel for this shape" in said.words
    assert "called with torch tensors, float64, whole positions [T], it" in said.words
    with pytest.raises(ValueError, match="identify: the function answered none of 28 forms"):
        whorl.identify(MISTAKES[-2][1], D)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (3, 64),
            TypeError,
            "check: fn must be a function, or another object that can be called; got 3",
        ),
        ((sound, 1), ValueError, "check: head_dim must be an int >= 2"),
        ((sound, 64.0), ValueError, r"got 64\.0"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        whorl.check(*arguments)


def test_wrong_kind() -> None:
    with pytest.raises(ValueError, match="kind must be 'x' for"):
        whorl.check(sound, D, kind="kq")  # type: ignore[arg-type]  # the mistake that is tested


def test_the_envelope_of_the_paper_decays_and_a_constant_does_not() -> None:
    assert measure_remaining_bound(frequencies()) < 0.4
    assert measure_remaining_bound(torch.ones(32).double()) == pytest.approx(1.0)
