"""Past the table in every family of rotations: the same numbers, and no more work than inside."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import whorl
from whorl.kernels import native, native_tables, tables

from .rotations import random

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")

KNOWN, T = 40, 6
Make = Callable[..., Any]
MAKE: dict[str, Make] = {
    "rope": lambda **o: whorl.RoPE(20, rotary_dim=18, **o),
    "xpos": lambda **o: whorl.XPos(20, rotary_dim=18, **o),
    "axial": lambda **o: whorl.AxialRoPE(20, axes=2, **o),
    "axis by axis": lambda **o: whorl.AxialRoPE(12, widths=(8, 4), within="axis", **o),
    "chunked": lambda **o: whorl.MRoPE(18, sections=(4, 3, 2), **o),
    "interleaved": lambda **o: whorl.MRoPE(18, sections=(3, 3, 3), order="interleaved", **o),
}
PRECISIONS = ("float64", "float32")
FIRSTS = (-9, 0, KNOWN - T, KNOWN - 2, KNOWN, 700, 4090)
WHOLE = torch.arange(T)
MIXED = torch.tensor([3, 0, 5, 5, 1, 2])


def place(encoding: Any, kind: str, first: int) -> dict[str, Any]:
    """Positions around ``first``, as callers write them."""
    if kind == "offset":
        return {"offset": first}
    if kind == "offsets":
        return {"offset": torch.tensor([first, first + 2])}
    at = (MIXED if kind == "out of order" else WHOLE) + first
    if encoding.position_axes > 1:
        at = torch.stack(
            [at + 3 * n * (n + kind.count("r")) for n in range(encoding.position_axes)]
        )
    if kind == "rows":
        return {"positions": torch.stack((at, at.flip(-1)), dim=-2)}
    if kind == "fractions":
        return {"positions": at.double()}
    return {"positions": at.int() if kind == "int32" else at}


KINDS = ("offset", "offsets", "positions", "rows", "out of order", "int32", "fractions")


def kinds_of(name: str) -> tuple[str, ...]:
    return KINDS[2:] if name.startswith("ax") else KINDS  # which has no single number for a place


def pair(encoding: Any, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    width = encoding.config.head_dim
    return random(2, 3, T, width, dtype=dtype), random(2, 1, T, width, dtype=dtype)


def gradients(encoding: Any, where: dict[str, Any]) -> list[Tensor]:
    xs = [x.requires_grad_() for x in pair(encoding)]
    outs = encoding(*xs, **where)
    return [*outs, *torch.autograd.grad(outs, xs, [torch.ones_like(out) for out in outs])]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", MAKE)
def test_results_do_not_depend_on_the_table(name: str, precision: str) -> None:
    ends = [
        MAKE[name](table_length=n, table=table, precision=precision, impl="native")
        for n, table in ((9000, "hybrid"), (KNOWN, "hybrid"), (1, "hybrid"), (1, "on_the_fly"))
    ]
    for kind in kinds_of(name):
        for first in FIRSTS:
            where = place(ends[0], kind, first)
            expected = [*ends[0](*pair(ends[0]), **where), *gradients(ends[0], where)]
            for encoding in ends[1:]:
                got = [*encoding(*pair(encoding), **where), *gradients(encoding, where)]
                assert all(map(torch.equal, got, expected)), f"{kind} at {first}"
                outs = encoding.forward_(*pair(encoding), **where)
                assert all(map(torch.equal, outs, expected)), f"{kind} at {first}, in place"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MAKE)
def test_results_are_near_those_of_doubles(name: str, dtype: torch.dtype) -> None:
    """The float64 rows come from torch, so this compares two ways to the same numbers.

    Entries, products, their sum and the result are each rounded by half a unit: in all less than
    4 eps of the largest number that a vector turns to.
    """
    encoding = MAKE[name](table_length=KNOWN, impl="native")
    for kind in kinds_of(name):
        for first in FIRSTS:
            where = place(encoding, kind, first)
            xs = pair(encoding, dtype)
            exact = encoding(*(x.double() for x in xs), **where)
            for got, right in zip(encoding(*xs, **where), exact, strict=True):
                limit = 4 * torch.finfo(dtype).eps * right.abs().amax(-1, keepdim=True)
                assert bool(((got.double() - right).abs() <= limit).all()), f"{kind} at {first}"


def test_float32_angles_have_the_bits_of_torch() -> None:
    """So that they are those of models in transformers, past the table as inside it."""
    rope = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    one = torch.zeros(1, 1, 1, 20)
    one[..., :10] = 1.0  # (1, 0) turns to (cos, sin)
    inv_freq = 1.0 / (10_000.0 ** (torch.arange(0, 20, 2, dtype=torch.float32) / 20))
    for first in (KNOWN - 1, KNOWN, KNOWN + 1, 5000, 5001, 131_071, -3):
        angle = float(first) * inv_freq
        expected = torch.cat((angle.cos(), angle.sin()))
        for where in ({"offset": first}, {"positions": torch.tensor([first])}):
            assert torch.equal(rope.rotate(one, **where).flatten(), expected)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing builds or looks up a row in Python."""

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("built in Python")

    for module, name in (
        *((tables, name) for name in ("compute_angles", "compute_rows", "look_up_rows")),
        (native_tables, "build_table"),
    ):
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("name", [name for name in MAKE if name != "axis by axis"])
def test_the_kernel_builds_and_mixes_rows(name: str, request: pytest.FixtureRequest) -> None:
    hybrid, full = (MAKE[name](table_length=n, impl="native") for n in (KNOWN, 9000))
    request.getfixturevalue("refused")  # once the tables are there
    for kind in kinds_of(name):
        for first in FIRSTS[1:] if kind != "fractions" else ():
            where = place(hybrid, kind, first)
            got, right = (
                encoding.forward_(*pair(encoding), **where) for encoding in (hybrid, full)
            )
            assert all(map(torch.equal, got, right)), f"{kind} at {first}"


