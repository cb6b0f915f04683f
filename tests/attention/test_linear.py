"""Linear attention equals its definition, for every option and every encoding that it takes."""

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.attention.linear import compute
from whorl.attention.linear.attention import linear_attention
from whorl.scaling import DynamicNTK, DynamicYaRN, YaRN

from .linear_naive import Turn, naive, random, rotary, unrotated

KINDS: list[Any] = ["elu", "relu", "cosine"]
D = 8


def tril(T: int, S: int) -> Tensor:
    """Which keys each of the last T tokens sees."""
    return torch.ones(T, S, dtype=torch.float64).tril(S - T)


def decay(slopes: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
    """exp(-m (i - j)), [H, T, S] or [B, H, T, S], 0 for later keys."""
    distance = (positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).double()
    distance = distance.unsqueeze(-3).clamp(min=0)
    return (-slopes.double()[:, None, None] * distance).exp()


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    batch, groups, kv = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    S = draw(st.integers(1, 40))
    causal = draw(st.booleans())
    T = draw(st.integers(1, S)) if causal else draw(st.integers(1, 40))
    return {
        "shape": (batch, groups * kv, kv, T, S, draw(st.integers(1, 9))),
        "causal": causal,
        "kind": draw(st.sampled_from(KINDS)),
        "hidden": draw(st.booleans()),
        "by_row": draw(st.booleans()),
        "encoding": draw(st.sampled_from(["none", "rope", "alibi", "both"])),
        "chunk": draw(st.integers(1, 17)),
        "block": draw(st.sampled_from([8, 512])),
        "seed": draw(st.integers(0, 2**20)),
    }


@settings(max_examples=150)
@given(calls())
def test_equals_the_definition(call: dict[str, Any]) -> None:
    (B, H, G, T, S, Dv), causal, seed = call["shape"], call["causal"], call["seed"]
    q, k = random(B, H, T, D, seed=seed), random(B, G, S, D, seed=seed + 1)
    v = random(B, G, S, Dv, seed=seed + 2)
    steps = torch.randint(1, 9, (B, S), generator=torch.Generator().manual_seed(seed))
    at = steps.cumsum(-1) if call["by_row"] else torch.arange(S) + 3
    asked = torch.arange(T) * 2 if not causal else at[..., S - T :]
    keep = random(B, S, seed=seed + 3) > -0.7 if call["hidden"] else None
    weights = tril(T, S) if causal else torch.ones(T, S, dtype=torch.float64)
    if keep is not None:
        weights = weights * keep[:, None, None]
    encoding: whorl.Encoding | None = None
    turn: Turn = unrotated
    if call["encoding"] in ("rope", "both"):
        encoding = whorl.RoPE(D, rotary_dim=6)
        theta = 10_000.0 ** -(torch.arange(0, 6, 2, dtype=torch.float64) / 6)
        turn = rotary(asked, at, theta)
    if call["encoding"] in ("alibi", "both") and causal:
        alibi = whorl.ALiBi(H)
        encoding = alibi if encoding is None else encoding + alibi
        weights = weights * decay(alibi.slopes(), asked, at)
    with mock.patch.object(compute, "_BLOCK", call["block"]):
        out = linear_attention(
            *(q, k, v, encoding),
            feature_map=call["kind"],
            causal=causal,
            positions=asked,
            key_positions=at,
            mask=keep,
            chunk=call["chunk"],
        )
    want = naive(q, k, v, turn, call["kind"], weights)
    assert out.shape == (B, H, T, Dv)
    torch.testing.assert_close(out, want, rtol=1e-8, atol=1e-9)


def axial() -> tuple[whorl.Encoding, Tensor]:
    return whorl.AxialRoPE(D, base=100.0), whorl.positions.grid(5, 6)


def mixed() -> tuple[whorl.Encoding, Tensor]:
    rope = whorl.AxialRoPE(D, frequencies="mixed", num_kv_heads=2, base=10.0)
    return rope, whorl.positions.grid(5, 6)


def multimodal() -> tuple[whorl.Encoding, Tensor]:
    rows = torch.stack([torch.arange(30) // 3, torch.arange(30) % 7, torch.arange(30) % 5])
    return whorl.MRoPE(D, sections=(2, 1, 1), layout="interleaved"), rows


def other_layout() -> tuple[whorl.Encoding, Tensor]:
    rope = whorl.RoPE(D, layout="interleaved", out_layout="half", rotary_dim=4, rotary_start=2)
    return rope, torch.arange(30) * 1.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("build", [axial, mixed, multimodal, other_layout])
def test_every_rotation(build: Any, causal: bool, kind: Any) -> None:
    encoding, at = build()
    q, k, v = random(2, 4, 30, D), random(2, 2, 30, D, seed=1), random(2, 2, 30, 5, seed=2)
    out = linear_attention(
        q, k, v, encoding, feature_map=kind, causal=causal, positions=at, chunk=7
    )

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return encoding(q, k, at)

    want = naive(q, k, v, turn, kind, tril(30, 30) if causal else None)
    torch.testing.assert_close(out, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("build", [whorl.NoPE, lambda: whorl.Sinusoidal(32), lambda: None])
def test_what_does_not_act_here_changes_nothing(build: Any) -> None:
    q, k, v = random(1, 4, 20, D), random(1, 2, 20, D, seed=1), random(1, 2, 20, 5, seed=2)
    torch.testing.assert_close(linear_attention(q, k, v, build()), naive(q, k, v))
    with_rope = linear_attention(q, k, v, whorl.RoPE(D) + whorl.NoPE(), causal=True)
    assert torch.equal(with_rope, linear_attention(q, k, v, whorl.RoPE(D), causal=True))


class Pairs(whorl.Encoding):
    """A rotation by somebody else, which knows nothing but the interface."""

    def __init__(self) -> None:
        super().__init__()
        self.rope = whorl.RoPE(D)
        self.config = whorl.Config()

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        return self.rope(*args, **options)


@pytest.mark.parametrize("causal", [False, True])
def test_rotations_of_others(causal: bool) -> None:
    q, k, v = random(1, 4, 20, D), random(1, 2, 20, D, seed=1), random(1, 2, 20, 5, seed=2)
    out = linear_attention(q, k, v, Pairs(), causal=causal, offset=7)
    torch.testing.assert_close(
        out, linear_attention(q, k, v, whorl.RoPE(D), causal=causal, offset=7)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "scaling",
    [
        YaRN(factor=8.0, original_context=16),
        DynamicYaRN(original_context=16),
        DynamicNTK(factor=2.0, original_context=16),
    ],
)
def test_scalings_turn_but_do_not_scale(scaling: Any, causal: bool, kind: Any) -> None:
    """One row past the trained length, one within it: each has frequencies of its own."""
    rope = whorl.RoPE(D, rotary_dim=6, scaling=scaling)
    q, k, v = random(2, 4, 20, D), random(2, 2, 20, D, seed=1), random(2, 2, 20, 5, seed=2)
    at = torch.stack((torch.arange(20) + 50, torch.arange(20) - 10))
    out = linear_attention(q, k, v, rope, feature_map=kind, causal=causal, positions=at)
    f = rope.frequencies(torch.tensor([70, 10]))
    if scaling.name != "dynamic_ntk":
        assert float(torch.as_tensor(f.attention_scale).max()) > 1.1  # there is something to ignore
    inv_freq = f.inv_freq if f.inv_freq.dim() == 1 else f.inv_freq.unsqueeze(1)
    want = naive(q, k, v, rotary(at, at, inv_freq), kind, tril(20, 20) if causal else None)
    torch.testing.assert_close(out, want, rtol=1e-8, atol=1e-9)
    if scaling.follows_length:
        given = linear_attention(
            *(q, k, v, rope),
            feature_map=kind,
            causal=causal,
            positions=at,
            context_length=torch.tensor([70, 10]),
        )
        assert torch.equal(given, out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 1_000_000])
@pytest.mark.parametrize("span", [0.5, 4.0, 512.0])
def test_xpos(kind: Any, start: int, span: float) -> None:
    """A steep one leaves float32 within a block of tokens, unless the block is cut."""
    xpos = whorl.XPos(D, scale_base=span)
    n = 700 if span > 1 else 200  # what the oracle's float64 holds
    q, k, v = random(2, 4, n, D), random(2, 2, n, D, seed=1), random(2, 2, n, 5, seed=2)
    out = linear_attention(
        *(q.float(), k.float(), v.float(), xpos), feature_map=kind, causal=True, offset=start
    )

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return xpos(q, k)  # float64 has the room; scores are relative

    want = naive(q, k, v, turn, kind, tril(n, n))
    torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_xpos_with_rows_of_their_own_and_alibi(kind: Any) -> None:
    xpos, alibi = whorl.XPos(D, scale_base=8.0), whorl.ALiBi(4)
    q, k, v = random(2, 4, 90, D), random(2, 2, 90, D, seed=1), random(2, 2, 90, 5, seed=2)
    keep = torch.ones(2, 90, dtype=torch.int64)
    keep[1, :30] = 0
    at = whorl.positions.from_mask(keep) + torch.tensor([[0], [50_000]])
    at[1, :30] = 7  # padding may be anywhere
    out = linear_attention(
        *(q, k, v, xpos + alibi), feature_map=kind, causal=True, positions=at, mask=keep
    )
    near = at - torch.tensor([[0], [50_000]])
    weights = tril(90, 90) * keep[:, None, None] * decay(alibi.slopes(), near, near)

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return xpos(q, k, near.clamp(min=0))

    want = naive(q, k, v, turn, kind, weights)
    torch.testing.assert_close(out[0], want[0], rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(out[1, :, 30:], want[1, :, 30:], rtol=1e-8, atol=1e-9)
    assert out.isfinite().all()


def test_the_last_queries_of_a_causal_call() -> None:
    q, k, v = random(1, 2, 30, D), random(1, 2, 30, D, seed=1), random(1, 2, 30, 5, seed=2)
    encoding = whorl.RoPE(D) + whorl.ALiBi(2)
    whole = linear_attention(q, k, v, encoding, causal=True, offset=5, chunk=4)
    for T in (0, 1, 9):
        last = q[:, :, 30 - T :]
        out = linear_attention(last, k, v, encoding, causal=True, offset=5, chunk=4)
        torch.testing.assert_close(out, whole[:, :, 30 - T :])
        named = linear_attention(last, k, v, encoding, causal=True, key_positions=torch.arange(30))
        torch.testing.assert_close(named, out)
    assert linear_attention(q[:, :, :0], k[:, :, :0], v[:, :, :0]).shape == (1, 2, 0, 5)
    nothing = linear_attention(q, k[:, :, :0], v[:, :, :0])
    assert torch.equal(nothing, torch.zeros(1, 2, 30, 5, dtype=torch.float64))


@given(st.integers(-500, 500), st.booleans(), st.sampled_from(KINDS))
def test_only_differences_of_positions_matter(shift: int, causal: bool, kind: Any) -> None:
    q, k, v = random(1, 2, 12, D), random(1, 2, 12, D, seed=1), random(1, 2, 12, 5, seed=2)
    encodings: list[whorl.Encoding] = [whorl.RoPE(D)]
    if causal:
        encodings += [whorl.RoPE(D) + whorl.ALiBi(2), whorl.XPos(D)]
    for encoding in encodings:
        here, there = (
            linear_attention(q, k, v, encoding, feature_map=kind, causal=causal, offset=offset)
            for offset in (0, shift)
        )
        torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-10)


@given(st.integers(0, 2**20), st.booleans())
def test_elu_and_cosine_average(seed: int, causal: bool) -> None:
    """Without a rotation weights are positive and add up to 1; cosine's do with one, too."""
    q, k = random(1, 2, 12, D, seed=seed), random(1, 2, 12, D, seed=seed + 1)
    v = random(1, 2, 12, 5, seed=seed + 2)
    ones = torch.ones_like(v)
    for encoding, kind in ((None, "elu"), (whorl.RoPE(D), "cosine"), (whorl.ALiBi(2), "elu")):
        if isinstance(encoding, whorl.ALiBi) and not causal:
            continue
        options: dict[str, Any] = {"feature_map": kind, "causal": causal}
        torch.testing.assert_close(linear_attention(q, k, ones, encoding, **options), ones)
        out = linear_attention(q, k, v, encoding, **options)
        low, high = v.amin(2, keepdim=True), v.amax(2, keepdim=True)
        assert bool(((out >= low - 1e-9) & (out <= high + 1e-9)).all())
