"""The torch operators: their registrations, gradients, and what other parts of torch do to them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import whorl
from whorl.kernels import native, ops, reference, tables
from whorl.kernels.native import RotatedChannels

from . import rotations as r

IMPLS = ["reference"] if native.find_problem() else ["native", "reference"]
BANDS = [RotatedChannels("half", "half", 0), RotatedChannels("interleaved", "half", 1)]
Call = Callable[..., Tensor]


def inputs(
    dtype: torch.dtype = torch.float64, per_row: bool = False, B: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys with fewer heads, and a table for both."""
    q, k = r.normal(B, 4, 3, 10, dtype=dtype), r.normal(B, 2, 3, 10, seed=1, dtype=dtype)
    table = r.table_for(q, r.compute_angles(3, 4, first=5))
    return q, k, torch.stack([table.roll(n, 0) for n in range(B)]) if per_row else table


def rotation(
    band: RotatedChannels, impl: str, transpose: bool = False
) -> Callable[..., tuple[Tensor, ...]]:
    """(q, k, table) -> rotated q, k."""

    def apply(q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        return tuple(ops.rotate([q, k], [table, table], band, transpose, impl))

    return apply


@pytest.mark.slow  # the first opcheck loads the compiler
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_rotate(dtype: torch.dtype, trained: bool, impl: str) -> None:
    q, k, table = inputs(dtype, per_row=trained)
    xs = [q.requires_grad_(), k.transpose(1, 2).contiguous().transpose(1, 2)]
    rows = [table.clone().requires_grad_(trained), table.clone()]
    torch.library.opcheck(
        torch.ops.whorl.rotate.default, (xs, rows, "half", "interleaved", 1, False, impl)
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("positions", "first", "length"),
    [
        (None, 2, 5),
        (None, 6, 5),
        (None, -3, 2),
        (None, 0, 0),
        (torch.tensor([3, 1, 7]), 0, 3),
        (torch.tensor([[3, 1, 7], [0, 9, 100]]), 0, 3),
        (torch.tensor([0.5, 1.25]), 0, 2),
    ],
)
def test_opcheck_lookup(
    positions: Tensor | None, first: int, length: int, dtype: torch.dtype
) -> None:
    table = reference.compute_table(r.compute_angles(8, 4)).to(dtype)
    arguments = (table, reference.compute_inv_freq(8), positions, first, length, 1.0, "float64")
    torch.library.opcheck(tables.LOOK_UP_ROWS, arguments)
    assert torch.equal(tables.LOOK_UP_ROWS(*arguments), tables.look_up_rows(*arguments))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_gradients_by_finite_differences(
    trained: bool, per_row: bool, transpose: bool, band: RotatedChannels, impl: str
) -> None:
    q, k, table = inputs(per_row=per_row)
    arguments = (q.requires_grad_(), k.requires_grad_(), table.requires_grad_(trained))
    apply = rotation(band, impl, transpose)
    assert torch.autograd.gradcheck(apply, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(apply, arguments, fast_mode=True)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", r.DTYPES)
def test_gradients_are_those_of_the_reference(
    dtype: torch.dtype, trained: bool, band: RotatedChannels, impl: str
) -> None:
    q, k, table = inputs(dtype)
    leaves = [q.requires_grad_(), k.requires_grad_(), table.requires_grad_(trained)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    cotangents = [r.normal(*x.shape, seed=7 + n, dtype=dtype) for n, x in enumerate((q, k))]
    got = torch.autograd.grad(rotation(band, impl)(*leaves), wanted, cotangents)
    plain = [r.rotate_by_reference(x, table, band) for x in (q, k)]
    want = torch.autograd.grad(plain, wanted, cotangents)
    exact = dtype in (torch.float32, torch.float64)
    for mine, theirs in zip(got[:2], want[:2], strict=True):
        if exact:
            r.assert_same_bits(mine, theirs)
        else:  # autograd rounds each product to half; the kernel rounds their sum, once
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(
                mine, theirs, rtol=0, atol=2 * eps * float(theirs.abs().max())
            )
    if trained:
        torch.testing.assert_close(got[2], want[2])


@pytest.mark.parametrize("impl", IMPLS)
def test_one_result_alone_has_gradients(impl: str) -> None:
    q, k, table = inputs()
    apply = rotation(BANDS[0], impl)
    rotated, _ = apply(q.requires_grad_(), k.requires_grad_(), table)
    rotated.sum().backward()
    assert q.grad is not None
    r.assert_same_bits(
        q.grad, r.rotate_by_reference(torch.ones_like(q), table, BANDS[0], transpose=True)
    )
    assert k.grad is None or not k.grad.any()


@pytest.mark.parametrize("impl", IMPLS)
def test_an_expanded_cotangent(impl: str) -> None:
    q, k, table = inputs()
    rotated, _ = rotation(BANDS[0], impl)(q.requires_grad_(), k, table)
    (grad,) = torch.autograd.grad(rotated, q, torch.ones((), dtype=q.dtype).expand(q.shape))
    r.assert_same_bits(
        grad, r.rotate_by_reference(torch.ones_like(q), table, BANDS[0], transpose=True)
    )


def saved_by(apply: Callable[..., Any], *arguments: Tensor) -> set[int]:
    """Addresses of the memory that ``apply`` keeps for its backward pass."""
    kept: set[int] = set()

    def pack(x: Tensor) -> Tensor:
        kept.add(x.untyped_storage().data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        apply(*arguments)
    return kept


@pytest.mark.parametrize("impl", IMPLS)
def test_fixed_tables_are_all_that_is_saved(impl: str) -> None:
    q, k, table = inputs()
    q.requires_grad_()
    k.requires_grad_()
    address = {
        x.untyped_storage().data_ptr(): name for x, name in zip((q, k, table), "qkt", strict=True)
    }
    apply = rotation(BANDS[0], impl)
    assert {address.get(at) for at in saved_by(apply, q, k, table)} == {"t"}
    # The hook sees inputs too, where they are needed: trained tables need them.
    table.requires_grad_()
    assert {address.get(at) for at in saved_by(apply, q, k, table)} == {"q", "k", "t"}


@pytest.mark.parametrize("impl", IMPLS)
def test_one_table_twice_gets_both_gradients(impl: str) -> None:
    q, _, table = inputs()
    table.requires_grad_()
    once = ops.rotate([q], [table], BANDS[0], False, impl)
    (single,) = torch.autograd.grad(once[0].sum(), table)
    twice = ops.rotate([q, q], [table, table], BANDS[0], False, impl)
    (double,) = torch.autograd.grad(twice[0].sum() + twice[1].sum(), table)
    torch.testing.assert_close(double, 2 * single)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype: torch.dtype, impl: str) -> None:
    q, k, table = inputs(dtype)
    apply = rotation(BANDS[0], impl)
    plain = apply(q, k, table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = apply(q.requires_grad_(), k, table)
    for got, want in zip(inside, plain, strict=True):
        r.assert_same_bits(got.detach(), want)


@pytest.mark.parametrize("impl", IMPLS)
def test_functional_call(impl: str) -> None:
    rope = whorl.RoPE(8, frequencies="trained", impl=impl)  # type: ignore[arg-type]
    x, alpha = r.normal(1, 2, 5, 8, dtype=torch.float32), torch.full((4,), 0.5, requires_grad=True)
    changed = torch.func.functional_call(rope, {"alpha": alpha}, (x, x))[0]
    assert not torch.allclose(changed, rope(x, x)[0])
    changed.sum().backward()
    assert alpha.grad is not None
    assert alpha.grad.abs().min() > 0
    assert rope.alpha.grad is None


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dim", [0, 1, 3, 4])
def test_vmap_over_queries_and_keys(dim: int, impl: str) -> None:
    q, k, table = inputs()
    apply = rotation(BANDS[1], impl)
    many = [torch.stack([q * n for n in (1, 2, 3)], dim), torch.stack([k, k + 1, k * 2], dim)]
    got = torch.func.vmap(apply, in_dims=(dim, dim, None))(*many, table)
    for n in range(3):
        want = apply(many[0].select(dim, n), many[1].select(dim, n), table)
        for mine, theirs in zip(got, want, strict=True):
            r.assert_same_bits(mine[n], theirs)
    only_q = torch.func.vmap(apply, in_dims=(dim, None, None))(many[0], k, table)
    r.assert_same_bits(only_q[1][2], apply(q, k, table)[1])


@pytest.mark.parametrize("impl", IMPLS)
def test_vmap_over_tables_is_refused(impl: str) -> None:
    q, k, table = inputs()
    with pytest.raises(
        NotImplementedError,
        match=r"whorl::rotate: vmap over the tables of cos and sin is not supported, because all"
        r" heads of one call share them; map over queries and keys, and pass positions \[B, T\]"
        r" instead\.",
    ):
        torch.func.vmap(rotation(BANDS[0], impl), in_dims=(None, None, 0))(
            q, k, torch.stack((table, table))
        )


@pytest.mark.parametrize("impl", IMPLS)
def test_func_grad_and_per_sample_grad(impl: str) -> None:
    q, k, table = inputs()
    apply = rotation(BANDS[0], impl)

    def loss(x: Tensor) -> Tensor:
        return apply(x, k, table)[0].pow(3).sum()

    leaf = q.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(q), want)
    each = torch.func.vmap(torch.func.grad(loss))(torch.stack((q, 2 * q)))
    torch.testing.assert_close(each, torch.stack((want, 4 * want)))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's
@pytest.mark.parametrize("impl", IMPLS)
def test_forward_mode(impl: str) -> None:
    q, k, table = inputs()
    tangent = r.normal(*q.shape, seed=3)
    apply = rotation(BANDS[1], impl)
    want = apply(tangent, k, table)[0].clone()
    want[..., 0] = tangent[..., 0]
    got = torch.func.jvp(lambda x: apply(x, k, table)[0], (q,), (tangent,))
    torch.testing.assert_close(got[1], want)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, tangent)
        assert not ops.is_plain([dual])
        rotated = forward_ad.unpack_dual(apply(dual, k, table)[0]).tangent
        torch.testing.assert_close(rotated, want)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("frequencies", ["fixed", "trained"])
def test_torch_func_through_a_module(frequencies: str, impl: str) -> None:
    rope = whorl.RoPE(8, frequencies=frequencies, impl=impl)  # type: ignore[arg-type]
    q, tangent = r.normal(1, 2, 5, 8), r.normal(1, 2, 5, 8, seed=1)
    with torch.no_grad():
        want = rope.rotate(tangent)
        rotated = rope.rotate(q)
    torch.testing.assert_close(torch.func.jvp(rope.rotate, (q,), (tangent,)), (rotated, want))
    grad = torch.func.grad(lambda x: rope.rotate(x).pow(2).sum())(q)
    torch.testing.assert_close(grad, 2 * q)  # norms are kept
    jacobian = torch.func.jacfwd(rope.rotate)(q).reshape(q.numel(), -1)
    torch.testing.assert_close((jacobian @ tangent.flatten()).view(q.shape), want)


@pytest.mark.parametrize("impl", IMPLS)
def test_fake_tensors(impl: str) -> None:
    q, k, table = inputs(torch.bfloat16)
    q = q.transpose(2, 3).contiguous().transpose(2, 3)
    real = torch.ops.whorl.rotate([q, k], [table, table], *BANDS[0], False, impl)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (q, k, table)]
        assert not ops.is_plain(fakes)
        got = rotation(BANDS[0], impl)(*fakes)
    for mine, theirs in zip(got, real, strict=True):
        assert (mine.shape, mine.stride(), mine.dtype) == (
            theirs.shape,
            theirs.stride(),
            theirs.dtype,
        )


@pytest.mark.parametrize("impl", IMPLS)
def test_meta_tensors(impl: str) -> None:
    q, k, table = (x.to("meta") for x in inputs(torch.float16))
    rotated = rotation(BANDS[0], impl)(q, k, table)
    assert [x.shape for x in rotated] == [q.shape, k.shape]
    assert all(x.is_meta and x.dtype == torch.float16 for x in rotated)


@pytest.mark.parametrize("impl", IMPLS)
def test_tensors_of_different_dtypes(impl: str) -> None:
    q, k, table = inputs(torch.float32)
    rotated = ops.rotate([q, k.half()], [table, table], BANDS[0], False, impl)
    r.assert_same_bits(rotated[0], r.rotate_by_reference(q, table, BANDS[0]))
    r.assert_same_bits(rotated[1], r.rotate_by_reference(k.half(), table, BANDS[0]))


def test_is_plain() -> None:
    x = torch.randn(2, requires_grad=True)
    assert ops.is_plain([x.detach()])
    assert ops.is_plain([torch.nn.Parameter(x.detach(), requires_grad=False)])
    assert ops.is_plain([x])
    assert not ops.is_plain([x], gradless=True)
    assert not ops.is_plain([x.detach(), x], gradless=True)
    assert not ops.is_plain([x.detach().to("meta")])
    with torch.no_grad():
        assert ops.is_plain([x], gradless=True)

    def refused(y: Tensor) -> Tensor:
        assert not ops.is_plain([y])
        return y

    torch.func.vmap(refused)(x.detach())


def test_impl_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_problem", None)
    assert [ops.choose_impl(i, "RoPE") for i in ("auto", "native", "reference")] == [
        "native",
        "native",
        "reference",
    ]
    with pytest.raises(
        ValueError, match=r"^RoPE: impl must be 'auto', 'native' or 'reference'; got 'c'\.$"
    ):
        ops.choose_impl("c", "RoPE")


def test_impl_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_problem", "the library is on holiday. Call it back")
    assert [ops.choose_impl(i, "RoPE") for i in ("auto", "reference")] == ["reference"] * 2
    with pytest.raises(
        ValueError,
        match=r"^RoPE: impl='native' cannot run: the library is on holiday\. Call it back, or use"
        r" impl='auto'\.$",
    ):
        ops.choose_impl("native", "RoPE")
