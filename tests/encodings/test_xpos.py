"""XPos: scores from the definition, at any reference, in any dtype, far out."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import whorl

D, BASE, GAMMA, SPAN = 8, 10_000.0, 0.4, 512.0


def truth(q: Tensor, k: Tensor, m: float, n: float) -> float:
    """Score of one query at m and one key at n, pair by pair, from the paper; half layout."""
    total = 0.0
    pairs = q.shape[-1] // 2
    for i in range(pairs):
        theta = BASE ** (-2 * i / (2 * pairs))
        zeta = (2 * i / (2 * pairs) + GAMMA) / (1 + GAMMA)
        a = complex(q[i], q[i + pairs]) * complex(k[i], k[i + pairs]).conjugate()
        turn = torch.tensor((m - n) * theta, dtype=torch.float64)
        turned = a * complex(turn.cos(), turn.sin())
        total += zeta ** ((m - n) / SPAN) * turned.real
    return total


def vectors(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@given(
    st.integers(-2000, 20_000),
    st.integers(0, 3000),
    st.sampled_from([0, 512, 20_000]),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from(["native", "reference"]),
)
def test_scores_are_those_of_the_paper(
    m: int, back: int, reference: int, layout: Any, impl: Any
) -> None:
    if impl == "native" and whorl.kernels.native.find_problem():
        impl = "reference"
    xpos = whorl.XPos(D, layout=layout, impl=impl)
    q, k = vectors(1, 1, 1, D), vectors(1, 1, 1, D, seed=1)
    turned = xpos.rotate(q, offset=m, role="query", reference=reference)
    held = xpos.rotate(k, offset=m - back, role="key", reference=reference)
    score = float((turned * held).sum())
    flat_q, flat_k = q.flatten(), k.flatten()
    if layout == "interleaved":
        flat_q, flat_k = (torch.cat((x[0::2], x[1::2])) for x in (flat_q, flat_k))
    assert score == pytest.approx(truth(flat_q, flat_k, m, m - back), rel=1e-9, abs=1e-12)


def test_pair_equals_its_halves() -> None:
    xpos = whorl.XPos(D)
    q, k = vectors(2, 4, 5, D, dtype=torch.float32), vectors(2, 2, 5, D, dtype=torch.float32)
    for reference in (0, 512, torch.tensor([0, 1024])):
        both = xpos(q, k, offset=900, reference=reference)
        alone = (
            xpos.rotate(q, offset=900, role="query", reference=reference),
            xpos.rotate(k, offset=900, role="key", reference=reference),
        )
        assert torch.equal(both[0], alone[0])
        assert torch.equal(both[1], alone[1])
        written = xpos.forward_(q.clone(), k.clone(), offset=900, reference=reference)
        assert torch.equal(written[0], both[0])
        assert torch.equal(written[1], both[1])
        again = xpos.rotate_(
            both[1].clone(), offset=900, role="key", reference=reference, inverse=True
        )
        torch.testing.assert_close(again, k)


def test_decode_equals_prefill_with_rotated_keys_cached() -> None:
    xpos = whorl.XPos(16)
    q, k = vectors(1, 2, 40, 16), vectors(1, 2, 40, 16, seed=1)
    whole_q, whole_k = xpos(q, k)
    cached: list[Tensor] = []
    for t in range(40):
        q_t, k_t = xpos(q[:, :, t : t + 1], k[:, :, t : t + 1], offset=t)
        cached.append(k_t)
        scores = q_t @ torch.cat(cached, 2).mT
        torch.testing.assert_close(scores, whole_q[:, :, t : t + 1] @ whole_k[:, :, : t + 1].mT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_finite_and_accurate_at_64k(dtype: torch.dtype) -> None:
    """Keys cached as they come and rescaled block by block, as a cache will do it."""
    length, block, head_dim = 65_536, 512, 32
    xpos = whorl.XPos(head_dim)
    k = vectors(1, 1, length, head_dim, dtype=dtype)
    cache = torch.empty(1, 1, 0, head_dim, dtype=dtype)
    for start in range(0, length, block):
        cache = xpos.rescale(cache, old=start - block, new=start)
        piece = k[:, :, start : start + block]
        new = xpos.rotate(piece, offset=start, role="key", reference=start)
        cache = torch.cat((cache, new), 2)
    reference = length - block
    assert xpos.reference_for(length - 1) == reference
    q = vectors(1, 1, 3, head_dim, seed=1, dtype=dtype)
    turned = xpos.rotate(q, offset=length - 3, role="query", reference=reference)
    scores = turned.double() @ cache.double().mT
    exact = whorl.XPos(head_dim)
    far_q = exact.rotate(q.double(), offset=length - 3, role="query", reference=reference)
    far_k = exact.rotate(k.double(), role="key", reference=reference)
    want = far_q @ far_k.mT
    assert scores.isfinite().all()
    unit = torch.finfo(dtype).eps
    size = far_q.norm(dim=-1, keepdim=True) * far_k.norm(dim=-1).unsqueeze(-2)
    assert ((scores - want).abs() <= 2 * unit * size + torch.finfo(dtype).tiny * 100).all()
    assert want[..., :1000].abs().max() < want[..., -1000:].abs().max() / 100  # as it should be


@given(
    st.integers(-4000, 4000), st.integers(0, 4000), st.sampled_from([torch.float32, torch.bfloat16])
)
def test_rescale_rounds_nothing(old: int, step: int, dtype: torch.dtype) -> None:
    xpos = whorl.XPos(16, layout="interleaved", rotary_dim=12, rotary_start=2)
    k = vectors(2, 2, 3, 16, dtype=dtype)
    kept = xpos.rotate(k, offset=old, role="key", reference=old)
    moved = xpos.rescale(kept, old=old, new=old + step)
    assert torch.equal(moved, xpos.rotate(k, offset=old, role="key", reference=old + step))
    assert torch.equal(xpos.rescale(moved, old=old + step, new=old), kept)


def test_rescale_by_row() -> None:
    xpos = whorl.XPos(D)
    k = vectors(2, 1, 4, D, dtype=torch.float32)
    old, new = torch.tensor([0, 512]), torch.tensor([1024, 512])
    moved = xpos.rescale(k, old=old, new=new)
    for row in range(2):
        alone = xpos.rescale(k[row : row + 1], old=int(old[row]), new=int(new[row]))
        assert torch.equal(moved[row], alone[0])
    assert torch.equal(moved[1], k[1])


def test_shift_moves_rotated_keys() -> None:
    xpos = whorl.XPos(D)
    k = vectors(2, 1, 4, D)
    moved = xpos.shift(xpos.rotate(k, offset=100, role="key"), 37)
    torch.testing.assert_close(moved, xpos.rotate(k, offset=137, role="key"))


def test_tables_carry_the_factors() -> None:
    xpos = whorl.XPos(D)
    at = torch.tensor([0, 512])
    cos, sin = xpos.tables(at, role="query")
    zeta = (torch.arange(0, D, 2) / D + GAMMA) / (1 + GAMMA)
    torch.testing.assert_close((cos**2 + sin**2).sqrt()[1], zeta)
    cos, sin = xpos.tables(at, role="key", reference=512)
    assert (cos**2 + sin**2).sqrt()[1].max() < 1.5


def test_scores_decay() -> None:
    """With every pair pointing the same way the factor alone is left."""
    xpos = whorl.XPos(64)
    ones = torch.ones(1, 1, 1, 64, dtype=torch.float64)
    norms = []
    for distance in (0, 512, 1024, 4096):
        q = xpos.rotate(ones, offset=distance, role="query")
        norms.append(float(q.norm()))
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < norms[0] / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, r"XPos: gamma must be a finite number above 0; got 0\.0\."),
        ({"gamma": "a"}, r"XPos: gamma must be a finite number above 0; got 'a'\."),
        ({"scale_base": -1}, r"XPos: scale_base must be a finite number above 0; got -1\."),
        ({"head_dim": 7}, r"XPos: head_dim must be even and at least 2, because channels rotate"),
        ({"base": -2.0}, r"XPos: base must be a finite number above 0; got -2\.0\."),
        ({"layout": "full"}, r"XPos: layout must be 'half' or 'interleaved'; got 'full'\."),
    ],
)
def test_constructor_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.XPos(**{"head_dim": 8, **options})


def test_call_errors() -> None:
    xpos = whorl.XPos(D)
    k = vectors(1, 1, 2, D, dtype=torch.float16)
    with pytest.raises(
        ValueError, match=r"XPos\.rotate: role must be 'query' or 'key', because qu"
    ):
        xpos.rotate(k)
    with pytest.raises(ValueError, match=r"XPos\.tables: role must be 'query' or 'key'.*got 'val'"):
        xpos.tables(torch.arange(2), role="val")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"XPos\.rotate: reference must be an int, or integers \[B\]"
    ):
        xpos.rotate(k, role="key", reference=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"reference must be .*got torch\.float32"):
        xpos.rotate(k, role="key", reference=torch.tensor([0.5]))
    with pytest.raises(TypeError, match=r"XPos\.reference_for: position must be an int; got 0\.5"):
        xpos.reference_for(0.5)  # type: ignore[arg-type]
    far = (
        r"XPos: keys at positions 4000 to 4001 are too far from their reference for torch\.float16"
    )
    with pytest.raises(ValueError, match=far):
        xpos.rotate(k, offset=4000, role="key")
    with pytest.raises(
        ValueError, match=r"about 3116 positions; pass reference=xpos\.reference_for"
    ):
        xpos.rotate(k, offset=torch.tensor([4000]), role="query")
    with pytest.raises(ValueError, match=r"XPos: queries at positions 0 to 1 are too far"):
        xpos.rotate(k, role="query", reference=4000)
    vanished = xpos.rotate(k, role="key", reference=40_000)  # far keys vanish; that is right
    assert vanished[..., 0].abs().max() == 0
    untouched = k.clone()
    with pytest.raises(ValueError, match=r"too far"):
        xpos.forward_(untouched, untouched.clone(), offset=5000)
    assert torch.equal(untouched, k)


def test_declares_what_it_is() -> None:
    assert whorl.XPos.causal
    assert (whorl.XPos(D) + whorl.NoPE()).causal
    assert not whorl.RoPE(D).causal


def test_rows_with_references_of_their_own_are_checked_one_by_one() -> None:
    xpos, q = whorl.XPos(D), vectors(2, 1, 2, D, dtype=torch.float32)
    at = torch.tensor([[60_000, 60_001], [0, 1]])
    near = torch.tensor([60_000, 0])
    assert all(x.isfinite().all() for x in xpos(q, q, at, reference=near))
    with pytest.raises(ValueError, match=r"are too far from their reference for torch\.float32"):
        xpos(q, q, at, reference=near.flip(0))
    with pytest.raises(ValueError, match=r"reference has 3 rows but the batch has 2; give one for"):
        xpos(q, q, reference=torch.tensor([0, 1, 2]))
    with pytest.raises(
        ValueError, match=r"XPos\.rescale: reference has 3 rows but the batch has 2"
    ):
        xpos.rescale(q, old=torch.tensor([0, 1, 2]), new=0)


def test_keys_are_not_blown_up() -> None:
    xpos, k = whorl.XPos(D), torch.zeros(1, 1, 2, D)
    with pytest.raises(ValueError, match=r"XPos\.rescale: the new reference is too far away for"):
        xpos.rescale(k, old=100_000, new=0)
    with pytest.raises(
        ValueError, match=r"XPos\.shift: the new place is too far away for torch\.fl"
    ):
        xpos.shift(k, 500_000)
    with pytest.raises(ValueError, match=r"rotate the keys afresh from unrotated ones"):
        xpos.shift(k, torch.tensor([500_000]))
    assert xpos.shift(k, -500_000).isfinite().all()
    assert xpos.rescale(k, old=0, new=500_000).isfinite().all()


def test_keys_that_fade_lose_digits_and_then_vanish() -> None:
    xpos, k = whorl.XPos(32), vectors(1, 1, 64, 32, dtype=torch.float16)
    stepped = xpos.rotate(k, role="key")
    for block in range(0, 20_000, 512):
        stepped = xpos.rescale(stepped, old=block, new=block + 512)
    fresh = xpos.rotate(k, role="key", reference=block + 512)
    normal = fresh.abs() >= torch.finfo(torch.float16).tiny
    assert torch.equal(stepped[normal], fresh[normal])
    assert (stepped - fresh).abs().max() < torch.finfo(torch.float16).tiny
    assert not stepped[..., 0].any()


def test_composed_with_a_bias_it_still_takes_a_reference() -> None:
    both = whorl.XPos(D) + whorl.ALiBi(2)
    q = vectors(1, 2, 3, D, dtype=torch.float16)
    want = whorl.XPos(D)(q, q, offset=60_000, reference=60_000)
    assert torch.equal(both(q, q, offset=60_000, reference=60_000)[1], want[1])
    with pytest.raises(TypeError, match=r"RoPE\(8\) has no 'reference' in forward; leave it out"):
        (whorl.RoPE(D) + whorl.ALiBi(2))(q, q, reference=3)


@pytest.mark.parametrize("scale_base", [512.0, 100.5, 0.75])
def test_reference_near_is_that_of_the_middle(scale_base: float) -> None:
    xpos = whorl.XPos(8, scale_base=scale_base)
    at = torch.tensor([[0, 3, 7], [90_000, 90_400, 91_000], [-5, -1, -9]])
    want = [xpos.reference_for(middle) for middle in (3, 90_500, -5)]
    assert [xpos.reference_near(row) for row in at] == want
    assert all(type(xpos.reference_near(row)) is int for row in at)
    assert torch.equal(torch.as_tensor(xpos.reference_near(at)), torch.tensor(want))
    assert torch.equal(torch.as_tensor(xpos.reference_near(at.double() + 0.25)), torch.tensor(want))
    assert xpos.reference_near(at[0, :0]) == 0
    assert torch.equal(torch.as_tensor(xpos.reference_near(at[:, :0])), torch.zeros(3).long())
    shape = torch.as_tensor(xpos.reference_near(at.to("meta"))).shape
    assert shape == (3,)


def test_reference_near_refuses_what_are_no_positions() -> None:
    with pytest.raises(TypeError, match=r"positions must be a tensor \[T\] or \[B, T\]; got 5"):
        whorl.XPos(8).reference_near(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"\[T\] or \[B, T\]; got \[\]"):
        whorl.XPos(8).reference_near(torch.tensor(5))
