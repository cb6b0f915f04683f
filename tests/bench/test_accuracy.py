"""The reference for tables is right, and the contestants stand where they should."""

import pytest
import torch

from whorl.analysis.precision import compute_exact_tables
from whorl.bench import Accuracy, measure_accuracy
from whorl.bench.rotation.accuracy import POSITIONS


def test_reference_agrees_with_mpmath() -> None:
    mpmath = pytest.importorskip("mpmath")
    positions = [1, 257, 131_071, 2**24 - 1]
    cos, sin = compute_exact_tables(positions, 16, 10_000.0)
    with mpmath.workdps(60):
        for t, position in enumerate(positions):
            for i in range(8):
                angle = position * mpmath.mpf(10_000) ** (-mpmath.mpf(2 * i) / 16)
                assert abs(float(mpmath.cos(angle)) - float(cos[t, i])) < 1e-15
                assert abs(float(mpmath.sin(angle)) - float(sin[t, i])) < 1e-15


def test_position_zero_is_exact() -> None:
    cos, sin = compute_exact_tables([0], 128, 10_000.0)
    assert torch.equal(cos, torch.ones(1, 64, dtype=torch.float64))
    assert torch.equal(sin, torch.zeros(1, 64, dtype=torch.float64))


@pytest.mark.slow
def test_errors_by_contestant() -> None:
    found = measure_accuracy((0, 257, 131_071, 2**24 - 1), neighbours=2)
    assert found.errors["whorl"][0] == 0.0
    assert max(found.errors["whorl"]) < 6e-8
    assert found.errors["whorl float32"][2] > 1e-3
    assert found.errors["Meta complex"][3] > 0.1


def test_bfloat16_positions_of_a_peer_are_wrong_from_257() -> None:
    pytest.importorskip("rotary_embedding_torch")
    found = measure_accuracy((100, 257), neighbours=0)
    good, bad = found.errors["rotary-embedding-torch bfloat16"]
    assert good < 1e-4
    assert bad > 0.5


@pytest.mark.parametrize(
    ("module", "name"),
    [("transformers", "Hugging Face"), ("mlx.core", "MLX")],
)
def test_float32_peers_lose_digits_with_position(module: str, name: str) -> None:
    pytest.importorskip(module)
    errors = measure_accuracy((1, 131_071), neighbours=1).errors[name]
    assert errors[0] < 1e-6
    assert 1e-4 < errors[1] < 1e-1


def test_round_trip_and_positions_reach_16_million() -> None:
    found = Accuracy(POSITIONS, {"whorl": (0.0,) * len(POSITIONS)})
    assert Accuracy.from_dict(found.to_dict()) == found
    assert POSITIONS[-1] == 2**24 - 1
