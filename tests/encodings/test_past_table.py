"""Past the table: the kernel builds the rows, and no result depends on where the table ends."""

from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings.rotary.lookahead import LookaheadRotation
from whorl.kernels import native, native_tables, tables
from whorl.scaling import LongRoPE

from .rotations import random

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")

KNOWN = 40
LONG = LongRoPE([1.0] * 9, [1.0 + n for n in range(9)], 50, factor=4.0)
SCALINGS: list[whorl.Scaling | None] = [None, whorl.YaRN(4.0, 32), LONG]


def rope(table: str, length: int = KNOWN, **options: Any) -> whorl.RoPE:
    return whorl.RoPE(20, rotary_dim=18, table=table, table_length=length, impl="native", **options)  # type: ignore[arg-type]


def at(kind: str, first: int) -> dict[str, Any]:
    """The same positions, first .. first + 5, as callers write them."""
    whole = torch.arange(first, first + 6)
    known: dict[str, dict[str, Any]] = {
        "offset": {"offset": first},
        "offsets": {"offset": torch.tensor([first, first])},
        "positions": {"positions": whole},
        "rows": {"positions": torch.stack((whole, whole))},
        "fractions": {"positions": whole.double()},
        "both": {"positions": whole - 3, "offset": 3},
    }
    return known[kind]


KINDS = ("offset", "offsets", "positions", "rows", "fractions", "both")


@settings(max_examples=60)
@given(
    st.sampled_from([-9, 0, KNOWN - 6, KNOWN - 5, KNOWN - 1, KNOWN, 4095, 2**24, 2**31 - 2, 2**60]),
    st.sampled_from(KINDS),
    st.sampled_from(SCALINGS),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from(["forward", "backward"]),
    st.booleans(),
)
def test_results_do_not_depend_on_the_table(
    first: int,
    kind: str,
    scaling: whorl.Scaling | None,
    dtype: torch.dtype,
    layout: whorl.Layout,
    direction: Literal["forward", "backward"],
    inverse: bool,
) -> None:
    x = random(2, 3, 6, 20, dtype=dtype)
    options: dict[str, Any] = {"scaling": scaling, "layout": layout, "direction": direction}
    expected = None
    for table, length in (("hybrid", KNOWN), ("hybrid", 5000), ("on_the_fly", 0), ("hybrid", 2)):
        encoding = rope(table, length, **options)
        for way in (kind, "offset"):
            done = encoding.rotate(x, **at(way, first), inverse=inverse)
            q, k = encoding(x, x[:, :1].contiguous(), **at(way, first))
            expected = expected or (done, q)
            assert torch.equal(done, expected[0])
            assert torch.equal(q, expected[1])
            assert torch.equal(k, q[:, :1])


@pytest.mark.parametrize("scaling", SCALINGS[:2], ids=repr)
def test_the_kernel_builds_what_lies_past_the_table(
    monkeypatch: pytest.MonkeyPatch, scaling: whorl.Scaling | None
) -> None:
    """No row is built in Python, in any of the calls that models make."""
    hybrid, full = (rope("hybrid", n, scaling=scaling) for n in (KNOWN, 200))
    q, k = random(2, 3, 60, 20, dtype=torch.float32), random(2, 1, 60, 20, dtype=torch.float32)

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("built in Python")

    for module, name in (
        (tables, "compute_angles"),
        (tables, "compute_rows"),
        (native_tables, "build_table"),
    ):
        monkeypatch.setattr(module, name, refuse)

    def train(encoding: whorl.RoPE, offset: int) -> list[Tensor]:
        xs = [x.clone().requires_grad_() for x in (q, k)]
        outs = encoding(*xs, offset=offset)
        grads = [torch.ones_like(out) * 2 for out in outs]
        return [*outs, *torch.autograd.grad(outs, xs, grads)]

    def bind(encoding: whorl.RoPE, offset: int) -> list[Tensor]:
        pair = q.clone(), k.clone()
        encoding.bind(*pair)(offset)
        return [*pair]

    calls = {
        "fresh": lambda e, n: e(q, k, offset=n),
        "in place": lambda e, n: e.forward_(q.clone(), k.clone(), offset=n),
        "out": lambda e, n: e(q, k, offset=n, out=(torch.empty_like(q), torch.empty_like(k))),
        "offsets": lambda e, n: e(q[:, :, :1], k[:, :, :1], offset=torch.tensor([n, 3])),
        "positions": lambda e, n: e(q, k, positions=torch.arange(n, n + 60)),
        "one tensor": lambda e, n: [e.rotate(q, offset=n)],
        "training": train,
        "bound": bind,
    }
    for name, call in calls.items():
        for offset in (0, KNOWN - 59, KNOWN - 1, KNOWN, 130):
            got, right = call(hybrid, offset), call(full, offset)
            assert all(map(torch.equal, got, right)), f"{name} at {offset}"


