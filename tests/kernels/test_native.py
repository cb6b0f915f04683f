"""The C kernel: near the float64 oracle, bit-equal to the reference, in any memory."""

import gc
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from whorl.kernels import native, reference
from whorl.kernels.native import RotatedChannels
from whorl.kernels.row_table import Table, TableRows

from . import rotations as r

pytestmark = pytest.mark.skipif(
    native.find_problem() is not None, reason=str(native.find_problem())
)

HALF = RotatedChannels("half", "half", 0)
HEADS = range(1, 10)  # the AVX2 code takes four at a time, then one


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """torch.set_num_threads, undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("isa", r.ISAS)
@pytest.mark.parametrize("layout", r.LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pairs", [1, 5, 8, 21, 64])
def test_near_the_oracle(dtype: torch.dtype, layout: str, pairs: int, isa: str) -> None:
    xs = [r.normal(2, heads, 33, 2 * pairs, seed=heads, dtype=dtype) for heads in (9, 6)]
    angles = r.compute_angles(33, pairs, first=4000)
    outs = [torch.full_like(x, torch.nan) for x in xs]
    rows = [TableRows(Table(r.table_for(xs[0], angles)))] * 2
    native.rotate(xs, outs, rows, RotatedChannels(layout, layout, 0), False, native.ISAS[isa])
    for x, got in zip(xs, outs, strict=True):
        exact = reference.rotate_matrix(x.double(), angles, layout=layout)
        r.assert_near(got, exact, r.in_low_precision(x, angles, layout))


@pytest.mark.parametrize("isa", r.ISAS)
@pytest.mark.parametrize("layout", r.LAYOUTS)
def test_float64_has_the_precision_of_the_oracle(layout: str, isa: str) -> None:
    x, angles = r.normal(2, 7, 33, 42), r.compute_angles(33, 21, first=4000)
    exact = reference.rotate_matrix(x, angles, layout=layout)
    got = r.by_native(
        x, reference.compute_table(angles), RotatedChannels(layout, layout, 0), isa=isa
    )
    bound = 2 * 2**-52 * x.abs().max()  # two roundings here, two in the oracle
    assert (got - exact).abs().max() <= bound


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, RotatedChannels]:
    """x with any strides of batch, heads and positions; a table, shared or one per batch row."""
    B, H, T, pairs = (draw(st.integers(1, most)) for most in (3, HEADS[-1], 9, 40))
    start, rest = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    width = start + 2 * pairs + rest
    dtype, seed = draw(st.sampled_from(r.DTYPES)), draw(r.seeds)
    order = draw(st.permutations((0, 1, 2)))
    sizes = [(B, H, T)[axis] for axis in order]
    x = r.normal(*sizes, width + draw(st.integers(0, 3)), seed=seed, dtype=dtype)[..., :width]
    x = x.permute(*(order.index(axis) for axis in range(3)), 3)
    table = r.table_for(x, r.compute_angles(T, pairs, draw(st.integers(0, 10**6))))
    if draw(st.booleans()):
        table = torch.stack([table.roll(shift, 0) for shift in range(B)])
    return x, table, RotatedChannels(draw(r.layouts), draw(r.layouts), start)


@given(cases(), st.booleans())
def test_all_implementations_agree_bit_for_bit(
    case: tuple[Tensor, Tensor, RotatedChannels], transpose: bool
) -> None:
    x, table, band = case
    want = r.rotate_by_reference(x, table, band, transpose)
    for isa in r.ISAS:
        r.assert_same_bits(r.by_native(x, table, band, transpose, isa), want)
    fresh = native.rotate([x], None, [TableRows(Table(table))], band, transpose)
    assert fresh is not None
    r.assert_same_bits(fresh[0], want)


@given(cases())
def test_in_place_is_out_of_place(case: tuple[Tensor, Tensor, RotatedChannels]) -> None:
    x, table, band = case
    want = r.rotate_by_reference(x, table, band)
    done = native.rotate([x], [x], [TableRows(Table(table))], band, False)
    assert done is not None
    assert done[0] is x
    r.assert_same_bits(x, want)


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed [B, T, H, D]": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "some heads": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "some positions": lambda x: x.repeat_interleave(3, 2)[:, :, ::3],
    "some channels": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "every second channel": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "channels before heads": lambda x: x.transpose(1, 3).contiguous().transpose(1, 3),
    "expanded heads": lambda x: x[:, :1].expand_as(x),
    "expanded batch": lambda x: x[:1].expand(3, -1, -1, -1),
    "expanded positions": lambda x: x[:, :, :1].expand(-1, -1, 5, -1),
    "expanded channels": lambda x: x[..., :1].expand_as(x),
    "windows that overlap": lambda x: x.flatten(2).unfold(-1, x.shape[-1], 1)[:, :, :5],
    "an odd address": lambda x: torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape),
}


@pytest.mark.parametrize("dtype", r.DTYPES)
@pytest.mark.parametrize("kind", STRIDED)
@pytest.mark.parametrize("heads", HEADS)
def test_any_strides(heads: int, kind: str, dtype: torch.dtype) -> None:
    x = STRIDED[kind](r.normal(2, heads, 5, 50, dtype=dtype))
    table = r.table_for(x, r.compute_angles(x.shape[2], 25, first=3))
    want = r.rotate_by_reference(x, table, HALF)
    fresh = native.rotate([x], None, [TableRows(Table(table))], HALF, False)
    assert fresh is not None
    r.assert_same_bits(fresh[0], want)
    for band in (HALF, RotatedChannels("half", "interleaved", 0)):
        out = torch.full(x.shape, torch.nan, dtype=dtype)
        native.rotate([x], [out], [TableRows(Table(table))], band, False)
        r.assert_same_bits(out, r.rotate_by_reference(x, table, band))
        scattered = torch.full((*x.shape, 2), torch.nan, dtype=dtype)[..., 0]
        native.rotate([x], [scattered], [TableRows(Table(table))], band, False)
        r.assert_same_bits(scattered, r.rotate_by_reference(x, table, band))


@pytest.mark.parametrize("shape", [(2, 3, 0, 8), (2, 0, 5, 8), (0, 3, 5, 8), (0, 0, 0, 8)])
def test_empty(shape: tuple[int, ...]) -> None:
    x = torch.empty(shape)
    table = r.table_for(x, r.compute_angles(shape[2], 4))
    for outs in (None, [torch.empty(shape)], [x]):
        done = native.rotate([x], outs, [TableRows(Table(table))], HALF, False)
        assert done is not None
        assert done[0].shape == shape


@pytest.mark.parametrize("dtype", r.DTYPES)
@pytest.mark.parametrize("length", [1, 3, 127, 128, 129, 257, 701])
def test_one_and_many_threads_agree(
    length: int, dtype: torch.dtype, threads: Callable[[int], None]
) -> None:
    xs = [r.normal(3, heads, length, 50, seed=heads, dtype=dtype) for heads in (9, 5)]
    table = r.table_for(xs[0], r.compute_angles(length, 25))
    wanted = [r.rotate_by_reference(x, table, HALF) for x in xs]
    for count in (1, 2, 5):
        threads(count)
        outs = [torch.full_like(x, torch.nan) for x in xs]
        native.rotate(xs, outs, [TableRows(Table(table))] * 2, HALF, False)
        for got, want in zip(outs, wanted, strict=True):
            r.assert_same_bits(got, want)


def test_threads_follow_torch(threads: Callable[[int], None]) -> None:
    for count in (1, 3):
        threads(count)
        assert native.get_max_threads() == count


@pytest.mark.parametrize("band", [HALF, RotatedChannels("half", "interleaved", 0)])
@pytest.mark.parametrize("source", ["q", "k", "v"])
@pytest.mark.parametrize("target", ["q", "k", "v"])
def test_slots_of_one_projection(source: str, target: str, band: RotatedChannels) -> None:
    fused = r.normal(2, 6, 3, 5, 18, dtype=torch.float32)  # [B, T, slot, H, D]
    slots = [fused[:, :, n].transpose(1, 2) for n in range(3)]
    before = fused.clone()
    x, out = slots["qkv".index(source)], slots["qkv".index(target)]
    table = r.table_for(x, r.compute_angles(6, 9, first=1))
    want = r.rotate_by_reference(x, table, band)
    native.rotate([x], [out], [TableRows(Table(table))], band, False)
    r.assert_same_bits(out, want)
    for n in range(3):
        if "qkv"[n] != target:
            assert torch.equal(fused[:, :, n], before[:, :, n])


@pytest.mark.parametrize("shift", [-17, -8, -1, 0, 1, 8, 17])
def test_out_overlaps_x(shift: int) -> None:
    memory = r.normal(1000, dtype=torch.float32)
    size = 2 * 6 * 5 * 8
    x = memory[100 : 100 + size].view(2, 6, 5, 8)
    out = memory[100 + shift : 100 + shift + size].view(2, 6, 5, 8)
    table = r.table_for(x, r.compute_angles(5, 4, first=1))
    want = r.rotate_by_reference(x, table, HALF)
    native.rotate([x], [out], [TableRows(Table(table))], HALF, False)
    r.assert_same_bits(out, want)


def test_outs_that_swap_two_tensors() -> None:
    memory = r.normal(2, 2, 5, 5, 18, dtype=torch.float32)
    q, k = memory
    rows = [TableRows(Table(r.table_for(q, r.compute_angles(5, 9, first)))) for first in (1, 7)]
    want = [
        r.rotate_by_reference(x, row.table.entries, HALF)
        for x, row in zip((q, k), rows, strict=True)
    ]
    native.rotate([q, k], [k, q], rows, HALF, False)
    r.assert_same_bits(k, want[0])
    r.assert_same_bits(q, want[1])


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("steps", ["contiguous", "strided", "expanded"])
def test_rows_by_index(steps: str, per_row: bool) -> None:
    x = r.normal(3, 6, 5, 18, dtype=torch.float32)
    table = r.table_for(x, r.compute_angles(20, 9))
    index = torch.randint(0, 18, (3, 5), generator=torch.Generator().manual_seed(1))
    if steps == "strided":
        index = index.repeat_interleave(2, -1)[:, ::2]
    elif steps == "expanded":
        index = index[:, :1].expand(3, 5)
    if not per_row:
        index = index[1]
    done = native.rotate([x], None, [TableRows(Table(table), 2, index)], HALF, False)
    assert done is not None
    r.assert_same_bits(done[0], r.rotate_by_reference(x, table[index + 2], HALF))


@pytest.mark.parametrize(
    "bad",
    [
        TableRows(Table(torch.zeros(9, 2, 4)), 5),
        TableRows(Table(torch.zeros(9, 2, 4)), -1),
        TableRows(Table(torch.zeros(9, 2, 4)), 2**63 - 1),
        TableRows(Table(torch.zeros(0, 2, 4)), 0),
        TableRows(Table(torch.zeros(9, 2, 4)), 0, torch.tensor([0, 1, 2, 3, 9])),
        TableRows(Table(torch.zeros(9, 2, 4)), 0, torch.tensor([0, 1, 2, 3, -1])),
        TableRows(Table(torch.zeros(9, 2, 4)), 1, torch.tensor([8, 0, 0, 0, 0])),
        TableRows(Table(torch.zeros(9, 2, 4)), 0, torch.tensor([[0] * 5, [0, 0, -(2**63), 0, 0]])),
        TableRows(Table(torch.zeros(9, 2, 4)), 2**63 - 1, torch.full((5,), 2**63 - 1)),
    ],
)
def test_a_row_outside_the_table_writes_nothing(bad: TableRows) -> None:
    x = r.normal(2, 3, 5, 8, dtype=torch.float32)
    good = TableRows(Table(torch.zeros(5, 2, 4)))
    assert native.rotate([x], None, [bad], HALF, False) is None
    for rows in ([good, bad], [bad, good]):
        outs = [torch.full_like(x, torch.nan) for _ in rows]
        assert native.rotate([x, x], outs, rows, HALF, False) is None
        assert all(bool(out.isnan().all()) for out in outs)
    before = x.clone()
    assert native.rotate([x], [x], [bad], HALF, False) is None
    assert torch.equal(x, before)


def test_an_isa_that_is_not_there_raises() -> None:
    assert native.get_best_isa() in ("scalar", "avx2")
    x, rows = r.normal(1, 1, 1, 2, dtype=torch.float32), [TableRows(Table(torch.zeros(1, 2, 1)))]
    missing = [3, 99, -1] if native.get_best_isa() == "avx2" else [native.ISAS["avx2"], 3, 99, -1]
    for number in missing:
        with pytest.raises(AssertionError, match="status 3"):
            native.rotate([x], [torch.empty_like(x)], rows, HALF, False, number)


def symbols(*options: str) -> set[str]:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm is not installed")
    listing = subprocess.run(
        [nm, "-D", *options, str(native.find_library())], check=True, capture_output=True, text=True
    )
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ELF symbols")
def test_the_library_needs_neither_torch_nor_python() -> None:
    foreign = re.compile(r"_?Py|.*(torch|c10|aten)|_ZN2at", re.IGNORECASE)
    wanted = symbols("--undefined-only")
    assert wanted, "nm printed nothing"
    assert not {name for name in wanted if foreign.match(name)}
    assert foreign.match("PyObject_Call")
    assert foreign.match("_ZN2at5emptyE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ELF symbols")
def test_the_library_exports_its_abi_only() -> None:
    header = Path(__file__).parents[2] / "csrc" / "whorl.h"
    declared = set(re.findall(r"^WHORL_API \w+ (\w+)\(", header.read_text(), re.MULTILINE))
    assert "whorl_rotate" in declared
    assert {name for name in symbols("--defined-only") if not name.startswith("__")} == declared


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_torch_and_whorl_share_one_openmp() -> None:
    script = """
import pathlib, torch
torch.set_num_threads(3)
torch.randn(1000, 1000).exp_()
from whorl.kernels import native
from whorl.kernels.row_table import Table, TableRows
rows = TableRows(Table(torch.ones(2000, 2, 4)))
channels = native.RotatedChannels("half", "half", 0)
native.rotate([torch.randn(1, 2, 2000, 8)], None, [rows], channels, False)
lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
print(*sorted({line.split()[-1] for line in lines if "gomp" in line or "libomp" in line}))
"""
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert len(run.stdout.split()) == 1, run.stdout


def test_a_table_is_freed_with_its_last_use() -> None:
    """Each call of a rotation makes one; in a cycle its rows would wait for a collection."""
    entries = torch.zeros(3, 2, 4)
    gone, table = weakref.ref(entries), Table(entries)
    gc.disable()
    try:
        del entries, table
        assert gone() is None
    finally:
        gc.enable()