def count_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each use of torch's cos and sin from here on."""
    counts: list[int] = []
    before = tables.compute_rows

    def count(angles: Tensor, *rest: Any) -> Tensor:
        counts.append(angles.shape[:-1].numel())
        return before(angles, *rest)

    monkeypatch.setattr(tables, "compute_rows", count)
    return counts


def test_float32_decode_builds_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every layer that shares the module, and those of the following steps at once."""
    rope = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    counts = count_rows(monkeypatch)
    q, k = random(1, 3, 1, 20, dtype=torch.float32), random(1, 1, 1, 20, dtype=torch.float32)
    for step in range(KNOWN - 3, KNOWN + 129):
        for _ in range(3):
            rope.forward_(q, k, offset=step)
    assert counts == [1, 128]
    other = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    del counts[:]
    for step in (500, 90, 500, 90):  # sequences that take turns: nothing in advance
        other.forward_(q, k, offset=step)
    assert counts == [1, 1, 1, 1]


def test_float32_prefill_builds_what_the_table_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    rope = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    x = random(1, 1, 60, 20, dtype=torch.float32)
    counts = count_rows(monkeypatch)
    rope.rotate(x)
    rope.rotate(x, offset=KNOWN - 1)
    rope.rotate(x, offset=KNOWN)
    assert counts == [20, 59, 60]
    del counts[:]
    rope(x, x.clone(), torch.arange(60))
    rope(x, x.clone(), torch.arange(KNOWN - 1, -1, -1).repeat_interleave(2)[:60])
    assert counts == [60]  # for both tensors, and none where all are in the table


def test_float32_rows_of_inference_serve_training() -> None:
    rope = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    x = random(1, 1, 1, 20, dtype=torch.float32)
    with torch.inference_mode():
        rope.rotate(x, offset=KNOWN)
    out = rope.rotate(x.requires_grad_(), offset=KNOWN)
    grad = random(1, 1, 1, 20, dtype=torch.float32).requires_grad_()
    (back,) = torch.autograd.grad(out, x, grad, create_graph=True)  # saves the rows
    (again,) = torch.autograd.grad(back, grad, x.detach())
    assert torch.equal(again, out)


def test_float32_positions_past_the_table_ask_the_kernel_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rope = whorl.RoPE(20, precision="float32", table_length=KNOWN, impl="native")
    q, k = random(2, 3, 1, 20, dtype=torch.float32), random(2, 1, 1, 20, dtype=torch.float32)
    asked: list[Any] = []
    before = native.run_rotation

    def submit(*job: Any) -> bool:
        asked.append(job)
        return before(*job)

    monkeypatch.setattr(native, "run_rotation", submit)
    rope(q, k, torch.tensor([KNOWN]))
    rope(q, k, offset=torch.tensor([3, KNOWN]))
    assert len(asked) == 2


def test_a_module_made_inside_a_mode() -> None:
    """Its table has no addresses of anything, so rows are built in Python."""

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    for name in ("axial", "chunked", "xpos"):
        with Mode():
            made = MAKE[name](table_length=KNOWN, impl="native")
        right = MAKE[name](table_length=KNOWN, impl="native")
        for first in (0, KNOWN - 2):
            where = place(made, "positions", first)
            results = zip(made(*pair(made), **where), right(*pair(made), **where), strict=True)
            assert all(torch.allclose(*both, atol=1e-6) for both in results)


def test_xpos_far_away_on_either_side() -> None:
    """Keys behind 0 vanish, as they should; no NaN comes of a factor beyond float32."""
    xpos = whorl.XPos(20, table_length=KNOWN, impl="native")
    far = torch.tensor([-60_000, -200_000, -(2**40), 30_000])
    for role in ("query", "key"):
        cos, sin = xpos.tables(far, role=role)
        assert not bool(cos.isnan().any() | sin.isnan().any())
    x = random(1, 1, 1, 20, dtype=torch.float32)
    assert not bool(xpos.rotate(x, offset=-200_000, role="key")[..., 0].any())
