"""Entropy against closed forms: ln n for equal scores, ln n - s^2 / 2 for many normal ones."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.analysis import attention_scale, entropy


class Flat(whorl.Encoding):
    """Scores that are all equal."""

    name = "flat"
    config = whorl.Config()

    def softmax_scale(self, head_dim: int) -> float | None:
        return 1e-12


def test_equal_scores_give_ln_n() -> None:
    found = entropy({"flat": Flat()}, [1, 10, 500])
    assert found.values["flat"] == pytest.approx(found.uniform, abs=1e-6)
    assert found.uniform == pytest.approx((0.0, math.log(10), math.log(500)))


def test_random_scores_give_ln_n_less_half_their_variance() -> None:
    """Scores of normal q and k, given q, are normal with variance |q|^2 / D, which is about 1."""
    found = entropy({"nope": whorl.NoPE(), "rope": whorl.RoPE(64)}, [4096])
    for values in found.values.values():
        assert values[0] == pytest.approx(math.log(4096) - 0.5, abs=0.08)


def test_a_steep_bias_has_its_own_entropy() -> None:
    """One ALiBi head of slope m without content: a geometric distribution."""
    encoding = whorl.ALiBi(8) + Flat()
    found = entropy({"alibi": encoding}, [4000]).values["alibi"][0]
    wants = []
    for h in range(1, 9):
        r = math.exp(-(2.0**-h))
        weights = [(1 - r) * r**d / (1 - r**4000) for d in range(4000)]
        wants.append(-sum(w * math.log(w) for w in weights if w > 0))
    assert found == pytest.approx(sum(wants) / 8, rel=1e-6)


class Behind(whorl.Encoding):
    """A bias of -1 for each position that a key is behind; none for keys that come later."""

    name = "behind"
    config = whorl.Config()

    def distance_bias(self, distance: Tensor) -> Tensor:
        return -distance.clamp(min=0).double()


def test_queries_are_in_the_last_place() -> None:
    """From the first place no key is behind, and the entropy would be ln n."""
    found = entropy({"behind": Behind() + Flat()}, [40]).values["behind"][0]
    weights = [math.exp(-d) / sum(math.exp(-e) for e in range(40)) for d in range(40)]
    assert found == pytest.approx(-sum(w * math.log(w) for w in weights), rel=1e-6)
    assert found < math.log(40) / 2


def test_embedded_queries_are_in_the_last_place_too() -> None:
    """Only the last position has a vector, so only queries there know one key from the others."""
    learned = whorl.Learned(64, max_length=20).double()
    with torch.no_grad():
        learned.weight.zero_()
        learned.weight[-1] = 1e6
    last = entropy({"learned": learned}, [20]).values["learned"][0]
    with torch.no_grad():
        learned.weight.zero_()
        learned.weight[0] = 1e6
    first = entropy({"learned": learned}, [20]).values["learned"][0]
    assert last < 0.1  # the score of a huge query is huge, so one key gets all
    assert first > 0.3 * math.log(2)  # small queries: half of them agree with the huge key


def test_a_table_that_ends_gives_nan_and_null() -> None:
    found = entropy({"learned": whorl.Learned(64, max_length=32)}, [32, 33])
    assert math.isfinite(found.values["learned"][0])
    assert math.isnan(found.values["learned"][1])
    assert found.to_dict()["values"]["learned"][1] is None


def test_t5_compares_though_it_does_not_divide_scores() -> None:
    """Its bias starts at 0 here, so that it attends as nothing does."""
    t5 = whorl.T5Bias(4)
    with torch.no_grad():
        t5.weight.zero_()
    found = entropy({"t5": t5, "nope": whorl.NoPE()}, [256]).values
    assert found["t5"] == pytest.approx(found["nope"])


@pytest.mark.parametrize("name", whorl.names())
def test_every_encoding(name: str) -> None:
    from whorl.analysis.sizes import make_for_sizes

    made = make_for_sizes(name, num_heads=2, head_dim=8, max_length=40)
    values = entropy({name: made}, [8, 40]).values[name]
    assert 0 < values[0] <= math.log(8) + 1e-9
    assert 0 < values[1] <= math.log(40) + 1e-9


def test_attention_scale_lowers_entropy_by_the_formula() -> None:
    """The variance of scores grows by a^4."""
    found = attention_scale(32, context=512, factors=(1, 4), spread=0.5)
    assert found.lengths == (512, 2048)
    for name, scales in found.scales.items():
        for n, (a, length) in enumerate(zip(scales, found.lengths, strict=True)):
            want = math.log(length) - (0.5 * a**2) ** 2 / 2
            assert found.values[name][n] == pytest.approx(want, abs=0.03), name
    none, yarn, longrope = found.scales.values()
    assert none == (1.0, 1.0)
    assert yarn == pytest.approx((1.0, 0.1 * math.log(4) + 1))
    assert longrope == pytest.approx((1.0, math.sqrt(1 + math.log(4) / math.log(512))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy({}), r"entropy: encodings must have at least one name; got none\."),
        (lambda: entropy({"a": whorl.NoPE()}, []), r"entropy: lengths must be a list of ints; got"),
        (lambda: entropy({"a": whorl.NoPE()}, [0]), r"each of lengths must be an int >= 1; got 0"),
        (
            lambda: attention_scale(8, factors=(float("inf"),)),
            r"from 1 to 1e9; got \(inf,\)",
        ),
        (
            lambda: attention_scale(8, factors=(0.5,)),
            r"factors must be numbers from 1 to 1e9; got \(0\.5,\)",
        ),
        (lambda: attention_scale(8, spread=0), r"spread must be above 0 and below 100; got 0\."),
        (lambda: attention_scale(8, context=1), r"context must be an int >= 2; got 1\."),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl._support.memory.read_available", lambda: 2 * 10**9)
    with pytest.raises(
        ValueError,
        match=r"entropy: length 1,000,000 needs 16\.4 GB of memory, but may use at most"
        r" half of the 2",
    ):
        entropy({"nope": whorl.NoPE()}, [1_000_000])
