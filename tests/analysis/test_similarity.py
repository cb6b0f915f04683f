"""Similarity, maps and aliases against closed forms."""

import importlib
import json
import math
import os
import subprocess
import sys
import types
from typing import Any

import pytest
import torch

import whorl
from whorl.analysis import inner_products, position_map, similarity
from whorl.plots import catalogue

NO: Any = 3


def mean_cos(theta: torch.Tensor, distance: int) -> float:
    return float((distance * theta).cos().mean())


@pytest.mark.parametrize(
    ("encoding", "width"),
    [
        (whorl.RoPE(32), 32),
        (whorl.RoPE(32, layout="interleaved", base=500.0), 32),
        (whorl.MRoPE(32, sections=(4, 6, 6)), 32),
        (whorl.Sinusoidal(32), 32),  # sin a sin b + cos a cos b = cos(a - b)
    ],
    ids=repr,
)
def test_is_the_mean_of_cosines(encoding: whorl.Encoding, width: int) -> None:
    found = similarity(encoding, 20)
    base = encoding.config.base  # type: ignore[attr-defined]
    theta = whorl.RoPE(width, base=base).frequencies().inv_freq
    assert found.kind == "vectors"
    assert found.positions == tuple(range(20))
    for m, row in enumerate(found.values):
        for n, value in enumerate(row):
            assert value == pytest.approx(mean_cos(theta, m - n), abs=1e-12)


def test_passing_channels_count_as_equal() -> None:
    found = similarity(whorl.RoPE(8, rotary_dim=2), 3)
    assert found.values[0][1] == pytest.approx((6 + 2 * math.cos(1)) / 8)


def test_long_ones_are_sampled() -> None:
    found = similarity(whorl.RoPE(8), 100_000, places=50)
    assert len(found.positions) == 50
    assert found.positions[:2] == (0, 2000)
    assert found.values[0][1] == pytest.approx(mean_cos(whorl.RoPE(8).frequencies().inv_freq, 2000))


def test_scores_of_equal_tokens() -> None:
    alibi = similarity(whorl.ALiBi(2), 5)
    assert alibi.kind == "scores"
    falls = [alibi.values[4][n] - alibi.values[0][0] for n in range(5)]  # type: ignore[operator]
    assert falls == pytest.approx([-(4 - n) * (1 / 16 + 1 / 256) / 2 for n in range(5)])
    nope = similarity(whorl.NoPE(), 4)
    assert len({round(v or 0, 12) for row in nope.values for v in row}) == 1
    xpos = similarity(whorl.XPos(16), 4)
    assert xpos.values[1][2] is None
    assert xpos.values[2][1] is not None
    assert similarity(whorl.RoPE(16) + whorl.ALiBi(2), 4).kind == "scores"


def test_inner_products_are_equal_along_diagonals() -> None:
    found = inner_products(whorl.RoPE(16), 12, seed=3)
    assert found.spread < 1e-12
    assert found.values[3][1] == pytest.approx(found.values[11][9])
    assert abs(found.values[3][1] - found.values[1][3]) > 1e-3
    source = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, 1, 1, 16, generator=source, dtype=torch.float64) for _ in range(2))
    want = (
        whorl.RoPE(16).rotate(q, torch.tensor([5])) @ whorl.RoPE(16).rotate(k, torch.tensor([2])).mT
    )
    assert found.values[5][2] == pytest.approx(float(want) / 4, abs=1e-6)


def test_one_pair_maps_to_a_circle() -> None:
    """All variance is in the plane, and distances there are those of the vectors."""
    found = position_map(whorl.RoPE(2), 40)
    assert found.explained == pytest.approx(1.0)
    points = [complex(x, y) for x, y in zip(found.x, found.y, strict=True)]
    for m, n in ((0, 1), (3, 30), (5, 39)):
        want = math.sqrt(2) * 2 * abs(math.sin((m - n) / 2))  # |R_m x - R_n x|, |x| = sqrt 2
        assert abs(points[m] - points[n]) == pytest.approx(want)
    many = position_map(whorl.Sinusoidal(32), 64)
    assert many.explained is not None
    assert 0.2 < many.explained < 0.9


