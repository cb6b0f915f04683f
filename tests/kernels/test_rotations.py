"""The assert helpers of this folder can fail."""

import pytest
import torch

from whorl.kernels import reference
from whorl.kernels.native import RotatedChannels

from . import rotations as r

BAND = RotatedChannels("half", "half", 0)


@pytest.mark.parametrize("mistake", ["next position", "other sign", "other layout", "a NaN"])
def test_assert_near_fails(mistake: str) -> None:
    x = r.normal(1, 2, 9, 16, dtype=torch.bfloat16)
    angles = r.compute_angles(9, 8)
    exact = reference.rotate_matrix(x.double(), angles)
    independent = r.in_low_precision(x, angles, "half")
    right = r.rotate_by_reference(x, r.table_for(x, angles), BAND)
    r.assert_near(right, exact, independent)
    wrong = {
        "next position": r.rotate_by_reference(
            x, r.table_for(x, r.compute_angles(9, 8, first=1)), BAND
        ),
        "other sign": r.rotate_by_reference(x, r.table_for(x, angles), BAND, transpose=True),
        "other layout": r.rotate_by_reference(
            x, r.table_for(x, angles), RotatedChannels("interleaved", "interleaved", 0)
        ),
        "a NaN": right.index_fill(3, torch.tensor([3]), torch.nan),
    }[mistake]
    with pytest.raises(AssertionError, match="off by"):
        r.assert_near(wrong, exact, independent)


def test_assert_near_fails_on_a_sloppy_rounding() -> None:
    x = r.normal(1, 2, 9, 16, dtype=torch.float32)
    angles = r.compute_angles(9, 8)
    exact = reference.rotate_matrix(x.double(), angles)
    sloppy = exact.bfloat16().float()
    with pytest.raises(AssertionError, match="off by"):
        r.assert_near(sloppy, exact, r.in_low_precision(x, angles, "half"))


@pytest.mark.parametrize("dtype", r.DTYPES)
def test_assert_same_bits_fails(dtype: torch.dtype) -> None:
    x = r.normal(3, dtype=dtype)
    r.assert_same_bits(x, x.clone())
    last_bit = x.clone()
    last_bit.view(torch.uint8)[0] ^= 1
    with pytest.raises(AssertionError, match="1 of 3 elements differ"):
        r.assert_same_bits(last_bit, x)
    with pytest.raises(AssertionError, match="elements differ"):
        r.assert_same_bits(torch.zeros(2, dtype=dtype), -torch.zeros(2, dtype=dtype))
