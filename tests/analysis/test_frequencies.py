"""Frequencies and angles against closed forms and pinned values."""

import json
import math
from typing import Any

import pytest
import torch

import whorl
from whorl.analysis import angles, circle, frequencies

NO: Any = 3
TEXT: Any = "01"


def test_pinned_values() -> None:
    found = frequencies(whorl.RoPE(128))
    assert [round(f, 6) for f in found.inv_freq[:5]] == [
        1.0,
        0.865964,
        0.749894,
        0.649382,
        0.562341,
    ]
    assert round(found.mean, 6) == 0.116562
    assert round(found.minimum, 6) == 0.000115
    assert (found.context, found.rotations, found.full_rotations) == (None, None, None)
    assert found.attention_scale == 1.0


@pytest.mark.parametrize(("dim", "base"), [(2, 10_000.0), (64, 100.0), (128, 1e6)])
def test_closed_forms(dim: int, base: float) -> None:
    """The ladder is a geometric series, so its mean is one too."""
    found = frequencies(whorl.RoPE(dim, base=base), context=1000)
    P, ratio = dim // 2, base ** (-2 / dim)
    assert found.inv_freq == pytest.approx([ratio**i for i in range(P)], rel=1e-12)
    assert found.mean == pytest.approx((1 - ratio**P) / (1 - ratio) / P, rel=1e-12)
    assert found.wavelengths == pytest.approx([math.tau / f for f in found.inv_freq])
    assert found.rotations is not None
    assert found.rotations == pytest.approx([1000 / w for w in found.wavelengths])
    assert found.full_rotations == sum(w <= 1000 for w in found.wavelengths)


def test_of_a_scaling() -> None:
    rope = whorl.RoPE(64, scaling=whorl.YaRN(factor=4.0, original_context=512))
    found = frequencies(rope + whorl.ALiBi(4))
    assert found.inv_freq == tuple(rope.frequencies().inv_freq.tolist())
    assert found.attention_scale == pytest.approx(0.1 * math.log(4) + 1)
    stopped = frequencies(whorl.RoPE(8, scaling=whorl.Proportional(rotary_share=0.5)))
    assert stopped.wavelengths[2:] == (math.inf, math.inf)
    assert json.loads(json.dumps(stopped.to_dict()))["wavelengths"][2:] == [None, None]


def test_angles() -> None:
    rope = whorl.RoPE(128)
    found = angles(rope, (0, 1, 4, 8), pairs=5)
    theta = [1.0, 0.865964, 0.749894, 0.649382, 0.562341]
    for position, line, wrapped in zip(found.positions, found.radians, found.wrapped, strict=True):
        assert line == pytest.approx([position * t for t in theta], abs=8e-6)
        assert [math.cos(w) for w in wrapped] == pytest.approx([math.cos(r) for r in line])
        assert all(-math.pi <= w <= math.pi for w in wrapped)
    assert len(angles(rope).pairs) == 64


def test_circle_is_cos_and_sin() -> None:
    rope = whorl.RoPE(16, scaling=whorl.YaRN(factor=4.0, original_context=8))
    found = circle(rope, pairs=(0, 7), length=5)
    theta = rope.frequencies().inv_freq
    for row, pair in enumerate(found.pairs):
        for p in range(5):
            z = complex(found.x[row][p], found.y[row][p])
            want = complex(math.cos(p * float(theta[pair])), math.sin(p * float(theta[pair])))
            assert abs(z - want) < 1e-7  # the tables are float32; the attention scale is taken out
    assert circle(whorl.RoPE(128)).pairs == (0, 21, 42, 63)
    assert circle(whorl.RoPE(2)).pairs == (0,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: frequencies(NO), TypeError, r"frequencies: rope must be a whorl\.RoPE; got 3\."),
        (
            lambda r: frequencies(whorl.ALiBi(2)),
            ValueError,
            r"or a composition with one; got ALiBi\(2\)\.",
        ),
        (lambda r: frequencies(r, context=0), ValueError, r"context must be an int >= 1; got 0\."),
        (
            lambda r: angles(r, ()),
            ValueError,
            r"angles: positions must be a list of ints; got \(\)",
        ),
        (lambda r: angles(r, TEXT), ValueError, r"positions must be a list of ints; got '01'"),
        (
            lambda r: angles(r, (-1,)),
            ValueError,
            r"each of positions must be an int >= 0 .* got -1",
        ),
        (
            lambda r: angles(r, pairs=9),
            ValueError,
            r"pairs must be an int >= 1 and at most 4; got 9",
        ),
        (lambda r: circle(r, pairs=(4,)), ValueError, r"each of pairs must be .* at most 3; got 4"),
        (
            lambda r: circle(r, pairs=()),
            ValueError,
            r"circle: pairs must have at least one pair; got none\.",
        ),
        (lambda r: circle(r, length=0), ValueError, r"length must be an int >= 1 .*; got 0\."),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(whorl.RoPE(8))


def test_trained_frequencies_are_read() -> None:
    rope = whorl.RoPE(8, frequencies="trained")
    with torch.no_grad():
        rope.alpha.fill_(math.log(2.0))
    assert frequencies(rope).inv_freq[0] == pytest.approx(2.0)
