"""Bad input: every message says what must hold, what came, what to do; nothing is half-written."""

import math
from typing import Any

import pytest
import torch

import whorl

X = torch.zeros(2, 3, 5, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"head_dim": 63},
            r"head_dim must be even and at least 2, because channels rotate in pair",
        ),
        ({"head_dim": 0}, r"head_dim must be an int >= 1; got 0"),
        ({"head_dim": 8.0}, r"head_dim must be an int >= 1; got 8\.0"),
        ({"rotary_dim": 3}, r"rotary_dim must be even and at least 2.*got 3"),
        ({"rotary_dim": 0}, r"rotary_dim must be even and at least 2.*got 0"),
        (
            {"rotary_dim": 10},
            r"rotary_start \+ rotary_dim must be at most head_dim; got 0 \+ 10 > 8",
        ),
        ({"rotary_dim": 6, "rotary_start": 4}, r"got 4 \+ 6 > 8\. Lower one of them"),
        ({"rotary_start": -1}, r"rotary_start must be an int >= 0; got -1"),
        ({"rotary_start": 3}, r"rotary_dim must be even.*got 5"),
        ({"table_length": -1}, r"table_length must be an int >= 0"),
        ({"base": -1.0}, r"base must be a finite number above 0; got -1\.0"),
        ({"base": math.nan}, r"base must be a finite number above 0; got nan"),
        ({"base": math.inf}, r"base must be a finite number above 0; got inf"),
        ({"base": "10000"}, r"base must be a finite number above 0; got '10000'"),
        ({"layout": "neox"}, r"layout must be 'half' or 'interleaved'; got 'neox'"),
        ({"out_layout": "neox"}, r"out_layout must be 'half' or 'interleaved' or None; got 'neox'"),
        ({"frequencies": "free"}, r"frequencies must be 'fixed' or 'trained'; got 'free'"),
        ({"precision": "bfloat16"}, r"precision must be 'float64' or 'float32'"),
        ({"table": "huge"}, r"table must be 'hybrid' or 'precomputed' or 'on_the_fly'; got 'huge'"),
        ({"impl": "cuda"}, r"impl must be 'auto' or 'native' or 'reference'; got 'cuda'"),
        ({"base": 10**400}, r"base must be a finite number above 0"),
        ({"inv_freq": 1.0}, r"inv_freq must be numbers, one for each pair; got 1\.0"),
        (
            {"scaling": {"rope_type": "linear"}},
            r"needs a 'name', one of dynamic_linear, dynamic_ntk, ",
        ),
        (
            {"inv_freq": [1.0, 2.0]},
            r"inv_freq must hold 4 finite frequencies, one for each pair; got",
        ),
        ({"inv_freq": [1.0, 2.0, 3.0, math.nan]}, r"inv_freq must hold 4 finite frequencies"),
        (
            {"scaling": {"name": "liner", "factor": 2}},
            r"unknown scaling 'liner'; did you mean 'lin",
        ),
    ],
)
def test_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.RoPE(**{"head_dim": 8, **options})


