"""The permutation test tells the blind from the seeing."""

import pytest

import whorl
from whorl.analysis import permutation
from whorl.encodings import base, cards
from whorl.testing.probe import randomized

ALL = sorted(base.classes().items())


@pytest.mark.parametrize(("name", "cls"), ALL)
def test_every_encoding_but_nope_sees_order(name: str, cls: type[whorl.Encoding]) -> None:
    sizes = {"num_heads": 2, "head_dim": 16, "dim": 32, "max_length": 40}
    options = {k: v for k, v in sizes.items() if k in cls.__init__.__annotations__}
    if name == "mrope":
        options |= {"sections": (2, 3, 3)}  # type: ignore[dict-item]
    change = permutation(randomized(cls(**options)))
    assert (change < 1e-12) is (cls.permutation == "equivariant") is (name == "nope")
    assert cards.sample(cls).permutation == cls.permutation


def test_compositions_and_seeds() -> None:
    both = whorl.RoPE(16) + whorl.ALiBi(4)
    assert permutation(both) > 1e-3
    assert permutation(both) == permutation(both)
    assert permutation(both, seed=1) != permutation(both)
    assert permutation(whorl.NoPE() + whorl.NoPE(), length=40) < 1e-12
    assert permutation(whorl.Shaw(2, 8, values="trained")) > 1e-6


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"permutation: encoding must be a whorl\.Encoding; got 3"):
        permutation(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"permutation: length must be an int >= 2; got 1"):
        permutation(whorl.NoPE(), length=1)
