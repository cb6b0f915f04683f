"""sink_logits and softcap: what attention does to scores, against matrices in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import attention

from .test_softmax import D, H, fresh, randn

S = 13
ENCODINGS = [whorl.NoPE(), whorl.T5Bias(H), whorl.Shaw(H, D, left=4)]


def compute_dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: whorl.Encoding,
    visible: Tensor,
    sink_logits: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """The definition: a softcap on scaled scores, then bias and mask, then one more column."""
    places = torch.arange(S)
    queries = places[S - q.shape[2] :]
    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))
    content = encoding.content_score(q, k, queries, places)
    scores = q @ k.mT if content is None else q @ k.mT + content
    scale = encoding.softmax_scale(D)
    scores = scores * (D**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    bias = encoding.distance_bias(queries[:, None] - places)
    scores = scores if bias is None else scores + bias
    scores = scores.masked_fill(~visible, -math.inf)
    if sink_logits is not None:
        column = sink_logits[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, column), -1)
    return scores.softmax(-1).nan_to_num()[..., :S] @ v


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("has_sink", "softcap"), [(True, None), (False, 0.7), (True, 0.7)])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_scores_and_gradients(
    encoding: whorl.Encoding, has_sink: bool, softcap: float | None, padded: bool, trained: bool
) -> None:
    encoding = fresh(encoding).requires_grad_(trained)
    T = S if trained else 9
    shapes = ((2, H, T, D), (2, 2, S, D), (2, 2, S, D))
    q, k, v = (randn(*shape, seed=n).requires_grad_(trained) for n, shape in enumerate(shapes))
    sinks = 2 * randn(H, seed=5).requires_grad_(trained) if has_sink else None
    visible = torch.ones(S, S, dtype=torch.bool).tril()[S - T :].expand(2, 1, T, S)
    mask = torch.ones(2, S, dtype=torch.bool)
    if padded:  # the first query of row 0 sees no key
        mask[0, :6] = False
    options: dict[str, Any] = {"sink_logits": sinks, "softcap": softcap}
    want = compute_dense(q, k, v, encoding, visible & mask[:, None, None], **options)
    inputs = [x for x in (q, k, v, sinks, *encoding.parameters()) if x is not None]
    for block in (4, 256):
        shown = mask if padded else None
        got = attention(q, k, v, encoding, causal=True, block=block, mask=shown, **options)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
        if trained:
            weight = randn(*got.shape, seed=9)
            mine, theirs = (
                torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True)
                for out in (got, want)
            )
            for one, other in zip(mine, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_a_sink_that_takes_nothing_or_all() -> None:
    q, k, v = (randn(1, H, 300, D, seed=n, dtype=torch.float32) for n in range(3))
    plain = attention(q, k, v, causal=True)
    nothing = attention(q, k, v, causal=True, sink_logits=torch.full((H,), -1e4))
    torch.testing.assert_close(nothing, plain)
    assert not attention(q, k, v, sink_logits=torch.full((H,), 1e4)).any()


def test_one_token_and_empty_calls() -> None:
    q, k, v = (randn(1, H, n, D, seed=n) for n in (1, S, S))
    sinks = randn(H, seed=5).requires_grad_()
    visible = torch.ones(1, S, dtype=torch.bool)
    want = compute_dense(q, k, v, whorl.NoPE(), visible, sinks, None)
    torch.testing.assert_close(attention(q, k, v, causal=True, sink_logits=sinks), want)
    empty = attention(q, k[:, :, :0], v[:, :, :0], sink_logits=sinks)
    assert not empty.any()
    (gradient,) = torch.autograd.grad(empty.sum(), sinks)
    assert not gradient.any()


def test_sink_logits_with_a_cache() -> None:
    q, k, v = (randn(1, H, 9, D, seed=n) for n in range(3))
    sinks = randn(H, seed=5)
    whole = attention(q, k, v, whorl.RoPE(D), causal=True, sink_logits=sinks, softcap=2.0)
    cache = whorl.KVCache(whorl.RoPE(D))
    for n in range(9):
        a, b, c = (x[:, :, n : n + 1] for x in (q, k, v))
        step = attention(a, b, c, causal=True, cache=cache, sink_logits=sinks, softcap=2.0)
        torch.testing.assert_close(step, whole[:, :, n : n + 1])


@pytest.mark.parametrize(
    "sinks", [torch.zeros(H + 1), torch.zeros(H, dtype=torch.long), 1.0], ids=["heads", "int", "1"]
)
def test_sink_logits_that_are_refused(sinks: Any) -> None:
    q = randn(1, H, 3, D)
    with pytest.raises(ValueError, match=r"sink_logits must be one number for each of the 4 heads"):
        attention(q, q, q, sink_logits=sinks)


@pytest.mark.parametrize("softcap", [0.0, -1.0, math.inf, True, "2"])
def test_softcaps_that_are_refused(softcap: Any) -> None:
    q = randn(1, H, 3, D)
    with pytest.raises(ValueError, match=r"softcap must be a positive number, which no score exc"):
        attention(q, q, q, softcap=softcap)
