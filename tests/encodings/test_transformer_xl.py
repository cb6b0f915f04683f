"""TransformerXL: the definition with a T x S x dim tensor, both ways to it, and what it refuses."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings import TransformerXL

from .content import filled, places, random, row, worst

AT = torch.arange(5)
Q, K = torch.zeros(2, 4, 5, 6), torch.zeros(2, 2, 5, 6)


def sinusoid(distance: float, width: int, base: float = 10_000.0) -> list[float]:
    angles = [distance / base ** (2 * n / width) for n in range(width // 2)]
    return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]


def oracle(
    xl: TransformerXL, q: Tensor, k: Tensor, at: Tensor, key_at: Tensor, base: float = 10_000.0
) -> Tensor:
    """The definition with the whole tensor R_(i-j), [B, T, S, dim], and no segments."""
    H, D, width = xl.config.num_heads, xl.config.head_dim, xl.config.width
    clamp = xl.config.clamp or math.inf
    R = [
        [
            [sinusoid(max(-clamp, min(clamp, i - j)), width, base) for j in row(key_at, b)]
            for i in rows
        ]
        for b in range(q.shape[0])
        for rows in [row(at, b)]
    ]
    W = xl.projection.view(H, D, width)
    k = k.repeat_interleave(H // k.shape[1], 1)
    vectors = torch.einsum("hdw,btsw->bhtsd", W, torch.tensor(R, dtype=torch.float64))
    from_content = torch.einsum("hd,bhsd->bhs", xl.u, k).unsqueeze(2)
    from_distance = torch.einsum("bhtd,bhtsd->bhts", q + xl.v[:, None], vectors)
    return from_content + from_distance


@given(data=st.data(), T=st.integers(1, 6), S=st.integers(1, 7))
@settings(max_examples=50)
def test_score_is_the_definition(data: st.DataObject, T: int, S: int) -> None:
    dim, base = data.draw(st.sampled_from([None, 10, 64])), data.draw(st.floats(2, 1e6))
    clamp = data.draw(st.sampled_from([None, 1, 5, 30]))
    xl = filled(TransformerXL(4, 6, dim=dim, base=base, clamp=clamp))
    at, key_at = data.draw(places(T)), data.draw(places(S))
    q, k = random(2, 4, T, 6), random(2, 2, S, 6, seed=1)
    want = oracle(xl, q, k, at, key_at, base)
    torch.testing.assert_close(xl.content_score(q, k, at, key_at), want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("clamp", [None, 4, 100])
@pytest.mark.parametrize(
    ("T", "S", "start"), [(1, 1, 3), (1, 9, 8), (9, 1, 0), (7, 12, 5), (5, 5, -9)]
)
def test_both_ways_agree(T: int, S: int, start: int, clamp: int | None) -> None:
    xl = filled(TransformerXL(2, 4, dim=6, clamp=clamp))
    asked, at, key_at = random(2, 2, T, 4), torch.arange(T) + start, torch.arange(S)
    projection = xl.projection.view(2, 4, 6)
    shifted = xl._score_by_shift(asked, start, S, None)
    rotated = xl._score_by_rotation(asked @ projection, at, key_at)
    torch.testing.assert_close(shifted, rotated, rtol=0, atol=1e-12)


def test_consecutive_positions_take_the_shift_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xl, taken = filled(TransformerXL(2, 4, dim=64)), []
    for name in ("_score_by_shift", "_score_by_rotation"):

        def noted(*args: Any, name: str = name) -> Tensor:
            taken.append(name)
            return getattr(TransformerXL, name)(xl, *args)

        monkeypatch.setattr(xl, name, noted)

    def way(T: int, at: Tensor, S: int, key_at: Tensor) -> str:
        taken.clear()
        xl.content_score(random(2, 2, T, 4), random(2, 2, S, 4), at, key_at)
        return taken[0]

    at = torch.arange(40)
    assert way(40, at, 40, at) == "_score_by_shift"
    assert (
        way(40, at + torch.tensor([[3], [9]]), 40, at + torch.tensor([[1], [7]]))
        == "_score_by_shift"
    )
    assert way(40, at + torch.tensor([[3], [9]]), 40, at) == "_score_by_rotation"  # rows differ
    assert way(40, at * 2, 40, at * 2) == "_score_by_rotation"
    assert way(40, at.flip(0), 40, at) == "_score_by_rotation"
    assert way(40, at.double(), 40, at.double()) == "_score_by_rotation"
    assert way(1, at[-1:], 40, at) == "_score_by_rotation"  # one query: turning it is less work


@given(data=st.data(), step=st.integers(-(10**6), 10**6))
@settings(max_examples=25)
def test_scores_depend_on_differences_only(data: st.DataObject, step: int) -> None:
    xl = filled(TransformerXL(2, 4, dim=8, clamp=data.draw(st.sampled_from([None, 9]))))
    at, key_at = data.draw(places(4)), data.draw(places(5))
    q, k = random(2, 2, 4, 4), random(2, 2, 5, 4)
    near, far = xl.content_score(q, k, at, key_at), xl.content_score(q, k, at + step, key_at + step)
    torch.testing.assert_close(near, far, rtol=0, atol=1e-8)


def test_fractions_are_the_definition_too() -> None:
    xl = filled(TransformerXL(2, 4, dim=6, clamp=3))
    q, k = random(1, 2, 5, 4), random(1, 2, 5, 4, seed=1)
    at, key_at = random(5, seed=2) * 4, random(5, seed=3) * 4
    got = xl.content_score(q, k, at, key_at)
    torch.testing.assert_close(got, oracle(xl, q, k, at, key_at), rtol=0, atol=1e-12)


def test_memory_is_only_longer_keys() -> None:
    xl = filled(TransformerXL(2, 4, dim=6))
    q, k, at = random(1, 2, 12, 4), random(1, 2, 12, 4, seed=1), torch.arange(12)
    whole = xl.content_score(q, k, at, at)
    later = xl.content_score(q[:, :, 8:], k, at[8:], at)
    torch.testing.assert_close(later, whole[:, :, 8:], rtol=0, atol=1e-12)


def test_far_positions_keep_single_precision() -> None:
    xl = filled(TransformerXL(2, 8)).float()
    q, k = random(1, 2, 6, 8, dtype=torch.float32), random(1, 2, 6, 8, dtype=torch.float32)
    at = torch.tensor([0, 5, 1 << 20, 1 << 22, 3, 1 << 24])
    exact = xl.content_score(q.double(), k.double(), at, at).detach()
    got = xl.content_score(q, k, at, at)
    assert worst(got, exact) < 2e-6 * worst(exact, torch.zeros(()))


@pytest.mark.parametrize("regular", [True, False])
def test_no_tensor_with_an_axis_for_both_pairs_and_channels(regular: bool) -> None:
    xl, T = TransformerXL(1, 64), 512
    q, at = torch.zeros(1, 1, T, 64), torch.arange(T) * (1 if regular else 3)
    with torch.profiler.profile(profile_memory=True) as profile:
        xl.content_score(q, q, at, at)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < T * T * 64


def test_segments_are_the_definition() -> None:
    xl = filled(TransformerXL(4, 6, segments="xlnet"))
    q, k = random(2, 4, 4, 6), random(2, 2, 5, 6, seed=1)
    at, key_at = torch.arange(1, 5), torch.arange(5)
    mine, theirs = torch.tensor([[0, 0, 1, 7], [1, 1, 1, 1]]), torch.tensor([0, 7, 7, 1, 0])
    want = oracle(xl, q, k, at, key_at)
    for b in range(2):
        for t in range(4):
            for s in range(5):
                other = int(mine[b, t] != theirs[s])
                vectors = xl.segment_vectors[other]
                want[b, :, t, s] += ((q[b, :, t] + xl.segment_bias) * vectors).sum(-1)
    got = xl.content_score(q, k, at, key_at, segments=mine, key_segments=theirs)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    alike = xl.content_score(q, q, at, at, segments=mine)
    again = xl.content_score(q, q, at, at, segments=mine, key_segments=mine)
    assert torch.equal(alike, again)


def test_no_segments_mean_one_which_softmax_does_not_see() -> None:
    xl, plain = filled(TransformerXL(2, 4, segments="xlnet")), filled(TransformerXL(2, 4))
    plain.load_state_dict({n: xl.state_dict()[n] for n in plain.state_dict()})
    q, at = random(1, 2, 5, 4), AT
    one = xl.content_score(q, q, at, at, segments=torch.zeros(5, dtype=torch.long))
    assert torch.equal(xl.content_score(q, q, at, at), one)
    bare = plain.content_score(q, q, at, at)
    torch.testing.assert_close(one.softmax(-1), bare.softmax(-1), rtol=0, atol=1e-12)
    assert worst(one, bare) > 0.1


def test_parameters_and_their_start() -> None:
    torch.manual_seed(0)
    assert set(TransformerXL(2, 4).state_dict()) == {"u", "v", "projection"}
    xl = TransformerXL(16, 64, dim=256, segments="xlnet")
    assert xl.projection.shape == (1024, 256)
    assert set(xl.state_dict()) == {"u", "v", "projection", "segment_bias", "segment_vectors"}
    hollow = TransformerXL(16, 64, segments="xlnet").to_empty(device="meta").to_empty(device="cpu")
    hollow.reset_parameters()
    for parameter in map(Tensor.detach, (*xl.parameters(), *hollow.parameters())):
        assert float(parameter.std()) == pytest.approx(0.02, rel=0.1)
        assert float(parameter.mean()) == pytest.approx(0, abs=0.003)


def test_half_precision_rounds_once() -> None:
    xl = filled(TransformerXL(2, 16)).float()
    q, k, at = random(1, 2, 30, 16).bfloat16(), random(1, 2, 30, 16).bfloat16(), torch.arange(30)
    exact = xl.content_score(q.double(), k.double(), at, at).detach()
    got = xl.content_score(q, k, at, at)
    assert got.dtype == torch.bfloat16
    assert worst(got, exact) <= whorl.testing.compute_rounding_tolerance(exact, torch.bfloat16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": -1}, r"TransformerXL: num_heads must be an int >= 1; got -1"),
        ({"head_dim": "6"}, r"TransformerXL: head_dim must be an int >= 1; got '6'"),
        ({"dim": 0}, r"TransformerXL: dim must be an int >= 1; got 0"),
        ({"dim": 7}, r"dim must be even, because sines and cosines come in pairs; got 7"),
        ({"num_heads": 3, "head_dim": 5}, r"got 15\. Pass dim= where num_heads \* head_dim is odd"),
        ({"base": 0.0}, r"TransformerXL: base must be a finite number above 0; got 0\.0"),
        ({"clamp": 0}, r"TransformerXL: clamp must be an int >= 1; got 0"),
        ({"segments": "bert"}, r"TransformerXL: segments must be 'none' or 'xlnet'; got 'bert'"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerXL(**{"num_heads": 4, "head_dim": 6, **options})


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"q": Q[:, :2]}, ValueError, r"TransformerXL\.content_score: q must have num_heads = 4"),
        ({"positions": AT.half()}, TypeError, r"half precision merges neighbours"),
        ({"key_segments": AT}, ValueError, r"key_segments came without segments; pass both"),
        ({"segments": AT[:3]}, ValueError, r"content_score, segments: .* T = 5; got \[3\]"),
        ({"segments": AT.float()}, TypeError, r"segments must be integers, the names of segments"),
        ({"segments": AT, "key_segments": AT.float()}, TypeError, r"key_segments must be integers"),
        (
            {"segments": AT, "k": K[:, :, :3], "key_positions": AT[:3]},
            ValueError,
            r"q has 5 tokens and k has 3, so one set of segments cannot serve both; pass key_seg",
        ),
    ],
)
def test_inputs(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    inputs = {"q": Q, "k": K, "positions": AT, "key_positions": AT, **change}
    with pytest.raises(kind, match=message):
        TransformerXL(4, 6, segments="xlnet").content_score(**inputs)


@pytest.mark.parametrize("which", ["segments", "key_segments"])
def test_segments_need_vectors(which: str) -> None:
    with pytest.raises(ValueError, match=r"no vectors for them; build it with segments='xlnet'"):
        TransformerXL(4, 6).content_score(Q, K, AT, AT, **{which: AT})
