"""Tables of cos and sin: as exact as promised, and the same whichever way they are made."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.kernels import native, native_tables, reference, tables
from whorl.scaling.base import compute_frequencies

from . import rotations as r

mpmath = pytest.importorskip("mpmath")

PROMISE = 6e-8  # of an unscaled float32 entry, at positions up to 2^24
PRECISIONS = ("float64", "float32")


def truth(position: int, rotary_dim: int, base: float) -> Tensor:
    """cos and sin with 50 digits, rounded to float64: [2, P]."""
    with mpmath.workdps(50):
        angles = [
            position * mpmath.power(mpmath.mpf(base), mpmath.mpf(-2 * i) / rotary_dim)
            for i in range(rotary_dim // 2)
        ]
        rows = [[float(function(a)) for a in angles] for function in (mpmath.cos, mpmath.sin)]
    return torch.tensor(rows, dtype=torch.float64)


def built(positions: Tensor, inv_freq: Tensor, precision: str = "float64") -> Tensor:
    return tables.compute_rows(
        tables.compute_angles(positions, inv_freq, precision), 1.0, torch.float32
    )


def assert_within_promise(position: int, rotary_dim: int, base: float) -> None:
    row = built(torch.tensor([position]), compute_frequencies(rotary_dim, base))[0].double()
    error = float((row - truth(position, rotary_dim, base)).abs().max())
    assert error <= PROMISE, f"position {position} is off by {error:.3g}"


@pytest.mark.parametrize(
    "position", [0, 1, 4095, 131_072, 2**20 - 1, 2**20, 2**23 + 1, 2**24 - 1, 2**24]
)
@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1e7])
def test_entries_are_within_the_promise(position: int, base: float) -> None:
    assert_within_promise(position, 128, base)


@settings(max_examples=50)
@given(
    st.integers(-(2**24), 2**24),
    st.sampled_from([2, 6, 64, 128, 256]),
    st.floats(1.5, 1e8, allow_nan=False),
)
def test_entries_are_within_the_promise_anywhere(
    position: int, rotary_dim: int, base: float
) -> None:
    assert_within_promise(position, rotary_dim, base)


def test_float32_angles_break_the_promise() -> None:
    row = built(
        torch.tensor([131_072]), compute_frequencies(128, 10_000.0, torch.float32), "float32"
    )[0]
    assert (row.double() - truth(131_072, 128, 10_000.0)).abs().max() > 1e-3


def test_float64_tables_are_near_the_truth() -> None:
    angles = tables.compute_angles(torch.tensor([4095]), compute_frequencies(128, 10_000.0))
    row = tables.compute_rows(angles, 1.0, torch.float64)[0]
    # An angle below 4096 has an error of a few halves of its last bit, 2^-41.
    assert (row - truth(4095, 128, 10_000.0)).abs().max() < 4 * 2**-41


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_float32_mode_is_that_of_transformers(base: float) -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    positions = torch.cat((torch.arange(8192), torch.tensor([100_000, 131_071, 2**20])))
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    ours = built(positions, compute_frequencies(128, base, torch.float32), "float32")
    r.assert_same_bits(ours[:, 0], cos[0, :, :64])
    r.assert_same_bits(ours[:, 1], sin[0, :, :64])


def test_the_ladder_is_that_of_the_reference() -> None:
    torch.testing.assert_close(
        compute_frequencies(128, 10_000.0), reference.compute_inv_freq(128), rtol=1e-15, atol=0
    )


@st.composite
def lookups(draw: st.DrawFn) -> tuple[Tensor | None, int, int]:
    """positions, first, length: around a table of at most 300 rows."""
    first, length = draw(st.integers(-5, 300)), draw(st.integers(0, 40))
    if draw(st.booleans()):
        return None, first, length
    shape = draw(st.sampled_from([(length,), (2, length)]))
    generator = torch.Generator().manual_seed(draw(r.seeds))
    return torch.randint(-5, 400, shape, generator=generator), 0, length


@given(
    lookups(),
    st.integers(0, 300),
    st.sampled_from(PRECISIONS),
    st.sampled_from([1.0, 1.25]),
    st.integers(1, 40),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_rows_do_not_depend_on_the_table(
    where: tuple[Tensor | None, int, int],
    known: int,
    precision: str,
    scale: float,
    pairs: int,
    dtype: torch.dtype,
) -> None:
    inv_freq = compute_frequencies(2 * pairs, 10_000.0)
    angles = tables.compute_angles(torch.arange(300), inv_freq, precision)
    table = tables.compute_rows(angles, scale, dtype)
    results = [
        tables.look_up_rows(part, inv_freq, *where, scale, precision)
        for part in (table, table[:known], table[:0])
    ]
    for other in results[1:]:
        r.assert_same_bits(other, results[0])


@pytest.mark.parametrize("positions", [[0, 7], [7, 8], [8, 8], [-1, 7]])
def test_rows_at_the_edges_of_the_table(positions: list[int]) -> None:
    inv_freq, at = compute_frequencies(34, 10_000.0), torch.tensor(positions)
    table = built(torch.arange(8), inv_freq)
    rows = tables.look_up_rows(table, inv_freq, at, 0, 2, 1.0, "float64")
    r.assert_same_bits(rows, built(at, inv_freq))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_row_alone_is_the_row_of_many(precision: str) -> None:
    inv_freq = compute_frequencies(34, 10_000.0)
    many = built(torch.arange(5000), inv_freq, precision)
    for position in (0, 1, 17, 255, 4096, 4999):
        alone = built(torch.tensor([position]), inv_freq, precision)
        r.assert_same_bits(alone[0], many[position])


def test_scale_by_row() -> None:
    angles = torch.stack((r.compute_angles(3, 4), r.compute_angles(3, 4, first=9)))
    scales = torch.tensor([1.0, 1.5])
    together = tables.compute_rows(angles, scales, torch.float32)
    for row, scale in enumerate((1.0, 1.5)):
        r.assert_same_bits(together[row], tables.compute_rows(angles[row], scale, torch.float32))


def test_frequencies_by_row() -> None:
    positions, inv_freq = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1.0, 0.5], [2, 1]])
    together = tables.compute_angles(positions, inv_freq)
    assert together.tolist() == [
        [[1, 0.5], [2, 1], [3, 1.5]],
        [[8, 4], [10, 5], [12, 6]],
    ]


native_only = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")


@native_only
@settings(max_examples=50)
@given(
    st.integers(-(2**24), 2**24),
    st.sampled_from([2, 6, 64, 128, 256]),
    st.floats(1.5, 1e8, allow_nan=False),
    st.booleans(),
)
def test_rows_of_the_library_are_within_the_promise(
    position: int, rotary_dim: int, base: float, fraction: bool
) -> None:
    at, inv_freq = torch.tensor([position]), compute_frequencies(rotary_dim, base)
    row = native_tables.build_table(at.double() if fraction else at, 0, 1, inv_freq, 1.0)[0]
    error = float((row.double() - truth(position, rotary_dim, base)).abs().max())
    assert error <= PROMISE, f"position {position} is off by {error:.3g}"


@native_only
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_rows_of_the_library_are_those_of_torch_but_for_a_last_bit(scale: float) -> None:
    at, inv_freq = torch.arange(0, 2**24, 1999), compute_frequencies(128, 10_000.0)
    ours = native_tables.build_table(at, 0, len(at), inv_freq, scale)
    theirs = tables.compute_rows(tables.compute_angles(at, inv_freq), scale, torch.float32)
    apart = (ours.view(torch.int32) - theirs.view(torch.int32)).abs()
    assert apart.max() <= 1
    assert apart.count_nonzero() <= 2  # of a million


@native_only
def test_rows_of_the_library_by_sequence() -> None:
    positions = torch.tensor([[1, 4096, -7], [2**20, 0, 5]])
    inv_freq = torch.stack((compute_frequencies(34, 100.0), compute_frequencies(34, 10_000.0)))
    scale = torch.tensor([1.0, 1.5], dtype=torch.float64)
    together = native_tables.build_table(positions, 0, 3, inv_freq, scale)
    for n in range(2):
        alone = native_tables.build_table(positions[n], 0, 3, inv_freq[n], float(scale[n]))
        r.assert_same_bits(together[n], alone)
        shared = native_tables.build_table(positions[n], 0, 3, inv_freq, scale)
        r.assert_same_bits(shared[n], alone)
    axes = torch.tensor([0, 1] * 8 + [0])
    mixed = native_tables.build_table(positions, 0, 3, inv_freq[0], 1.0, axes)
    for axis in range(2):
        whole = native_tables.build_table(positions[axis], 0, 3, inv_freq[0], 1.0)
        r.assert_same_bits(mixed[..., axes == axis], whole[..., axes == axis])


@native_only
def test_steps_change_the_time_and_nothing_else() -> None:
    inv_freq = compute_frequencies(150, 10_000.0)
    steps = native_tables.build_steps(inv_freq)
    for first in (-40, 0, 4090, 2**31 - 20):
        slow = native_tables.build_table(None, first, 70, inv_freq, 1.25)
        r.assert_same_bits(
            native_tables.build_table(None, first, 70, inv_freq, 1.25, steps=steps), slow
        )
    assert native_tables.build_steps(torch.ones(8193, dtype=torch.float64)) is None


@pytest.mark.parametrize("pairs", [1, 3, 9, 64, 200])
@pytest.mark.parametrize("first", [-9000, 0, 9990, 131_000, 2**40])
def test_float32_rows_of_many_positions_are_those_of_few(pairs: int, first: int) -> None:
    """Built in parts, and slow pairs apart: the bits are those of one step, in any order."""
    count = 5000 if pairs < 64 else 1500
    inv_freq = 500.0 ** -(torch.arange(pairs) / pairs).double()
    source = torch.Generator().manual_seed(0)
    mixed = inv_freq[torch.randperm(pairs, generator=source)]
    whole = torch.arange(first, first + count)
    shuffled = whole[torch.randperm(count, generator=source)].view(2, -1)
    for positions, freq in ((whole, inv_freq), (shuffled, mixed), (whole + 0.25, mixed)):
        for scale in (1.0, 1.1386):
            for growth in (None, torch.linspace(-1e-4, 1e-4, pairs).double()):
                exponents = None
                if growth is not None:
                    exponents = positions.double().unsqueeze(-1) * growth
                angles = tables.compute_angles(positions, freq, "float32")
                expected = tables.compute_rows(angles, scale, torch.float32, exponents)
                built = tables.build_float32_rows(positions, freq, scale, growth)
                assert torch.equal(built.view(torch.int32), expected.view(torch.int32))


def test_large_angles_are_computed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes ten times as long for eight angles if one of them is above 10,000."""
    seen = []
    for name in ("cos", "sin"):
        real = getattr(torch, name)

        def note(x: Tensor, *, out: Tensor, real: Any = real) -> Tensor:
            seen.append(float(x.abs().max()))
            result: Tensor = real(x, out=out)
            return result

        monkeypatch.setattr(torch, name, note)
    rope = whorl.RoPE(128, precision="float32", table_length=16)
    rope(*(torch.ones(1, 1, 3000, 128) for _ in range(2)), offset=30_000)
    assert len(seen) >= 2
    assert max(seen) <= 10_000
