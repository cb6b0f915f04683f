"""A state: pieces of any size, and single tokens, give what the whole sequence gives."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.attention.linear.attention import LinearState
from whorl.attention.linear.attention import linear_attention as typed

from .linear_naive import random

linear_attention: Any = typed  # calls here unpack lists
KINDS: list[Any] = ["elu", "relu", "cosine"]
D, H, G, S = 8, 4, 2, 40


def encodings() -> list[whorl.Encoding | None]:
    rope = whorl.RoPE(D)
    return [
        *(None, rope, whorl.ALiBi(H), rope + whorl.ALiBi(H)),
        *(whorl.XPos(D, scale_base=4.0), whorl.XPos(D) + whorl.ALiBi(H)),
        whorl.MRoPE(D, sections=(2, 1, 1)) + whorl.ALiBi(H),
    ]


def inputs(batch: int = 2, seed: int = 0) -> list[Tensor]:
    shapes = ((H, D), (G, D), (G, 5))
    return [random(batch, n, S, width, seed=seed + n) for n, width in shapes]


def in_pieces(
    xs: list[Tensor], sizes: list[int], encoding: Any, state: Any = None, **options: Any
) -> tuple[Tensor, LinearState]:
    """positions= and mask=, if any, are cut as the tokens are."""
    outs, start = [], 0
    by_token = {name: options.pop(name) for name in ("positions", "mask") if name in options}
    for size in sizes:
        piece = [x[:, :, start : start + size] for x in xs]
        here = {name: x[..., start : start + size] for name, x in by_token.items()}
        out, state = linear_attention(
            *piece, encoding, causal=True, state=state, return_state=True, **here, **options
        )
        outs.append(out)
        start += size
    return torch.cat(outs, 2), state


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 17), min_size=1, max_size=6),
    st.sampled_from(range(7)),
    st.sampled_from(KINDS),
    st.sampled_from(["counted", "by row", "irregular"]),
    st.booleans(),
    st.integers(1, 9),
)
def test_pieces_equal_the_whole(
    sizes: list[int], which: int, kind: Any, placing: str, hidden: bool, chunk: int
) -> None:
    sizes = [*sizes, 1, 1]
    n = sum(sizes)
    encoding = encodings()[which]
    many = encoding is not None and encoding.position_axes > 1
    q, k, v = random(2, H, n, D), random(2, G, n, D, seed=1), random(2, G, n, 5, seed=2)
    options: dict[str, Any] = {"feature_map": kind, "chunk": chunk}
    steps = torch.randint(1, 5, (2, n), generator=torch.Generator().manual_seed(n))
    if placing == "by row" and not many:
        options["positions"] = torch.arange(n) + torch.tensor([[3], [-8]])
    elif placing == "irregular" and not many:
        options["positions"] = steps.cumsum(-1)
    if hidden:
        options["mask"] = steps > 1
    whole = linear_attention(q, k, v, encoding, causal=True, **options)
    parts, _ = in_pieces([q, k, v], sizes, encoding, **options)
    torch.testing.assert_close(parts, whole, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", range(7))
def test_decoding_continues_by_itself(which: int, kind: Any) -> None:
    """Without positions a state counts on, for all rows or for each."""
    encoding, xs = encodings()[which], inputs()
    many = encoding is not None and encoding.position_axes > 1
    options: dict[str, Any] = {"feature_map": kind, "causal": True}
    for offset in (7, torch.tensor([7, 100])):
        if many and isinstance(offset, Tensor):
            continue
        whole, end = linear_attention(*xs, encoding, offset=offset, return_state=True, **options)
        prompt = [x[:, :, :10] for x in xs]
        _, state = linear_attention(*prompt, encoding, offset=offset, return_state=True, **options)
        rest = [x[:, :, 10:] for x in xs]
        out, last = in_pieces(rest, [1] * 30, encoding, state, feature_map=kind)
        torch.testing.assert_close(out, whole[:, :, 10:], rtol=1e-8, atol=1e-9)
        want = torch.as_tensor(offset) + S
        assert bool((torch.as_tensor(last.next_position) == want).all())
        assert last.numerator.shape == state.numerator.shape == end.numerator.shape


def test_left_padding_decodes_as_without() -> None:
    encoding = whorl.RoPE(D) + whorl.ALiBi(H)
    q, k, v = inputs()
    mask = torch.ones(2, S, dtype=torch.bool)
    mask[1, :15] = False
    at = whorl.positions.from_mask(mask)
    k, v = k.clone(), v.clone()
    k[1, :, :15], v[1, :, :15] = float("inf"), float("nan")  # nobody wrote anything there
    _, state = linear_attention(
        *(x[:, :, :30] for x in (q, k, v)),
        encoding,
        causal=True,
        positions=at[:, :30],
        mask=mask[:, :30],
        return_state=True,
    )
    assert isinstance(state.next_position, Tensor)
    assert state.next_position.tolist() == [30, 15]
    rest = [x[:, :, 30:] for x in (q, k, v)]
    out, _ = in_pieces(rest, [4, 1, 5], encoding, state)
    alone = linear_attention(*(x[1:, :, 15:] for x in (q, k, v)), encoding, causal=True)
    torch.testing.assert_close(out[1:], alone[:, :, 15:])


def test_padding_after_the_prompt() -> None:
    """Right padding: the next token of each row follows its last real one."""
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    xs = [x[:, :, :6] for x in inputs()]
    at = torch.arange(6).expand(2, 6) * mask
    encoding = whorl.RoPE(D) + whorl.ALiBi(H)
    _, state = linear_attention(
        *xs, encoding, causal=True, positions=at, mask=mask, return_state=True
    )
    short = [x[1:, :, :4] for x in xs]
    _, want = linear_attention(*short, encoding, causal=True, return_state=True)
    assert isinstance(state.next_position, Tensor)
    assert state.next_position.tolist() == [6, 4]
    torch.testing.assert_close(state.numerator[1:], want.numerator)


def test_rows_for_beams() -> None:
    encoding = whorl.XPos(D) + whorl.ALiBi(H)
    xs = inputs()
    prompt = [x[:, :, :10] for x in xs]
    at = torch.tensor([[0], [500]]) + torch.arange(10)
    _, state = linear_attention(*prompt, encoding, causal=True, positions=at, return_state=True)
    rows = torch.tensor([1, 0, 1])
    step = [x[:, :, 10:11] for x in xs]
    out = linear_attention(*step, encoding, causal=True, state=state)
    beams = linear_attention(
        *(x[rows] for x in step), encoding, causal=True, state=state.reorder(rows)
    )
    assert torch.equal(beams, out[rows])
    _, counted = linear_attention(*prompt, encoding, causal=True, return_state=True)
    assert counted.reorder(rows).next_position == 10
    assert counted.reorder(rows).numerator.shape[0] == 3
    listed = state.reorder(rows.tolist())
    assert torch.equal(listed.numerator, state.reorder(rows).numerator)


def test_a_state_is_never_changed() -> None:
    xs = [x[:, :, :5] for x in inputs()]
    _, state = linear_attention(*xs, whorl.RoPE(D), causal=True, return_state=True)
    before = state.numerator.clone(), state.denominator.clone()
    first = linear_attention(*xs, whorl.RoPE(D), causal=True, state=state)
    assert torch.equal(linear_attention(*xs, whorl.RoPE(D), causal=True, state=state), first)
    assert torch.equal(state.numerator, before[0])
    assert torch.equal(state.denominator, before[1])


def test_gradients_cross_pieces_until_detached() -> None:
    xs = [x.requires_grad_() for x in inputs()]
    encoding = whorl.RoPE(D)
    whole = torch.autograd.grad(linear_attention(*xs, encoding, causal=True).pow(2).sum(), xs)
    parts = torch.autograd.grad(in_pieces(xs, [13, 1, 26], encoding)[0].pow(2).sum(), xs)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)
    _, state = in_pieces([x[:, :, :20] for x in xs], [20], encoding)
    assert state.numerator.requires_grad
    assert not state.detach().numerator.requires_grad
    assert not state.detach().denominator.requires_grad


def test_fixed_length_of_a_scaling_with_a_state() -> None:
    rope = whorl.RoPE(D, scaling=whorl.DynamicYaRN(original_context=8))
    xs = inputs()
    whole = linear_attention(*xs, rope, causal=True, context_length=64)
    parts, _ = in_pieces(xs, [7, 1, 32], rope, context_length=64)
    torch.testing.assert_close(parts, whole)
    with pytest.raises(ValueError, match=r"context_length must be given with a state"):
        linear_attention(*xs, rope, causal=True, return_state=True)