def test_a_precomputed_table_still_ends() -> None:
    encoding, x = rope("precomputed"), random(1, 1, 2, 20, dtype=torch.float32)
    with pytest.raises(ValueError, match="the precomputed table holds 0 to 39"):
        encoding.rotate(x, offset=KNOWN - 1)
    with pytest.raises(ValueError, match="the precomputed table holds 0 to 39"):
        encoding.bind(x, x.clone())(KNOWN - 1)


def test_a_sequence_does_not_depend_on_the_others_of_its_batch() -> None:
    """Short and long sequences in one batch: no table serves it, and the rows are the same."""
    encoding, x = rope("hybrid", scaling=LONG), random(2, 1, 1, 20, dtype=torch.float32)
    offsets = torch.tensor([30, 7000])
    together = encoding.rotate(x, offset=offsets)
    for n in range(2):
        assert torch.equal(
            together[n : n + 1], encoding.rotate(x[n : n + 1], offset=offsets[n : n + 1])
        )


@pytest.mark.parametrize("length", [KNOWN, KNOWN + 1])
def test_compiled_past_the_table(length: int) -> None:
    encoding = rope("hybrid")
    x = random(1, 2, length, 20, dtype=torch.float32)
    compiled = torch.compile(encoding.rotate, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, offset=3), encoding.rotate(x, offset=3))


def test_gradients_of_many_at_once_past_the_table() -> None:
    x = random(1, 1, 3, 20, dtype=torch.float32).requires_grad_()
    grads = random(2, 1, 1, 3, 20, dtype=torch.float32)
    out = rope("hybrid").rotate(x, offset=KNOWN - 1)
    (both,) = torch.autograd.grad(out, x, grads, is_grads_batched=True, retain_graph=True)
    for n in range(2):
        assert torch.equal(both[n], torch.autograd.grad(out, x, grads[n], retain_graph=True)[0])


def test_streams_prepare_rows_only_where_the_kernel_does_not() -> None:
    assert LookaheadRotation.create(rope("hybrid")) is None
    assert LookaheadRotation.create(rope("hybrid", precision="float32")) is not None
    assert LookaheadRotation.create(rope("hybrid", scaling=whorl.DynamicNTK(2.0, 16))) is not None


@pytest.mark.parametrize("scaling", [whorl.DynamicNTK(2.0, 4), LONG], ids=repr)
def test_fractions_tell_the_length_too(scaling: whorl.Scaling) -> None:
    encoding, x = rope("hybrid", scaling=scaling), random(1, 1, 6, 20, dtype=torch.float32)
    whole = torch.arange(55, 61)
    for inverse in (False, True):
        expected = encoding.rotate(x, whole, inverse=inverse)
        assert torch.equal(encoding.rotate(x, whole.double(), inverse=inverse), expected)
    between = encoding.rotate(x, whole + 0.5)
    assert torch.equal(between, encoding.rotate(x, whole + 0.5, context_length=61))


def test_all_rows_come_from_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own cos and sin differ in few bits, so that they are not asked must be counted."""
    encoding, mixed = rope("hybrid"), rope("hybrid", scaling=LONG)
    axial = whorl.AxialRoPE(20, axes=2, table_length=KNOWN, impl="native")
    x = random(2, 1, 6, 20, dtype=torch.float32)
    far = torch.arange(KNOWN, KNOWN + 6)

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("built by torch")

    monkeypatch.setattr(tables, "compute_angles", refuse)
    encoding.tables(far)
    encoding.rotate(x, far + 0.5)
    encoding.rotate(x.clone().requires_grad_(), far)
    encoding.shift(x, KNOWN)
    mixed.rotate(x, torch.stack((far - KNOWN, far * 9)))
    axial.rotate(x, torch.stack((far, far + 3)))
    torch.compile(encoding.rotate, backend="eager")(x, offset=KNOWN)
