"""Encodings with other tensors in place of their parameters."""

import pytest
import torch

import whorl


def test_scores_of_other_vectors() -> None:
    encoding = whorl.DeBERTa(2, 4, max_distance=3, dim=5)
    other = torch.randn(6, 5, requires_grad=True)
    q, k, at = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 4, 4), torch.arange(4)
    before = encoding.content_score(q, k, at, at)
    changed = encoding.with_parameters(vectors=other).content_score(q, k, at, at)
    changed.sum().backward()
    assert other.grad is not None
    assert encoding.vectors.grad is None
    assert torch.equal(encoding.content_score(q, k, at, at), before)
    with torch.no_grad():
        encoding.vectors.copy_(other)
    assert torch.equal(encoding.content_score(q, k, at, at), changed)


def test_attention_gives_other_tensors_their_gradient() -> None:
    """Also where the parameter itself has none."""
    bias = whorl.T5Bias(2).requires_grad_(False)
    other = torch.randn(32, 2, requires_grad=True)
    q = torch.randn(1, 2, 6, 4)
    whorl.attention(q, q, q, bias.with_parameters(weight=other)).sum().backward()
    assert other.grad is not None
    assert bool(other.grad.any())


def test_what_is_refused() -> None:
    bias = whorl.T5Bias(2)
    with pytest.raises(
        ValueError, match=r"weight must be one of {'weight': \[32, 2\]}, of the sam"
    ):
        bias.with_parameters(weight=torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"T5Bias.with_parameters: wait must be one of"):
        bias.with_parameters(wait=torch.zeros(32, 2))
