"""Coordinates of grid cells."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.positions import grid


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_index_counts_cells_with_the_last_axis_fastest(sizes: list[int]) -> None:
    got = grid(*sizes)
    assert got.dtype == torch.int64
    assert got.T.tolist() == [list(cell) for cell in itertools.product(*map(range, sizes))]
    assert got.shape[0] == len(sizes)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_centers_and_corners_are_symmetric(sizes: list[int]) -> None:
    centers = grid(*sizes, coordinates="centers")
    torch.testing.assert_close(centers, -centers.flip(1))
    assert float(centers.abs().max()) < 1
    corners = grid(*sizes, coordinates="corners")
    lines = torch.meshgrid(
        *(torch.linspace(-1, 1, n, dtype=torch.float64) for n in sizes), indexing="ij"
    )
    torch.testing.assert_close(corners, torch.stack([line.flatten() for line in lines]))


def test_side_makes_a_step_mean_the_same_on_all_axes() -> None:
    for side, step in (("longest", 2 / 4), ("shortest", 2 / 2)):
        rows, columns = grid(2, 4, coordinates="centers", side=side).view(2, 2, 4)  # type: ignore[arg-type]
        assert float(rows[0, 0]) == float(columns[0, 0]) == step / 2 - 1
        assert torch.equal(rows.diff(dim=0), torch.full((1, 4), step).double())
        assert torch.equal(columns.diff(dim=1), torch.full((2, 3), step).double())
    assert float(grid(2, 3, coordinates="corners", side="longest")[0].max()) == 0.0


@pytest.mark.parametrize("sizes", [(14, 14), (3, 7), (1, 5)])
def test_centers_are_those_of_dinov3(sizes: tuple[int, int]) -> None:
    dino = pytest.importorskip("transformers.models.dinov3_vit.modeling_dinov3_vit")
    want = dino.get_patches_center_coordinates(*sizes, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(grid(*sizes, coordinates="centers").T, want, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        (
            (),
            {},
            r"grid: sizes must be ints >= 0, one for each axis, as in grid\(14, 14\); got \(\)",
        ),
        ((3, -1), {}, r"sizes must be ints >= 0.*got \(3, -1\)"),
        ((2.0,), {}, r"sizes must be ints >= 0.*got \(2\.0,\)"),
        ((2,), {"coordinates": "unit"}, r"coordinates must be 'index' or 'centers' or 'corners'"),
        (
            (2,),
            {"coordinates": "centers", "side": "mean"},
            r"side must be 'own' or 'longest' or 'shortest'; got 'mean'",
        ),
        ((2,), {"side": "longest"}, r"side='longest' needs coordinates='centers' or 'corners'"),
    ],
)
def test_bad_input_says_what_to_do(sizes: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid(*sizes, **options)
