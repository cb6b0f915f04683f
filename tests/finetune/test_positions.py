"""Positions of short sequences: what PoSE and random positions promise."""

import torch

from whorl.finetune.positions import sample_positions


def sample(kind: str, rows: int = 400, length: int = 8, target: int = 20) -> torch.Tensor:
    source = torch.Generator().manual_seed(3)
    found = sample_positions(kind, rows, length, target, source)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_pose_skips_once_and_covers_every_distance() -> None:
    found = sample("pose")
    steps = found.diff()
    assert (found[:, 0] == 0).all()
    assert ((steps != 1).sum(1) <= 1).all()
    assert (steps >= 1).all()
    assert int(found.max()) == 19
    distances = (found[:, :, None] - found[:, None, :]).flatten().unique()
    assert set(range(20)) <= set(distances.tolist())


def test_random_positions_ascend_and_cover_the_target() -> None:
    found = sample("random")
    assert (found.diff() >= 1).all()
    assert set(found.flatten().tolist()) == set(range(20))
    assert len({tuple(row) for row in found.tolist()}) > 300


def test_a_target_of_the_length_skips_nothing() -> None:
    for kind in ("pose", "random"):
        assert (sample(kind, target=8) == torch.arange(8)).all()
    assert sample_positions("all", 1, 8, 20, torch.Generator()) is None
