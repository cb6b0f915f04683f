"""Learned: the table, its initialisation, its resizing, and the positions it refuses."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings import Learned, Sinusoidal

MODES: list[Any] = ["linear", "cubic", "hierarchical"]


def filled(count: int, dim: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Learned:
    encoding = Learned(dim, max_length=count).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        encoding.weight.copy_(torch.randn(count, dim, generator=generator, dtype=torch.float64))
    return encoding


@given(st.data())
def test_definition(data: Any) -> None:
    batch, length = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 5))
    row = st.lists(st.integers(0, 8), min_size=length, max_size=length)
    at = data.draw(st.lists(row, min_size=batch, max_size=batch))
    encoding, x = filled(9, 4, torch.float64), torch.randn(batch, length, 4, dtype=torch.float64)
    want = x.clone()
    for b in range(batch):
        for t in range(length):
            want[b, t] += encoding.weight[at[b][t]].detach()
    positions = torch.tensor(at, dtype=torch.int64).reshape(batch, length)
    assert torch.equal(encoding.embed(x, positions), want)


def test_positions_of_every_shape() -> None:
    encoding, x = filled(12, 4), torch.zeros(2, 3, 4)
    at = torch.tensor([[0, 1, 2], [9, 10, 11]])
    want = encoding.weight[at]
    assert torch.equal(encoding.embed(x, at), want)
    assert torch.equal(encoding.embed(x, at.to(torch.uint8)), want)
    assert torch.equal(encoding.embed(x, at[0], offset=9), want[1:].expand(2, 3, 4))
    assert torch.equal(encoding.embed(x, offset=torch.tensor([0, 9])), want)
    assert torch.equal(encoding.embed(x[:, :1], offset=torch.tensor([0, 9])), want[:, :1])
    assert torch.equal(encoding.embed(x, offset=9), want[1:].expand(2, 3, 4))
    assert encoding.embed(x[:, :0], offset=50).shape == (2, 0, 4)


def test_rows_that_are_used_get_the_gradient() -> None:
    encoding = filled(6, 2)
    encoding.embed(torch.zeros(2, 3, 2), torch.tensor([[0, 1, 1], [1, 5, 0]])).sum().backward()
    assert encoding.weight.grad is not None
    assert encoding.weight.grad[:, 0].tolist() == [2, 3, 0, 0, 0, 1]


# Initialisation


def test_normal_and_truncated_normal() -> None:
    torch.manual_seed(0)
    normal = Learned(64, max_length=2000).weight.detach()
    assert abs(float(normal.mean())) < 3e-4
    assert math.isclose(float(normal.std()), 0.02, rel_tol=0.01)
    assert float(normal.abs().max()) > 0.06
    cut = Learned(64, max_length=2000, init="truncated_normal", std=0.5).weight.detach()
    assert abs(float(cut.mean())) < 6e-3
    assert 0.95 < float(cut.abs().max()) <= 1.0
    assert math.isclose(float(cut.std()), 0.5 * 0.8796, rel_tol=0.01)  # of a normal cut at 2 std


def test_zeros_and_sinusoidal() -> None:
    assert not Learned(4, max_length=3, init="zeros").weight.any()
    rows = Learned(6, max_length=50, init="sinusoidal").weight.detach()
    want = Sinusoidal(6).table(torch.arange(50)) * 0.02 * math.sqrt(2)
    torch.testing.assert_close(rows, want)
    size = rows.double().square().mean(-1).sqrt()
    torch.testing.assert_close(size, torch.full((50,), 0.02, dtype=torch.float64))
    plain = Learned(6, max_length=50, init="sinusoidal", std=2**-0.5).weight.detach()
    torch.testing.assert_close(plain, Sinusoidal(6).table(torch.arange(50)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("init", ["normal", "truncated_normal", "sinusoidal", "zeros"])
def test_reset_after_to_empty(init: Any) -> None:
    with torch.device("meta"):
        hollow = Learned(4, max_length=5, init=init)
    assert hollow.weight.is_meta
    filled = hollow.to_empty(device="cpu")
    torch.manual_seed(3)
    filled.reset_parameters()
    torch.manual_seed(3)
    assert torch.equal(filled.weight, Learned(4, max_length=5, init=init).weight)


# Resizing


def slow_linear(rows: Tensor, length: int) -> Tensor:
    n, new = rows.shape[0], torch.empty(length, rows.shape[1], dtype=torch.float64)
    for t in range(length):
        at = t * (n - 1) / (length - 1) if length > 1 else 0.0
        left = min(int(at), n - 1)
        right, part = min(left + 1, n - 1), at - left
        new[t] = (1 - part) * rows[left] + part * rows[right]
    return new


def slow_cubic(rows: Tensor, length: int, a: float = -0.75) -> Tensor:
    def kernel(d: float) -> float:
        d = abs(d)
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    n, new = rows.shape[0], torch.zeros(length, rows.shape[1], dtype=torch.float64)
    for t in range(length):
        at = t * (n - 1) / (length - 1) if length > 1 else 0.0
        for i in range(int(at) - 1, int(at) + 3):
            new[t] += kernel(at - i) * rows[min(max(i, 0), n - 1)]
    return new


def slow_hierarchical(rows: Tensor, length: int, a: float) -> Tensor:
    n = rows.shape[0]
    u = [(rows[i] - a * rows[0]) / (1 - a) for i in range(n)]
    return torch.stack([a * u[t // n] + (1 - a) * u[t % n] for t in range(length)])


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from(["linear", "cubic"]))
def test_interpolation(count: int, length: int, mode: Any) -> None:
    encoding = filled(count, 3, torch.float64)
    rows = encoding.weight.detach()
    got = encoding.resize(length, mode).weight.detach()
    slow = slow_linear if mode == "linear" else slow_cubic
    torch.testing.assert_close(got, slow(rows, length), rtol=0, atol=1e-12)
    torch.testing.assert_close(got[0], rows[0], rtol=0, atol=1e-14)
    if length > 1:
        torch.testing.assert_close(got[-1], rows[-1], rtol=0, atol=1e-14)


@given(st.integers(2, 7), st.data(), st.sampled_from([0.1, 0.4, 0.9]))
def test_hierarchical(count: int, data: Any, alpha: float) -> None:
    length = data.draw(st.integers(1, count**2))
    encoding = filled(count, 3, torch.float64)
    rows = encoding.weight.detach()
    got = encoding.resize(length, "hierarchical", alpha=alpha).weight.detach()
    torch.testing.assert_close(got, slow_hierarchical(rows, length, alpha), rtol=0, atol=1e-12)
    assert torch.equal(got[:count], rows[:length])
    assert len(got.unique(dim=0)) == length


@pytest.mark.parametrize("mode", MODES)
def test_a_model_of_512_positions_goes_to_2048(mode: Any) -> None:
    encoding = filled(512, 8)
    longer = encoding.resize(2048, mode)
    assert repr(longer) == "Learned(8, max_length=2048)"
    x = torch.randn(2, 2048, 8)
    embedded = longer.embed(x)
    assert torch.isfinite(embedded).all()
    kept = torch.equal(embedded[:, :512], encoding.embed(x[:, :512]))
    assert kept == (mode == "hierarchical")
    if mode != "hierarchical":
        assert torch.equal(longer.weight[0], encoding.weight[0])
        assert torch.equal(longer.weight[-1], encoding.weight[-1])


@pytest.mark.parametrize("mode", MODES)
def test_same_length_and_equal_rows_stay(mode: Any) -> None:
    encoding = filled(7, 3)
    assert torch.equal(encoding.resize(7, mode).weight, encoding.weight)
    with torch.no_grad():
        encoding.weight.copy_(encoding.weight[0].expand(7, 3))
    longer = encoding.resize(30, mode).weight
    torch.testing.assert_close(longer, encoding.weight[0].expand(30, 3))


def test_interpolation_is_that_of_pytorch_in_float32() -> None:
    encoding = filled(16, 5)
    line = encoding.weight.detach().T[None]
    want = F.interpolate(line, 61, mode="linear", align_corners=True)[0].T
    torch.testing.assert_close(encoding.resize(61).weight.detach(), want, rtol=0, atol=1e-5)
    want = F.interpolate(line[..., None], (61, 1), mode="bicubic", align_corners=True)[0, ..., 0].T
    got = encoding.resize(61, "cubic").weight.detach()
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_what_carries_over(mode: Any, dtype: torch.dtype) -> None:
    encoding = filled(4, 3, dtype).eval()
    encoding.weight.requires_grad_(False)
    before, state = encoding.weight.clone(), torch.get_rng_state()
    longer = encoding.resize(10, mode)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(encoding.weight, before)
    assert isinstance(longer.weight, torch.nn.Parameter)
    assert longer.weight.shape == (10, 3)
    assert longer.weight.is_contiguous()
    assert longer.weight.dtype == dtype
    assert not longer.weight.requires_grad
    assert not longer.training
    trained = filled(4, 3, dtype).resize(10, mode)
    assert trained.training
    assert trained.weight.requires_grad
    assert trained.weight.is_leaf
    assert trained.weight.data_ptr() != encoding.weight.data_ptr()
    wide = filled(4, 3, dtype).double().resize(10, mode).weight
    assert torch.equal(longer.weight, wide.to(dtype))


def test_resize_keeps_options_and_works_on_meta() -> None:
    with torch.device("meta"):
        hollow = Learned(4, max_length=5, init="truncated_normal", std=1.0).bfloat16()
    longer = hollow.resize(9, "cubic")
    assert longer.config == Learned(4, max_length=9, init="truncated_normal", std=1.0).config
    assert longer.weight.is_meta
    assert longer.weight.shape == (9, 4)
    assert longer.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), r"Learned\.resize: new_length must be an int >= 1; got 0"),
        ((2.0,), r"new_length must be an int >= 1; got 2\.0"),
        ((8, "bicubic"), r"mode must be 'linear' or 'cubic' or 'hierarchical'; got 'bicubic'"),
        ((26, "hierarchical"), r"takes 5 rows to 5\^2 = 25 at most.*got 26\. Use mode='linear' or"),
    ],
)
def test_resize_refuses(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled(5, 2).resize(*arguments)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0, -0.1, math.nan, 1, "0.4"])
def test_resize_refuses_alpha(alpha: Any) -> None:
    with pytest.raises(ValueError, match=r"alpha must be a float between 0 and 1 other than 0\.5,"):
        filled(5, 2).resize(9, "hierarchical", alpha=alpha)


# Refusals

PAST = (
    r"Learned: positions must lie in 0 \.\. 4, because the table has max_length = 5 rows; got"
    r" 3 to 5; make the table longer with resize\(6, \.\.\.\), or train with a larger max_length"
)


def test_positions_past_the_table() -> None:
    encoding, x = filled(5, 2), torch.zeros(1, 3, 2)
    with pytest.raises(ValueError, match=PAST):
        encoding.embed(x, offset=3)
    with pytest.raises(ValueError, match=PAST):
        encoding.embed(x, torch.tensor([3, 5, 4]))
    with pytest.raises(ValueError, match=PAST):
        encoding.embed(x, offset=torch.tensor([3]))
    with pytest.raises(ValueError, match=r"got 0 to 5; make the table longer with resize\(6, "):
        encoding.embed(torch.zeros(1, 6, 2))


def test_negative_positions() -> None:
    encoding, x = filled(5, 2), torch.zeros(1, 3, 2)
    arguments: list[Any] = [{"offset": -1}, {"positions": torch.tensor([-1, 0, 1])}]
    for wrong in arguments:
        with pytest.raises(ValueError, match=r"0 \.\. 4.*got -1 to 1; count them from 0"):
            encoding.embed(x, **wrong)


def test_fractions() -> None:
    with pytest.raises(TypeError, match=r"must be integers, because each is a row.*got torch\.fl"):
        filled(5, 2).embed(torch.zeros(1, 2, 2), torch.tensor([0.0, 1.0]))


def test_another_device() -> None:
    with pytest.raises(ValueError, match=r"the table is on cpu but x is on meta; use \.to\('meta'"):
        filled(5, 2).embed(torch.zeros(1, 2, 2, device="meta"))


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's own code
def test_compiled_code_never_reads_a_wrong_row(backend: str) -> None:
    encoding, x = filled(5, 2), torch.zeros(1, 3, 2)
    torch._dynamo.reset()
    compiled = torch.compile(encoding.embed, fullgraph=True, dynamic=True, backend=backend)
    good = torch.tensor([4, 0, 2])
    assert torch.equal(compiled(x, good), encoding.embed(x, good))
    for wrong in ([0, 5, 1], [0, -1, 1]):
        with pytest.raises((IndexError, RuntimeError), match=r"index out of"):
            compiled(x, torch.tensor(wrong))
    assert torch.equal(compiled(x, offset=2), encoding.embed(x, offset=2))
    for far in (3, -1):
        with pytest.raises((IndexError, RuntimeError), match=r"index out of"):
            compiled(x, offset=far)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, r"Learned: dim must be an int >= 1; got 0"),
        ({"max_length": 2.5}, r"Learned: max_length must be an int >= 1; got 2\.5"),
        ({"init": "ones"}, r"init must be 'normal' or 'truncated_normal' or 'sinusoidal' or 'zer"),
        ({"init": "sinusoidal", "dim": 3}, r"needs an even dim.*got 3\. Use init='normal'"),
        ({"std": 0.0}, r"std must be a finite number above 0; got 0\.0\. Rows of zeros are init="),
        ({"std": math.inf}, r"std must be a finite number above 0; got inf"),
        ({"std": "small"}, r"std must be a finite number above 0; got 'small'"),
    ],
)
def test_constructor_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.make("learned", **{"dim": 4, "max_length": 8, **options})


def test_embed_refuses_in_its_name() -> None:
    with pytest.raises(ValueError, match=r"Learned: x must be token embeddings \[B, T, E\] with E"):
        filled(5, 2).embed(torch.zeros(1, 3, 4))
