"""Kerple: its two kernels, bounds that hold whatever training does, gradients at distance 0."""

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.encodings import ALiBi, Kerple

from .distances import (
    check_dtypes,
    check_halves_refused,
    check_no_distance,
    check_vector_serves_all,
)

KINDS: tuple[Literal["log", "power"], ...] = ("log", "power")
RATES = st.floats(0.01, 1.99)


def kerple(kind: Literal["log", "power"], r1: list[float], r2: list[float]) -> Kerple:
    made = Kerple(len(r1), kind=kind).double()
    made.set_rates(r1, r2)
    return made


@pytest.mark.parametrize("kind", KINDS)
@given(
    rates=st.lists(st.tuples(RATES, RATES), min_size=1, max_size=3),
    distances=st.lists(st.floats(-1e5, 1e5) | st.integers(-100, 100), max_size=5),
)
def test_bias_is_the_definition(
    kind: Literal["log", "power"], rates: list[tuple[float, float]], distances: list[float]
) -> None:
    made = kerple(kind, [r for r, _ in rates], [r for _, r in rates])
    bias = made.distance_bias(torch.tensor(distances, dtype=torch.float64)).detach()
    assert bias.shape == (len(rates), len(distances))
    for h, (r1, r2) in enumerate(rates):
        for n, d in enumerate(distances):
            want = -r1 * (math.log(1 + r2 * abs(d)) if kind == "log" else abs(d) ** r2)
            assert float(bias[h, n]) == pytest.approx(want, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.lists(st.floats(-60.0, 60.0), min_size=4, max_size=4))
def test_bounds_hold_by_construction(kind: Literal["log", "power"], raw: list[float]) -> None:
    made = Kerple(2, kind=kind)
    with torch.no_grad():
        made.raw_r1.copy_(torch.tensor(raw[:2]))
        made.raw_r2.copy_(torch.tensor(raw[2:]))
    r1, r2 = made.rates()
    assert bool((r1 > 0).all())
    assert bool((r2 > 0).all())
    assert kind == "log" or bool((r2 <= 2).all())
    bias = made.distance_bias(torch.arange(-20, 20))
    assert bool(bias.isfinite().all())
    assert not bool((bias > 0).any())
    falling = bias[:, 20:].diff()  # away from the query the bias never rises
    assert not bool((falling > 0).any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", [-3.0, 0.0, 3.0])
def test_gradients_are_finite_at_distance_0(kind: Literal["log", "power"], raw: float) -> None:
    made = Kerple(2, kind=kind)
    for parameter in made.parameters():
        torch.nn.init.constant_(parameter, raw)
    distance = torch.tensor([0.0, -0.0, 0.5, -3.0], requires_grad=True)
    made.distance_bias(distance).sum().backward()
    for t in (distance, made.raw_r1, made.raw_r2):
        assert t.grad is not None
        assert bool(t.grad.isfinite().all())
    assert distance.grad is not None
    assert distance.grad[:2].tolist() == [0.0, 0.0]
    assert distance.grad[2] < 0 < distance.grad[3]


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_with_repeated_and_fractional_distances(kind: Literal["log", "power"]) -> None:
    made = Kerple(2, kind=kind).double()
    distance = torch.tensor([0.4, -0.4, 0.4, 7.0], dtype=torch.float64, requires_grad=True)
    inputs = (distance, made.raw_r1, made.raw_r2)
    assert torch.autograd.gradcheck(lambda d, *_: made.distance_bias(d), inputs)


def test_power_at_1_is_alibi() -> None:
    alibi = ALiBi(6)
    made = Kerple(6, kind="power").double()
    made.set_rates(alibi.slopes(), torch.ones(6))
    distance = torch.arange(-40, 400)
    got, want = made.distance_bias(distance), alibi.distance_bias(distance.double())
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("kind", "widths"), [("log", (2.0, 1.0)), ("power", (1.0, 2.0))])
def test_initialisation_is_that_of_the_released_code(
    kind: Literal["log", "power"], widths: tuple[float, float]
) -> None:
    torch.manual_seed(0)
    rates = Kerple(20_000, kind=kind).rates()
    for r, width in zip(rates, widths, strict=True):
        assert float(r.detach().min()) == pytest.approx(0.01, rel=1e-5)
        assert float(r.detach().max()) <= width * (1 + 1e-6)
        uniform = torch.linspace(0.0, width, 11, dtype=torch.float64)[1:-1]
        deciles = r.detach().quantile(torch.linspace(0.1, 0.9, 9, dtype=torch.float64))
        torch.testing.assert_close(deciles, uniform, rtol=0, atol=0.02 * width)


@pytest.mark.parametrize("kind", KINDS)
def test_reset_draws_afresh(kind: Literal["log", "power"]) -> None:
    with torch.device("meta"):
        made = Kerple(4, kind=kind)
    made.to_empty(device="cpu")
    for parameter in made.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    made.reset_parameters()
    assert bool(made.distance_bias(torch.arange(9)).isfinite().all())


def test_set_rates_keeps_any_shape_and_an_exponent_of_2_trainable() -> None:
    made = Kerple(2, kind="power")
    made.set_rates(torch.tensor([[[0.5]], [[0.01]]]), torch.tensor([[[2.0]], [[0.01]]]))
    r1, r2 = made.rates()
    torch.testing.assert_close(r1.tolist(), [0.5, 0.01], rtol=1e-6, atol=0)
    torch.testing.assert_close(r2.tolist(), [2.0, 0.01], rtol=1e-6, atol=0)
    assert bool(made.raw_r2.isfinite().all())


@pytest.mark.parametrize(
    ("kind", "r1", "r2", "message"),
    [
        ("log", [1.0], [1.0, 1.0], r"set_rates: r1 must hold 2 numbers, one per head; got \[1\]"),
        ("log", [1.0, 0.0], [1.0, 1.0], r"r1 must be finite and above 0, else.*got \[1\.0, 0\.0\]"),
        ("log", [1.0, 1.0], [-1.0, 1.0], r"r2 must be finite and above 0, else the bias is no ker"),
        ("log", [1.0, math.inf], [1.0, 1.0], r"r1 must be finite and above 0.*inf"),
        ("power", [1.0, 1.0], [1.0, 2.5], r"r2 must be above 0 and at most 2.*got \[1\.0, 2\.5\]"),
        ("power", [1.0, 1.0], [1.0, math.nan], r"r2 must be above 0 and at most 2.*nan"),
    ],
)
def test_bad_rates(
    kind: Literal["log", "power"], r1: list[float], r2: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Kerple(2, kind=kind).set_rates(r1, r2)


@pytest.mark.parametrize("kind", KINDS)
def test_distances(kind: Literal["log", "power"]) -> None:
    check_vector_serves_all(Kerple(3, kind=kind), 7, 4)
    check_dtypes(Kerple(3, kind=kind))
    check_no_distance(Kerple(3, kind=kind))
    check_halves_refused(Kerple(3, kind=kind))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"Kerple: num_heads must be an int >= 1; got 0\."),
        ({"kind": "linear"}, r"Kerple: kind must be 'log' or 'power'; got 'linear'\."),
    ],
)
def test_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kerple(**{"num_heads": 4, **options})
