"""Nothing to attend to: no rows, no queries, no keys, none that is seen; the graph is kept."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import attention, linear_attention, shifted_attention

from .test_softmax import ENCODINGS, D, H, fresh, randn


def tensors(B: int, T: int, S: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (randn(B, H, n, D, seed=n).requires_grad_() for n in (T, S, S))
    return q, k, v


def check_zeros(out: Tensor, wanted: Sequence[Tensor], shape: tuple[int, ...]) -> None:
    """Zeros, with a graph that gives zeros to all that may need a gradient."""
    assert out.shape == shape
    assert not out.any()
    assert out.grad_fn is not None
    grads = torch.autograd.grad(out.sum(), wanted)
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
@pytest.mark.parametrize("sizes", [(2, 0, 5), (2, 0, 0), (0, 0, 0)])
def test_no_queries(encoding: whorl.Encoding, sizes: tuple[int, int, int]) -> None:
    encoding, given = fresh(encoding), tensors(*sizes)
    out = attention(*given, encoding, causal=True)
    check_zeros(out, [*given, *encoding.parameters()], (sizes[0], H, 0, D))


@pytest.mark.parametrize("block", [4, 256])
@pytest.mark.parametrize("encoding", [whorl.NoPE(), whorl.RoPE(D), whorl.T5Bias(H)], ids=repr)
def test_no_key_is_seen(encoding: whorl.Encoding, block: int) -> None:
    """All keys come after the queries: blocks have no keys. NaN and infinity stay out."""
    encoding, given = fresh(encoding), tensors(2, 9, 9)
    with torch.no_grad():
        given[1][0, 0, 0] = torch.nan
        given[2][0, 0, 1] = torch.inf
    at = torch.arange(9)
    out = attention(*given, encoding, causal=True, positions=at, key_positions=at + 20, block=block)
    check_zeros(out, given, (2, H, 9, D))
    q, k, v = given
    empty = attention(q, k[:, :, :0], v[:, :, :0], encoding, positions=at, key_positions=at[:0])
    check_zeros(empty, given, (2, H, 9, D))


def test_blocks_that_see_nothing_under_vmap() -> None:
    """The first piece of the result must have the axis of vmap too, though it sees no value."""
    q, k, v = (x.detach() for x in tensors(1, 9, 9))
    at, many = torch.arange(9), torch.stack((v, 2 * v))

    def call(v: Tensor) -> Tensor:
        return attention(q, k, v, causal=True, positions=at, key_positions=at + 5, block=4)

    with torch.no_grad():
        got = torch.func.vmap(call)(many)
    torch.testing.assert_close(got, torch.stack([call(v) for v in many]))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("S", [0, 5])
def test_no_queries_in_linear_attention(S: int, causal: bool) -> None:
    given = tensors(2, 0, S)
    out = linear_attention(*given, None, causal=causal)
    check_zeros(out, given, (2, H, 0, D))


def test_no_tokens_in_shifted_attention() -> None:
    given = tensors(2, 0, 0)
    check_zeros(shifted_attention(*given, whorl.RoPE(D), group=4), given, (2, H, 0, D))


PLACED: dict[str, dict[str, Any]] = {
    "positions": {"positions": torch.empty(0, 20, dtype=torch.int64)},
    "fractions": {"positions": torch.empty(0, 20, dtype=torch.float64)},
    "documents": {"documents": torch.empty(0, 20, dtype=torch.int64)},
    "packed": {"documents": torch.arange(20) // 7},
    "mask": {"mask": torch.empty(0, 20, dtype=torch.bool)},
}


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_no_rows(encoding: whorl.Encoding, name: str) -> None:
    if name == "fractions" and not encoding.fractional:
        return
    options = dict(PLACED[name])
    if encoding.position_axes > 1 and "positions" in options:
        options["positions"] = options["positions"].expand(encoding.position_axes, 0, 20)
    encoding, given = fresh(encoding), tensors(0, 20, 20)
    others: list[dict[str, Any]] = [{}, {"window": 3, "sinks": 1}, {"dropout": 0.5}]
    for more in others:
        out = attention(*given, encoding, causal=True, block=8, **(options | more))
        check_zeros(out, given, (0, H, 20, D))


@pytest.mark.parametrize("encoding", [None, whorl.RoPE(D), whorl.XPos(D), whorl.ALiBi(H)], ids=repr)
def test_no_rows_elsewhere(encoding: whorl.Encoding | None) -> None:
    given, at = tensors(0, 20, 20), torch.empty(0, 20, dtype=torch.int64)
    out = linear_attention(*given, encoding, causal=True, positions=at, chunk=8)
    check_zeros(out, given, (0, H, 20, D))
    out = shifted_attention(*given, encoding, group=4, causal=True, positions=at)
    check_zeros(out, given, (0, H, 20, D))


def test_far_positions_of_no_tokens() -> None:
    """XPos refuses positions that its dtype cannot hold; of none there is nothing to hold."""
    q, k, v = tensors(2, 0, 3)
    far = torch.arange(3) + 10**6
    out = attention(q, k, v, whorl.XPos(D), causal=True, positions=far[:0], key_positions=far)
    check_zeros(out, [q, k, v], (2, H, 0, D))
