"""The permutation test tells the blind from the seeing."""

import inspect

import pytest

import whorl
from whorl.analysis import permutation
from whorl.encodings import base, cards
from whorl.testing.inputs import set_random_parameters

ALL = sorted(base.get_classes().items())


@pytest.mark.parametrize(("name", "cls"), ALL)
def test_every_encoding_but_nope_sees_order(name: str, cls: type[whorl.Encoding]) -> None:
    sizes = {"num_heads": 2, "head_dim": 16, "dim": 32, "max_length": 40}
    taken = inspect.signature(cls).parameters
    options = {k: v for k, v in sizes.items() if k in taken}
    if name == "mrope":
        options |= {"sections": (2, 3, 3)}  # type: ignore[dict-item]
    change = permutation(set_random_parameters(cls(**options)))
    assert (change < 1e-12) is (cls.permutation == "equivariant") is (name == "nope")
    assert cards.make_sample(cls).permutation == cls.permutation


def test_compositions_and_seeds() -> None:
    both = whorl.RoPE(16) + whorl.ALiBi(4)
    assert permutation(both) > 1e-3
    assert permutation(both) == permutation(both)
    assert permutation(both, seed=1) != permutation(both)
    assert permutation(whorl.NoPE() + whorl.NoPE(), length=40) < 1e-12
    assert permutation(whorl.Shaw(2, 8, values="trained")) > 1e-6


def test_the_order_is_never_the_one_they_had() -> None:
    """Nor, from 3 tokens on, its reverse, which a bias by |i - j| cannot tell from it."""
    for seed in range(20):
        assert permutation(whorl.RoPE(8), length=2, seed=seed) > 1e-3
        assert permutation(whorl.ALiBi(2), length=3, seed=seed) > 1e-3


def test_num_heads() -> None:
    mixed = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=2)
    assert permutation(mixed) == permutation(mixed, num_heads=4)
    assert permutation(whorl.RoPE(8)) == permutation(whorl.RoPE(8), num_heads=4)
    assert permutation(whorl.RoPE(8)) != permutation(whorl.RoPE(8), num_heads=3)
    with pytest.raises(ValueError, match=r"num_heads must be a multiple of the 2 key heads of Ax"):
        permutation(mixed, num_heads=3)
    with pytest.raises(ValueError, match=r"ALiBi\(2\) is for 2 heads; got num_heads=3\. Leave it"):
        permutation(whorl.ALiBi(2), num_heads=3)
    for wrong in (-1, 0, 2.0):
        with pytest.raises(ValueError, match=rf"num_heads must be a positive int; got {wrong}\."):
            permutation(whorl.RoPE(8), num_heads=wrong)  # type: ignore[arg-type]


def test_errors() -> None:
    for seed in ("a", 2**64, None):
        with pytest.raises(ValueError, match=rf"seed must be an int of 64 bits; got '?{seed}'?\."):
            permutation(whorl.NoPE(), seed=seed)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"permutation: encoding must be a whorl\.Encoding; got 3"):
        permutation(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"permutation: length must be an int >= 2; got 1"):
        permutation(whorl.NoPE(), length=1)


def test_a_length_beyond_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"permutation: length 1,000,000 needs 256 TB of memory"):
        permutation(whorl.NoPE(), length=10**6)
