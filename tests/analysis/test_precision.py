"""Errors of tables against mpmath, and the sizes that they are known to have."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.analysis import precision
from whorl.analysis.precision import compute_exact_tables

mpmath = pytest.importorskip("mpmath")


@pytest.mark.parametrize("inv_freq", [None, [0.3, 1e-5]])
def test_exact_tables_against_mpmath(inv_freq: list[float] | None) -> None:
    positions = [0, 1, 257, 131_071, 2**24 - 1]
    cos, sin = compute_exact_tables(positions, 4, 10_000.0, inv_freq=inv_freq)
    with mpmath.workdps(50):
        for p, row_cos, row_sin in zip(positions, cos.tolist(), sin.tolist(), strict=True):
            for i in range(2):
                theta = mpmath.mpf(10_000) ** (-mpmath.mpf(i) / 2)
                theta = theta if inv_freq is None else mpmath.mpf(inv_freq[i])
                assert abs(row_cos[i] - float(mpmath.cos(p * theta))) < 2e-16
                assert abs(row_sin[i] - float(mpmath.sin(p * theta))) < 2e-16


def test_known_sizes() -> None:
    found = precision(whorl.RoPE(128), (100, 300, 131_071, 2**24 - 1))
    errors = found.errors
    assert max(errors["float64 angles"]) < 6e-8
    assert 2e-3 < errors["float32 angles"][2] < 2e-2
    assert all(1e-3 < e < 2.1e-3 for e in errors["bfloat16 table"])  # half an ulp below 1
    assert errors["bfloat16 positions"][0] < 6e-8 < 0.1 < errors["bfloat16 positions"][1]


def test_of_a_scaling_and_its_attention_scale() -> None:
    rope = whorl.RoPE(32, scaling=whorl.YaRN(factor=4.0, original_context=128))
    assert max(precision(rope, (10, 100_000)).errors["float64 angles"]) < 1.4e-7
    trained = whorl.RoPE(32, frequencies="trained")
    with torch.no_grad():
        trained.alpha.normal_()
    assert max(precision(trained, (10, 100_000)).errors["float64 angles"]) < 1e-7


def test_others_are_measured_too() -> None:
    def off(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        cos, sin = whorl.RoPE(8).tables(torch.tensor(positions))
        return cos + 0.25, sin

    found = precision(whorl.RoPE(8), (5,), others={"off": off}, neighbours=0)
    assert found.errors["off"][0] == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": ()}, r"precision: positions must be a list of ints; got \(\)\."),
        ({"positions": (2**25,)}, r"each of positions must be .* at most 16,777,216; got 33554432"),
        ({"neighbours": -1}, r"neighbours must be an int >= 0 and at most 100; got -1\."),
        (
            {"rope": whorl.ALiBi(2)},
            r"precision: rope must be a whorl\.RoPE, or a composition with one",
        ),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        precision(**{"rope": whorl.RoPE(8), "positions": (1,), **options})
