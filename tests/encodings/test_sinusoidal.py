"""Sinusoidal: the definition, its properties, its precision, and what it refuses."""

import copy
import itertools
import math
import pickle
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings import Sinusoidal

ARRANGEMENTS = list(
    itertools.product(("interleaved", "concatenated"), ("sin", "cos"), ("paper", "endpoints"))
)


def oracle(
    positions: list[float], dim: int, base: float, order: str, first: str, spacing: str
) -> Tensor:
    """The definition, one number at a time."""
    rows = torch.empty(len(positions), dim, dtype=torch.float64)
    for t, p in enumerate(positions):
        for i in range(dim // 2):
            power = 2 * i / dim if spacing == "paper" else i / (dim / 2 - 1)
            angle = p / base**power
            sine = 2 * i if order == "interleaved" else i
            cosine = 2 * i + 1 if order == "interleaved" else i + dim // 2
            if first == "cos":
                sine, cosine = cosine, sine
            rows[t, sine], rows[t, cosine] = math.sin(angle), math.cos(angle)
    return rows


@pytest.mark.parametrize(("order", "first", "spacing"), ARRANGEMENTS)
@pytest.mark.parametrize(("dim", "base"), [(4, 10_000.0), (10, 100.0), (64, 10_000)])
def test_definition(order: Any, first: Any, spacing: Any, dim: int, base: float) -> None:
    encoding = Sinusoidal(dim, base=base, order=order, first=first, spacing=spacing)
    positions = [0.0, 1.0, 2.0, 17.0, 500.0, 3000.0, 0.25, -3.5]
    want = oracle(positions, dim, base, order, first, spacing)
    got = encoding.table(torch.tensor(positions), dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-11)
    torch.testing.assert_close(encoding.table(torch.tensor(positions)), want.float())
    x = torch.rand(2, len(positions), dim, generator=torch.Generator().manual_seed(0))
    embedded = encoding.embed(x, torch.tensor(positions))
    # The row and the sum, which is below 2, each round by half an ulp.
    torch.testing.assert_close(embedded.double(), x.double() + want, rtol=0, atol=1.2e-7)


def test_narrowest() -> None:
    got = Sinusoidal(2).table(torch.tensor([3]))
    torch.testing.assert_close(got, torch.tensor([[math.sin(3), math.cos(3)]]))


def test_endpoints_are_one_and_one_over_base() -> None:
    encoding = Sinusoidal(8, base=100.0, spacing="endpoints", order="concatenated")
    angles = encoding.table(torch.tensor([0.5]), dtype=torch.float64)[0, :4].asin()
    assert math.isclose(float(angles[0]), 0.5)
    assert math.isclose(float(angles[3]), 0.5 / 100.0)


def shift_matrix(encoding: Sinusoidal, step: float) -> Tensor:
    """M with pe(p + step) = M pe(p) for every p: each pair (sin, cos) turned by step w_i."""
    config, dim = encoding.config, encoding.config.dim
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        power = 2 * i / dim if config.spacing == "paper" else i / (dim / 2 - 1)
        turn = step / config.base**power
        s, c = (2 * i, 2 * i + 1) if config.order == "interleaved" else (i, i + dim // 2)
        if config.first == "cos":
            s, c = c, s
        matrix[s, s] = matrix[c, c] = math.cos(turn)
        matrix[s, c], matrix[c, s] = math.sin(turn), -math.sin(turn)
    return matrix


@given(
    st.sampled_from(ARRANGEMENTS),
    st.lists(st.integers(-5000, 5000), min_size=1, max_size=6),
    st.floats(-50, 50),
)
def test_a_shift_is_one_linear_map_for_all_positions(
    arrangement: tuple[Any, Any, Any], positions: list[int], step: float
) -> None:
    order, first, spacing = arrangement
    encoding = Sinusoidal(12, order=order, first=first, spacing=spacing, table_length=0)
    at = torch.tensor(positions, dtype=torch.float64)
    want = encoding.table(at + step, dtype=torch.float64)
    got = encoding.table(at, dtype=torch.float64) @ shift_matrix(encoding, step).T
    torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@given(st.integers(-3000, 3000), st.integers(-3000, 3000), st.integers(-3000, 3000))
def test_products_of_rows_depend_on_the_difference_only(m: int, n: int, shift: int) -> None:
    at = torch.tensor([m, n, m + shift, n + shift])
    rows = Sinusoidal(16, table_length=0).table(at, dtype=torch.float64)
    assert math.isclose(float(rows[0] @ rows[1]), float(rows[2] @ rows[3]), abs_tol=1e-9)
    assert math.isclose(float(rows[0] @ rows[0]), 8.0, rel_tol=1e-12)


@given(st.integers(0, 40), st.integers(-30, 60), st.integers(0, 9))
def test_results_do_not_depend_on_the_table(length: int, offset: int, known: int) -> None:
    x = torch.randn(1, length, 6)
    far, near = Sinusoidal(6, table_length=200), Sinusoidal(6, table_length=known)
    assert torch.equal(far.embed(x, offset=offset), near.embed(x, offset=offset))
    at = torch.arange(length) + offset
    assert torch.equal(far.table(at), near.table(at))


def test_scale_multiplies_the_row_and_is_rounded_once() -> None:
    at = torch.arange(50)
    got = Sinusoidal(8, scale=0.3, table_length=10).table(at)
    assert torch.equal(got, (0.3 * Sinusoidal(8).table(at, dtype=torch.float64)).float())
    assert torch.equal(got[:10], Sinusoidal(8, scale=0.3).table(at[:10]))
    assert not Sinusoidal(8, scale=0).table(at).any()


def test_orders_differ_by_a_permutation_of_channels() -> None:
    at = torch.arange(20)
    pairs = Sinusoidal(8).table(at).unflatten(-1, (4, 2))
    assert torch.equal(pairs.mT.flatten(-2), Sinusoidal(8, order="concatenated").table(at))
    assert torch.equal(pairs.flip(-1).flatten(-2), Sinusoidal(8, first="cos").table(at))


def test_far_positions_are_within_float32_of_the_truth() -> None:
    positions = [4095, 131_071, 1_000_003, 2**24]
    got = Sinusoidal(64).table(torch.tensor(positions)).double()
    with mpmath.workdps(40):
        for t, p in enumerate(positions):
            for i in range(32):
                angle = p * mpmath.mpf(10_000) ** (-mpmath.mpf(2 * i) / 64)
                assert abs(float(got[t, 2 * i]) - float(mpmath.sin(angle))) < 6e-8
                assert abs(float(got[t, 2 * i + 1]) - float(mpmath.cos(angle))) < 6e-8


def test_float32_mode_is_off_at_far_positions_and_the_default_is_not() -> None:
    at = torch.tensor([131_071])
    exact = Sinusoidal(64).table(at, dtype=torch.float64)
    rough = Sinusoidal(64, precision="float32").table(at).double()
    assert 1e-4 < float((rough - exact).abs().max()) < 0.1


def test_half_precision_embeddings_keep_neighbours_apart() -> None:
    x = torch.zeros(1, 600, 16, dtype=torch.bfloat16)
    got = Sinusoidal(16).embed(x)[0]
    assert torch.equal(got, Sinusoidal(16).table(torch.arange(600)).bfloat16())
    assert len(got.float().unique(dim=0)) == 600


def test_positions_of_every_shape() -> None:
    encoding, x = Sinusoidal(4), torch.zeros(2, 3, 4)
    at = torch.tensor([[0, 1, 2], [7, 8, 9]])
    want = encoding.table(at)
    assert torch.equal(encoding.embed(x, at), want)
    assert torch.equal(encoding.embed(x, offset=torch.tensor([0, 7])), want)
    assert torch.equal(encoding.embed(x[:, :1], offset=torch.tensor([0, 7])), want[:, :1])
    assert torch.equal(encoding.embed(x, at[1:], offset=-7), want[:1].expand(2, 3, 4))
    assert encoding.table(at[:1]).shape == (1, 3, 4)
    assert encoding.table(at[0, :0]).shape == (0, 4)


def test_gradients_reach_positions() -> None:
    encoding = Sinusoidal(6)
    at = torch.tensor([0.0, 1.5, 3.0], dtype=torch.float64, requires_grad=True)
    x = torch.zeros(1, 3, 6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: encoding.embed(x, p), (at,))


def test_the_table_handed_out_is_a_copy() -> None:
    encoding = Sinusoidal(4)
    want = encoding.table(torch.arange(3)).clone()
    encoding.table(torch.arange(3)).zero_()
    assert torch.equal(encoding.table(torch.arange(3)), want)


def test_built_in_any_context_it_serves_any_other() -> None:
    x = torch.randn(1, 5, 4, requires_grad=True)
    with torch.inference_mode():
        made = Sinusoidal(4)
        copied = copy.deepcopy(made)
    with torch.device("meta"):
        hollow = Sinusoidal(4)
    for encoding in (made, copied, hollow, pickle.loads(pickle.dumps(made))):
        assert torch.equal(encoding.embed(x), Sinusoidal(4).embed(x))
        encoding.embed(x).sum().backward()
    assert made.embed(x.to("meta")).shape == x.shape
    assert made.embed(x.to("meta"), torch.arange(5, device="meta")).shape == x.shape


def test_pickles_without_its_table() -> None:
    assert len(pickle.dumps(Sinusoidal(512))) < 10_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's own code
def test_inductor_compiles_it() -> None:
    encoding, x = Sinusoidal(16), torch.randn(2, 9, 16)
    torch._dynamo.reset()
    compiled = torch.compile(encoding.embed, fullgraph=True)
    torch.testing.assert_close(compiled(x, offset=3), encoding.embed(x, offset=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 7}, r"dim must be even and at least 2, because every frequency .*got 7\. Make"),
        ({"dim": 0}, r"dim must be even and at least 2.*got 0"),
        ({"dim": 8.0}, r"dim must be an int >= 0; got 8\.0"),
        ({"order": "half"}, r"order must be 'interleaved' or 'concatenated'; got 'half'"),
        ({"first": "tan"}, r"first must be 'sin' or 'cos'; got 'tan'"),
        ({"spacing": "log"}, r"spacing must be 'paper' or 'endpoints'; got 'log'"),
        ({"precision": "half"}, r"precision must be 'float64' or 'float32'; got 'half'"),
        ({"dim": 2, "spacing": "endpoints"}, r"needs dim of at least 4.*got 2\. Use spacing='pap"),
        ({"base": 0}, r"base must be a finite number above 0; got 0"),
        ({"base": math.inf}, r"base must be a finite number above 0; got inf"),
        ({"base": 10**400}, r"base must be a finite number above 0; got 1000"),
        ({"base": "10000"}, r"base must be a finite number above 0; got '10000'"),
        ({"scale": math.nan}, r"scale must be a finite number; got nan"),
        ({"scale": True}, r"scale must be a finite number; got True"),
        ({"table_length": -1}, r"table_length must be an int >= 0; got -1"),
    ],
)
def test_constructor_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.make("sinusoidal", **{"dim": 8, **options})


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        ([1.0], TypeError, r"Sinusoidal: x must be a tensor \[B, T, E\]; got list"),
        (torch.zeros(1, 3, 8).long(), TypeError, r"got torch\.int64\. Pass token embeddings, not"),
        (torch.zeros(3, 8), ValueError, r"E = dim = 8; got \[3, 8\]\. Give a single sequence a"),
        (torch.zeros(1, 3, 6), ValueError, r"\[B, T, E\] with E = dim = 8; got \[1, 3, 6\]"),
    ],
)
def test_embed_refuses(x: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Sinusoidal(8).embed(x)


def test_positions_are_refused_in_its_name() -> None:
    x = torch.zeros(2, 3, 8)
    with pytest.raises(ValueError, match=r"Sinusoidal: positions must be \[T\] or \[B, T\] with T"):
        Sinusoidal(8).embed(x, torch.arange(4))
    with pytest.raises(TypeError, match=r"Sinusoidal: positions must be integers, float32 or"):
        Sinusoidal(8).embed(x, torch.arange(3).half())


def test_table_refuses() -> None:
    encoding: Any = Sinusoidal(8)
    for wrong in (5, torch.tensor(5), torch.zeros(1, 1, 1)):
        with pytest.raises(ValueError, match=r"table: positions must be a tensor \[T\] or \[B, T"):
            encoding.table(wrong)
    with pytest.raises(ValueError, match=r"dtype must be torch\.float32 or torch\.float64; got to"):
        encoding.table(torch.arange(3), dtype=torch.float16)