def test_scaling_of_another_kind() -> None:
    with pytest.raises(TypeError, match=r"scaling must be a whorl scaling such as Linear\(factor="):
        whorl.RoPE(8, scaling=4.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("positions", "kind", "message"),
    [
        (torch.arange(4), ValueError, r"positions must be \[T\] or \[B, T\] with T = 5; got \[4\]"),
        (torch.zeros(1, 2, 5, dtype=torch.long), ValueError, r"with T = 5; got \[1, 2, 5\]"),
        (
            torch.zeros(3, 5, dtype=torch.long),
            ValueError,
            r"positions has 3 rows but the batch has 2",
        ),
        (
            torch.arange(5).half(),
            TypeError,
            r"half precision merges neighbours.*got torch\.float16",
        ),
        (torch.arange(5).bfloat16(), TypeError, r"Use positions\.long\(\) or positions\.float\(\)"),
        (torch.ones(5, dtype=torch.bool), TypeError, r"must be integers, float32 or float64; got"),
        ([0, 1, 2, 3, 4], TypeError, r"positions must be a tensor; got list\. Use torch\.tensor"),
        (
            torch.arange(5, device="meta"),
            ValueError,
            r"positions is on meta but x is on cpu; use po",
        ),
    ],
)
def test_positions(positions: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        whorl.RoPE(8).rotate(X, positions)


@pytest.mark.parametrize(
    ("offset", "kind", "message"),
    [
        (None, TypeError, r"offset must be an int or one int per batch row; got None"),
        (1.5, TypeError, r"offset must be an int or one int per batch row; got 1\.5"),
        ("3", TypeError, r"offset must be an int or one int per batch row; got '3'"),
        (True, TypeError, r"offset must be an int or one int per batch row; got True"),
        (torch.arange(3), ValueError, r"integers \[B\], one for each of the 2 batch rows; got"),
        (torch.ones(2), ValueError, r"one for each of the 2 batch rows; got torch\.float32 \[2\]"),
        (torch.arange(2, device="meta"), ValueError, r"offset is on meta but x is on cpu"),
    ],
)
def test_offset(offset: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        whorl.RoPE(8).rotate(X, offset=offset)


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (X[0], ValueError, r"x must be \[B, H, T, D\] with D = head_dim = 8; got \[3, 5, 8\]"),
        (torch.zeros(1, 1, 1, 6), ValueError, r"D = head_dim = 8; got \[1, 1, 1, 6\]\. Reshape a"),
        (X.long(), TypeError, r"must be float32, float64, bfloat16 or float16.*got torch\.int64"),
        (X.to(torch.complex64), TypeError, r"got torch\.complex64\. Convert it with x\.float\(\)"),
        ("x", TypeError, r"x must be a tensor \[B, H, T, D\]; got str"),
    ],
)
def test_input(x: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        whorl.RoPE(8).rotate(x)


@pytest.mark.filterwarnings("ignore::UserWarning")  # that nested tensors are a prototype
@pytest.mark.parametrize("offset", [0, torch.tensor([1])])
def test_input_that_is_not_dense(offset: Any) -> None:
    for x, kind in (
        (torch.nested.nested_tensor([X[0]]), "a nested tensor"),
        (X[:1].to_sparse(), "torch.sparse_coo"),
        (X[:1].to_mkldnn(), "torch._mkldnn"),
    ):
        with pytest.raises(TypeError, match=f"must be an ordinary dense tensor; got {kind}"):
            whorl.RoPE(8).rotate(x, offset=offset)


@pytest.mark.parametrize(
    ("k", "kind", "message"),
    [
        (
            torch.zeros(1, 3, 5, 8),
            ValueError,
            r"q and k must have the same batch size; got 2 and 1",
        ),
        (torch.zeros(2, 3, 9, 8), ValueError, r"q has 5 tokens and k has 9.*pass key_positions="),
        (torch.zeros(2, 3, 5, 8, device="meta"), ValueError, r"q is on cpu but k is on meta; move"),
        (torch.zeros(2, 3, 5, 8).half(), TypeError, r"q is torch\.float32 but k is torch\.float16"),
    ],
)
def test_pair(k: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        whorl.RoPE(8)(X, k)


@pytest.mark.parametrize(
    ("out", "kind", "message"),
    [
        (
            torch.zeros(2, 3, 5, 6),
            ValueError,
            r"out must have the shape and dtype of x, torch\.floa",
        ),
        (X.double(), ValueError, r"out must have the shape and dtype of x.*got torch\.float64"),
        ("out", ValueError, r"out must have the shape and dtype of x.*got str"),
        (
            torch.zeros(1, 1, 1, 8).expand(2, 3, 5, 8),
            ValueError,
            r"expanded tensor.*\.clone\(\) fir",
        ),
        (X.to("meta"), ValueError, r"out is on meta but x is on cpu"),
        (X.clone().requires_grad_(), ValueError, r"where a gradient is needed; call it under"),
    ],
)
def test_out(out: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        whorl.RoPE(8).rotate(X, out=out)


def test_out_of_a_pair_is_a_pair() -> None:
    with pytest.raises(ValueError, match=r"out must be a pair of tensors, one for q and one for k"):
        whorl.RoPE(8)(X, X, out=X.clone())
    with pytest.raises(ValueError, match=r"out must have the shape and dtype of x"):
        whorl.RoPE(8)(X, X, out=(X.clone(), X.double()))


def test_queries_and_keys_need_memory_of_their_own() -> None:
    x, out = X.clone(), X.clone()
    with pytest.raises(ValueError, match=r"q and k would be written to memory that they share"):
        whorl.RoPE(8)(x, x, out=(out, out[:]))
    with pytest.raises(ValueError, match=r"would be written to memory that they share"):
        whorl.RoPE(8).forward_(x, x)
    with pytest.raises(ValueError, match=r"would be written to memory that they share"):
        whorl.RoPE(8).forward_(x[:, :2], x[:, 1:])
    assert torch.equal(x, X)


def test_trained_frequencies_are_not_written_through() -> None:
    rope, x = whorl.RoPE(8, frequencies="trained"), torch.ones(1, 1, 3, 8)
    with pytest.raises(ValueError, match=r"where a gradient is needed"):
        rope.rotate_(x)
    assert torch.equal(x, torch.ones_like(x))
    with torch.no_grad():
        rope.rotate_(x)


def test_in_place_is_refused_where_a_gradient_is_needed() -> None:
    x = X.clone().requires_grad_()
    with pytest.raises(ValueError, match=r"cannot write into a tensor where a gradient is needed"):
        whorl.RoPE(8).rotate_(x * 1)
    with torch.no_grad():
        whorl.RoPE(8).rotate_(x)


def test_precomputed_tables_have_an_end() -> None:
    rope = whorl.RoPE(8, table="precomputed", table_length=4)
    message = (
        r"positions reach from 0 to 4, but the precomputed table holds 0 to 3; raise table_leng"
    )
    with pytest.raises(ValueError, match=message):
        rope.rotate(X)
    with pytest.raises(ValueError, match=r"reach from -1 to 3"):
        rope.rotate(X, torch.tensor([0, 1, 2, 3, -1]))
    with pytest.raises(ValueError, match=r"reach from 0\.0 to 3\.5"):
        rope.rotate(X, torch.tensor([0, 1, 2, 3, 3.5]))
    with pytest.raises(ValueError, match=r"RoPE\.tables: positions reach from 2 to 4"):
        rope.tables(torch.tensor([2, 4]))


@pytest.mark.parametrize(
    ("context_length", "message"),
    [
        (0, r"context_length must be at least 1; got 0"),
        (2.5, r"context_length must be an int, or a tensor \[B\] with one per row; got 2\.5"),
        ("9", r"context_length must be an int, or a tensor \[B\] with one per row; got '9'"),
        (
            [4, 5],
            r"context_length must be an int, or a tensor \[B\] with one per row; got \[4, 5\]",
        ),
        (torch.tensor([9, -7]), r"context_length must be at least 1; got -7"),
        (torch.ones(2, 2), r"context_length must be an int, or a tensor \[B\]"),
        (torch.ones(3, dtype=torch.long), r"context_length has 3 rows but the batch has 2"),
    ],
)
def test_context_length(context_length: Any, message: str) -> None:
    for scaling in (whorl.DynamicNTK(2.0, 4), None):
        with pytest.raises(ValueError, match=message):
            whorl.RoPE(8, scaling=scaling).rotate(X, context_length=context_length)


def test_shift_and_retune() -> None:
    rope = whorl.RoPE(8, scaling=whorl.DynamicNTK(2.0, 4))
    with pytest.raises(
        ValueError, match=r"RoPE\.shift: .* follows the current length; pass context_"
    ):
        rope.shift(X, 3)
    with pytest.raises(
        ValueError, match=r"delta must be an int, \[B\] or \[B, S\], here \[2\] or \[2, 5\]"
    ):
        whorl.RoPE(8).shift(X, torch.zeros(3, dtype=torch.long))
    with pytest.raises(
        TypeError, match=r"RoPE\.shift: positions must be integers, float32 or float64"
    ):
        whorl.RoPE(8).shift(X, torch.zeros(2).half())
    with pytest.raises(
        TypeError, match=r"RoPE\.shift: delta must be a number or a tensor; got True"
    ):
        whorl.RoPE(8).shift(X, True)
    nothing: Any = None
    with pytest.raises(TypeError, match=r"old must be Frequencies, as rope\.frequencies"):
        rope.retune(X, old=nothing, new=rope.frequencies())
    short = whorl.Frequencies(torch.ones(3))
    message = r"new\.inv_freq must be \[R/2\] or \[B, R/2\], here \[4\] or \[2, 4\]; got \[3\]"
    with pytest.raises(ValueError, match=message):
        rope.retune(X, old=rope.frequencies(), new=short)
    with pytest.raises(
        ValueError, match=r"RoPE\.tables: positions must be a tensor \[T\] or \[B, T\]"
    ):
        rope.tables(5)  # type: ignore[arg-type]


def test_nothing_is_written_when_an_error_is_raised() -> None:
    q, k = torch.ones(2, 3, 5, 8), torch.ones(2, 3, 5, 8)
    rope = whorl.RoPE(8)
    bad_keys = (torch.arange(4), torch.arange(5).half(), torch.arange(5, device="meta"))
    for key_positions in bad_keys:
        with pytest.raises((TypeError, ValueError)):
            rope.forward_(q, k, None, key_positions)
    with pytest.raises(ValueError, match="expanded"):
        rope.forward_(q, torch.ones(1, 1, 1, 8).expand(2, 3, 5, 8))
    assert torch.equal(q, torch.ones_like(q))
    assert torch.equal(k, torch.ones_like(k))


def test_native_by_name_refuses_where_the_library_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setattr("whorl.kernels.native._problem", "the C library was not built")
    with pytest.raises(
        ValueError, match=r"impl='native' cannot run: the C library was not built, or"
    ):
        whorl.RoPE(8, impl="native")
    assert whorl.RoPE(8)._impl == "reference"
