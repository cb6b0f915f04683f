"""The three reference forms agree, and are rotations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.kernels import reference

from . import rotations as r

sizes = st.integers(1, 7)
positions = st.integers(-(2**20), 2**20)


def close(got: torch.Tensor, want: torch.Tensor, size: float = 1.0) -> None:
    """Equal to the few last bits of float64; ``size`` is the largest angle, which carries over."""
    torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14 + 2 * size * 2**-53)


@given(sizes, sizes, sizes, st.integers(1, 20), positions, r.layouts, r.seeds)
def test_three_forms_agree(
    B: int, H: int, T: int, pairs: int, first: int, layout: str, seed: int
) -> None:
    x, angles = r.normal(B, H, T, 2 * pairs, seed=seed), r.compute_angles(T, pairs, first)
    matrix = reference.rotate_matrix(x, angles, layout=layout)
    close(reference.rotate_complex(x, angles, layout=layout), matrix)
    close(reference.rotate(x, reference.compute_table(angles), layout=layout), matrix)


@pytest.mark.parametrize("layout", r.LAYOUTS)
def test_one_pair_by_hand(layout: str) -> None:
    x = torch.tensor([[[[1.0, 0.0]]]], dtype=torch.float64)
    rotated = reference.rotate(
        x, reference.compute_table(r.compute_angles(1, 1, first=2)), layout=layout
    )
    assert rotated.flatten().tolist() == pytest.approx([math.cos(2), math.sin(2)], abs=1e-16)


def test_frequencies_are_float64_and_fall() -> None:
    ladder = reference.compute_inv_freq(8, 10_000.0)
    assert ladder.tolist() == [1.0, 10_000.0**-0.25, 10_000.0**-0.5, 10_000.0**-0.75]


@pytest.mark.parametrize(
    ("layout", "pairs"), [("half", [(0, 2), (1, 3)]), ("interleaved", [(0, 1), (2, 3)])]
)
def test_layouts_pair_the_right_channels(layout: str, pairs: list[tuple[int, int]]) -> None:
    angles = torch.tensor([[math.pi / 2, math.pi / 2]], dtype=torch.float64)
    for a, b in pairs:
        x = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
        x[..., a] = 1.0
        rotated = reference.rotate(x, reference.compute_table(angles), layout=layout)
        assert rotated.flatten().argmax() == b


@given(sizes, st.integers(1, 20), r.layouts, r.seeds)
def test_position_zero_is_identity(T: int, pairs: int, layout: str, seed: int) -> None:
    x = r.normal(2, 3, T, 2 * pairs, seed=seed)
    table = reference.compute_table(torch.zeros(T, pairs, dtype=torch.float64))
    assert torch.equal(reference.rotate(x, table, layout=layout), x)


@given(sizes, st.integers(1, 20), positions, r.layouts, r.seeds)
def test_norms_are_kept(T: int, pairs: int, first: int, layout: str, seed: int) -> None:
    x = r.normal(2, 3, T, 2 * pairs, seed=seed)
    rotated = reference.rotate(
        x, reference.compute_table(r.compute_angles(T, pairs, first)), layout=layout
    )
    close(rotated.norm(dim=-1), x.norm(dim=-1))


@given(positions, positions, st.integers(1, 20), r.layouts, r.seeds)
def test_rotations_add_up(m: int, n: int, pairs: int, layout: str, seed: int) -> None:
    x = r.normal(1, 2, 1, 2 * pairs, seed=seed)
    one, two, both = (reference.compute_table(r.compute_angles(1, pairs, p)) for p in (m, n, m + n))
    step = reference.rotate(reference.rotate(x, one, layout=layout), two, layout=layout)
    size = (abs(m) + abs(n)) * float(x.abs().max())
    close(step, reference.rotate(x, both, layout=layout), size)


@given(sizes, st.integers(1, 20), positions, r.layouts, r.layouts, r.seeds)
def test_transpose_is_inverse(
    T: int, pairs: int, first: int, layout: str, out_layout: str, seed: int
) -> None:
    x = r.normal(2, 1, T, 2 * pairs, seed=seed)
    table = reference.compute_table(r.compute_angles(T, pairs, first))
    rotated = reference.rotate(x, table, layout=layout, out_layout=out_layout)
    back = reference.rotate(rotated, table, layout=out_layout, out_layout=layout, transpose=True)
    close(back, x)
    negated = reference.compute_table(-r.compute_angles(T, pairs, first))
    assert torch.equal(
        reference.rotate(x, table, layout=layout, transpose=True),
        reference.rotate(x, negated, layout=layout),
    )


@given(sizes, st.integers(1, 20), r.layouts, r.layouts, r.seeds)
def test_out_layout_only_permutes(
    T: int, pairs: int, layout: str, out_layout: str, seed: int
) -> None:
    x, table = (
        r.normal(2, 1, T, 2 * pairs, seed=seed),
        reference.compute_table(r.compute_angles(T, pairs)),
    )
    same = reference.split_pairs(reference.rotate(x, table, layout=layout), layout)
    mixed = reference.rotate(x, table, layout=layout, out_layout=out_layout)
    assert torch.equal(reference.merge_pairs(*same, out_layout), mixed)


@given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 5), r.layouts, r.seeds)
def test_other_channels_pass_through(
    start: int, pairs: int, rest: int, layout: str, seed: int
) -> None:
    x = r.normal(2, 3, 4, start + 2 * pairs + rest, seed=seed)
    table = reference.compute_table(r.compute_angles(4, pairs, first=1))
    rotated = reference.rotate(x, table, layout=layout, start=start)
    band = slice(start, start + 2 * pairs)
    assert torch.equal(rotated[..., :start], x[..., :start])
    assert torch.equal(rotated[..., band.stop :], x[..., band.stop :])
    assert torch.equal(rotated[..., band], reference.rotate(x[..., band], table, layout=layout))


def test_each_batch_row_takes_its_own_table() -> None:
    x = r.normal(3, 2, 5, 8)
    tables = torch.stack(
        [reference.compute_table(r.compute_angles(5, 4, first)) for first in (0, 7, 100)]
    )
    together = reference.rotate(x, tables)
    for row in range(3):
        assert torch.equal(together[row], reference.rotate(x[row : row + 1], tables[row])[0])


@given(sizes, st.integers(1, 9), r.layouts, r.seeds)
def test_merge_undoes_split(T: int, pairs: int, layout: str, seed: int) -> None:
    x = r.normal(T, 2 * pairs, seed=seed)
    assert torch.equal(reference.merge_pairs(*reference.split_pairs(x, layout), layout), x)
