"""Bias curves, term maps and permutations: from the hooks, as plain numbers."""

import json
from typing import Any

import pytest
import torch

import whorl
from whorl.analysis import bias_curves, permutations, term_maps, terms


def test_bias_is_that_of_the_hook() -> None:
    found = bias_curves(whorl.ALiBi(4), 6, future=True)
    assert found.distances == tuple(range(-5, 6))
    assert found.curves[1] == tuple(-abs(d) / 16 for d in range(-5, 6))
    assert found.trained_parameters == 0
    t5 = whorl.T5Bias(2)
    curves = bias_curves(t5, 200)
    want = t5.distance_bias(torch.arange(200)).detach()
    torch.testing.assert_close(torch.tensor(curves.curves), want, check_dtype=False)
    assert curves.trained_parameters == 64
    assert bias_curves(whorl.ALiBi(2), 3, past=False, future=True).distances == (-2, -1, 0)


@pytest.mark.parametrize(
    "encoding",
    [
        whorl.RoPE(16) + whorl.ALiBi(4),
        whorl.DeBERTa(2, head_dim=8),
        whorl.Sinusoidal(32),
        whorl.Learned(32, max_length=9) + whorl.RoPE(8),
        whorl.AxialRoPE(16),
    ],
    ids=repr,
)
def test_terms_sum_to_the_score(encoding: whorl.Encoding) -> None:
    found = term_maps(encoding, 9, head=1)
    total = sum(torch.tensor(grid, dtype=torch.float64) for grid in found.terms.values())
    torch.testing.assert_close(total, torch.tensor(found.score, dtype=torch.float64))
    assert set(found.sizes) == set(found.terms)
    assert json.loads(json.dumps(found.to_dict()))["head"] == 1


def test_terms_are_those_of_the_function() -> None:
    source = torch.Generator().manual_seed(7)
    q, k = (torch.randn(1, 4, 5, 64, generator=source, dtype=torch.float64) for _ in range(2))
    want = terms(whorl.ALiBi(4), q, k)
    found = term_maps(whorl.ALiBi(4), 5, head=2, seed=7)
    for name in want:
        torch.testing.assert_close(torch.tensor(found.terms[name]).double(), want[name][0, 2])


def test_permutations() -> None:
    made = {"none": whorl.NoPE(), "rope": whorl.RoPE(8), "xpos": whorl.XPos(8)}
    found = permutations(made)
    assert found.names == ("none", "rope")
    assert found.left_out == ("xpos",)
    assert found.changes[0] < 1e-12 < 1e-3 < found.changes[1]
    assert found.changes[1] == whorl.analysis.permutation(whorl.RoPE(8))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bias_curves(whorl.RoPE(8)),
            r"encoding must have a bias by distance; got RoPE\(8\)\. Use term_maps or similarity",
        ),
        (
            lambda: bias_curves(whorl.ALiBi(2), 1),
            r"bias_curves: length must be an int >= 2 .*; got 1",
        ),
        (lambda: bias_curves(whorl.ALiBi(2), past=False), r"past or future must be True, or both;"),
        (
            lambda: term_maps(whorl.ALiBi(2), head=2),
            r"head must be an int >= 0 and at most 1; got 2",
        ),
        (lambda: term_maps(whorl.ALiBi(2), 1), r"term_maps: length must be an int >= 2; got 1\."),
        (
            lambda: permutations({}),
            r"permutations: encodings must have at least one name; got none\.",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_map_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl._support.memory.read_available", lambda: None)
    with pytest.raises(
        ValueError,
        match=r"term_maps: length 100,000 needs 8 TB of memory, but may use at most"
        r" half of the 4\.29",
    ):
        term_maps(whorl.ALiBi(2), 100_000)


def test_long_curves_are_sampled() -> None:
    found = bias_curves(whorl.ALiBi(2), 10**6, future=True)
    assert len(found.distances) < 1100
    assert (found.distances[0], found.distances[-1]) == (1 - 10**6, 10**6 - 1)
    assert list(found.distances) == sorted(set(found.distances))
    assert found.curves[0][-1] == -(10**6 - 1) / 16
