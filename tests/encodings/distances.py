"""What the tests of biases by distance share."""

import copy

import pytest
import torch
from torch import Tensor

import whorl

#: Types of distances that no encoding of whole distances takes.
FRACTIONS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def square(length: int) -> Tensor:
    """Distances i - j of ``length`` queries and keys: [T, T]."""
    at = torch.arange(length)
    return at[:, None] - at[None, :]


def bias_of(encoding: whorl.Encoding, distance: Tensor) -> Tensor:
    """The bias, which these encodings always have."""
    bias = encoding.distance_bias(distance)
    assert bias is not None
    return bias


def check_vector_serves_all(encoding: whorl.Encoding, queries: int, keys: int) -> None:
    """One vector per head holds the whole matrix on consecutive positions, and any shape agrees."""
    vector = bias_of(encoding, torch.arange(1 - keys, queries))  # [H, T + S - 1]
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    matrix = bias_of(encoding, i - j)
    assert matrix.shape == (vector.shape[0], queries, keys)
    assert torch.equal(vector[:, (i - j) + keys - 1], matrix)
    assert torch.equal(
        bias_of(encoding, torch.tensor(2)), bias_of(encoding, torch.tensor([2]))[:, 0]
    )


def check_no_distance(encoding: whorl.Encoding) -> None:
    """What is not a tensor of signed numbers is refused in the name of the encoding."""
    name = type(encoding).__name__
    with pytest.raises(TypeError, match=rf"{name}: distance must be a tensor.*got int\. Use torch"):
        encoding.distance_bias(3)  # type: ignore[arg-type]
    for dtype in (torch.bool, torch.uint8):
        with pytest.raises(TypeError, match=rf"{name}: distances must be signed integers.*{dtype}"):
            encoding.distance_bias(torch.ones(2, dtype=dtype))


def check_whole_only(encoding: whorl.Encoding) -> None:
    """Fractional distances are refused, and the answer names what takes them."""
    for dtype in FRACTIONS:
        message = (
            rf"{type(encoding).__name__}: distances must be signed integers, because each trained"
            rf" bias.*got {dtype}\. Round the positions.*such as ALiBi or Kerple"
        )
        with pytest.raises(TypeError, match=message):
            encoding.distance_bias(torch.ones(2, dtype=dtype))


def check_halves_refused(encoding: whorl.Encoding) -> None:
    """Half-precision distances are refused with the reason."""
    for dtype in (torch.float16, torch.bfloat16):
        message = rf"half precision merges neighbours.*got {dtype}\. Subtract positions"
        with pytest.raises(TypeError, match=message):
            encoding.distance_bias(torch.ones(2, dtype=dtype))


def check_dtypes(encoding: whorl.Encoding) -> None:
    """float32, in a half-precision model too; float64 once distances or parameters are."""
    want = bias_of(encoding, torch.arange(-9, 9))
    assert want.dtype == torch.float32
    for dtype in (torch.int8, torch.int16, torch.int32):
        assert torch.equal(bias_of(encoding, torch.arange(-9, 9, dtype=dtype)), want)
    if encoding.fractional:
        assert torch.equal(bias_of(encoding, torch.arange(-9.0, 9.0)), want)
        wide = bias_of(encoding, torch.arange(-9, 9).double())
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide.float(), want)
    if list(encoding.parameters()):
        half = copy.deepcopy(encoding).bfloat16()
        assert bias_of(half, torch.arange(-9, 9)).dtype == torch.float32
        wide = bias_of(encoding.double(), torch.arange(-9, 9))
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide.float(), want)