@pytest.mark.parametrize("axes", [3, 4, 6])
def test_charts_of_more_than_three_axes(axes: int) -> None:
    """A token at p on every axis: with two channels for each, all pairs turn by p."""
    rope = whorl.AxialRoPE(2 * axes, axes=axes)
    found = similarity(rope, 20)
    for m, n in ((0, 0), (3, 19), (19, 0)):
        assert found.values[m][n] == pytest.approx(math.cos(m - n), abs=1e-6)
    flat = position_map(rope, 20)
    assert flat.explained == pytest.approx(1.0)
    points = [complex(x, y) for x, y in zip(flat.x, flat.y, strict=True)]
    want = math.sqrt(2 * axes) * 2 * abs(math.sin(11 / 2))
    assert abs(points[4] - points[15]) == pytest.approx(want, rel=1e-6)
    for name, numbers in (("similarity", found), ("map", flat)):
        pytest.importorskip("altair")
        chart = catalogue.entry(name).draw(numbers.to_dict())
        assert f"axes={axes}" in json.dumps(chart.to_dict())


def test_tsne_is_asked_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class TSNE:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def fit_transform(self, vectors: Any) -> Any:
            asked["shape"] = vectors.shape
            return vectors[:, :2]

    stub = types.ModuleType("sklearn.manifold")
    stub.TSNE = TSNE  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.manifold", stub)
    found = position_map(whorl.RoPE(8), 10, method="tsne", seed=5)
    assert asked == {
        "n_components": 2,
        "perplexity": 3.0,
        "init": "pca",
        "random_state": 5,
        "shape": (10, 8),
    }
    assert found.explained is None
    assert found.x[0] == 1.0


REAL = """
import torch, whorl
from whorl.analysis import position_map
learned = whorl.Learned(8, max_length=40).double()
with torch.no_grad():
    learned.weight.copy_(0.1 * torch.randn(40, 8, generator=torch.Generator().manual_seed(0)))
    learned.weight[20:] += 5
found = position_map(learned, 40, method="tsne", seed=3)
assert position_map(learned, 40, method="tsne", seed=3) == found
assert (found.method, found.explained) == ("tsne", None)
points = torch.tensor([found.x, found.y]).T
groups = points[:20], points[20:]
within = max(float((group - group.mean(0)).norm(dim=1).max()) for group in groups)
print(float((groups[0].mean(0) - groups[1].mean(0)).norm()) / within)
"""


def test_tsne_itself_keeps_groups_apart() -> None:
    """With the real scikit-learn, in a process of its own: it brings a second OpenMP runtime."""
    done = subprocess.run(
        [sys.executable, "-c", REAL],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two runtimes wait for each other in loops
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 2


def test_something_missing_inside_scikit_learn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="No module named 'scipy'"):
        position_map(whorl.RoPE(8), 10, method="tsne")


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"method='tsne' needs sklearn: pip install 'whorl\[tsne\]'\."
    ):
        position_map(whorl.RoPE(8), 10, method="tsne")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: similarity(NO), TypeError, r"encoding must be a whorl\.Encoding; got 3\."),
        (
            lambda: similarity(whorl.RoPE(8), 1),
            ValueError,
            r"length must be an int >= 2 .* got 1\.",
        ),
        (
            lambda: similarity(whorl.RoPE(8), places=1),
            ValueError,
            r"places must .* at most 512; got",
        ),
        (lambda: position_map(whorl.RoPE(8), 2), ValueError, r"length must be an int >= 3"),
        (
            lambda: position_map(whorl.RoPE(8), method=NO),
            ValueError,
            r"'pca' or 'tsne'; got 3",
        ),
        (
            lambda: position_map(whorl.ALiBi(2)),
            ValueError,
            r"must have vectors of positions, and this one acts on scores; got ALiBi\(2\)\.",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
