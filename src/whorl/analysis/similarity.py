"""Similarity of positions, and scores by position, as maps; all positions in the plane.

    similarity(m, n) = mean_i cos((m - n) theta_i)          for RoPE: the cosine between the vector
                                                            of ones at m and the same vector at n

For input encodings it is the cosine between the vectors added at m and at n. Encodings that act on
scores have no vectors: there it is the score of equal tokens at m and n, in logits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.encodings import Encoding

from .record import Record, check_int, convert_to_rows, find_rope, make_generator, sample_normal
from .scores import compute_embedding, compute_scores, copy_in_float64, repeat_on_axes
from .sizes import get_sizes

__all__ = [
    "PositionMap",
    "ScoreMap",
    "Similarity",
    "inner_products",
    "position_map",
    "similarity",
]


@dataclass(frozen=True)
class Similarity(Record):
    """values[m][n]: the similarity of positions[m] and positions[n].

    kind: "vectors" for cosines, "scores" for logits of equal tokens, the mean over heads. Values
    above the diagonal are None for causal encodings.
    """

    encoding: str
    kind: Literal["vectors", "scores"]
    positions: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class ScoreMap(Record):
    """Scores of one random query at every position m with one random key at every n."""

    encoding: str
    positions: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    #: The largest difference between scores of equal m - n.
    spread: float


@dataclass(frozen=True)
class PositionMap(Record):
    """Every position as a point in the plane; explained: the share of variance in them (PCA)."""

    encoding: str
    method: Literal["pca", "tsne"]
    positions: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    explained: float | None


@torch.no_grad()
def similarity(encoding: Encoding, length: int = 128, *, places: int = 64) -> Similarity:
    """Similarity of positions 0 .. length - 1, for up to ``places`` of them with equal steps.

    >>> import whorl
    >>> found = similarity(whorl.RoPE(4), 2)
    >>> found.kind, [round(v, 6) for v in found.values[0]]
    ('vectors', [1.0, 0.770126])
    """
    wide = copy_in_float64(encoding, "similarity")
    at = _make_grid(length, places, "similarity")
    vectors = _compute_vectors(wide, at)
    if vectors is not None:
        unit = vectors / vectors.norm(dim=-1, keepdim=True)
        return Similarity(
            repr(encoding), "vectors", tuple(at.tolist()), convert_to_rows(unit @ unit.T)
        )
    sizes = get_sizes(wide)
    heads, D = sizes.num_heads, sizes.head_dim
    equal = sample_normal(make_generator(0, ""), 1, heads, 1, D)
    equal = equal.expand(1, heads, len(at), D)
    found = compute_scores(wide, equal, equal, at, at)[0].mean(0)
    values: tuple[tuple[float | None, ...], ...] = convert_to_rows(found)
    if wide.causal:  # no value where the key is after the query
        values = tuple(row[: m + 1] + (None,) * (len(at) - m - 1) for m, row in enumerate(values))
    return Similarity(repr(encoding), "scores", tuple(at.tolist()), values)


@torch.no_grad()
def inner_products(
    rope: Encoding, length: int = 64, *, places: int = 64, seed: int = 0
) -> ScoreMap:
    """Scores of one random query and one random key, rotated by the module to every position.

    >>> import whorl
    >>> inner_products(whorl.RoPE(64)).spread < 1e-12
    True
    """
    inner = find_rope(rope, "inner_products")
    at = _make_grid(length, places, "inner_products")
    source, D = make_generator(seed, "inner_products"), inner.config.head_dim
    q, k = (sample_normal(source, 1, 1, 1, D) for _ in range(2))
    shape = (1, 1, len(at), D)
    now = int(at[-1]) + 1
    rotated = inner(q.expand(shape), k.expand(shape), at, context_length=now)
    found = (rotated[0] @ rotated[1].mT)[0, 0].detach() * D**-0.5
    gap = at.unsqueeze(-1) - at
    groups = [found[gap == d] for d in torch.unique(gap).tolist()]
    spread = max(float(group.max() - group.min()) for group in groups)
    return ScoreMap(repr(inner), tuple(at.tolist()), convert_to_rows(found), spread)


@torch.no_grad()
def position_map(
    encoding: Encoding,
    length: int = 256,
    *,
    method: Literal["pca", "tsne"] = "pca",
    seed: int = 0,
) -> PositionMap:
    """The vectors of all positions, projected to the plane by principal components or t-SNE.

    The vectors of a rotation are the vector of ones, rotated. "tsne" needs scikit-learn.
    """
    wide = copy_in_float64(encoding, "position_map")
    check_int(length, "length", "position_map", 3, 20_000)
    if method not in ("pca", "tsne"):
        raise ValueError(f"position_map: method must be 'pca' or 'tsne'; got {quote(method)}.")
    make_generator(seed, "position_map")
    vectors = _compute_vectors(wide, torch.arange(length))
    if vectors is None:
        raise ValueError(
            "position_map: encoding must have vectors of positions, and this one acts on scores;"
            f" got {quote(encoding)}. Use bias_curves or similarity instead."
        )
    points, explained = _compute_tsne(vectors, seed) if method == "tsne" else _compute_pca(vectors)
    x, y = convert_to_rows(points.T)
    return PositionMap(repr(encoding), method, tuple(range(length)), x, y, explained)


def _compute_pca(vectors: Tensor) -> tuple[Tensor, float]:
    """The first two principal components [T, 2], and their share of the variance."""
    centred = vectors - vectors.mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    s = torch.nn.functional.pad(s, (0, max(0, 2 - len(s))))
    points = u[:, :2] * s[:2]
    points = points * torch.where(points[0] < 0, -1.0, 1.0)  # the same sign on every machine
    total = float(s.square().sum())
    return points, float(s[:2].square().sum()) / total if total else 1.0


def _compute_vectors(encoding: Encoding, at: Tensor) -> Tensor | None:
    """The vectors [T, C] of positions, or None if the encoding has none."""
    sizes = get_sizes(encoding, num_heads=1)
    heads, D = sizes.num_heads, sizes.head_dim
    if "input" in encoding.hooks:
        return compute_embedding(encoding, sizes.width, at)
    if "rotation" not in encoding.hooks or encoding.causal or encoding.hooks & {"score"}:
        return None
    ones = torch.ones(1, heads, len(at), D, dtype=torch.float64)
    where = repeat_on_axes(encoding, at)
    rotated = encoding(ones, ones, where, context_length=int(at[-1]) + 1)[0]
    vectors: Tensor = rotated[0].transpose(0, 1).flatten(1)
    return vectors


def _make_grid(length: int, count: int, where: str) -> Tensor:
    """Up to ``count`` positions from 0 to length - 1, with equal steps."""
    check_int(length, "length", where, 2, 2**53)
    check_int(count, "places", where, 2, 512)
    step = max(1, math.ceil(length / count))
    return torch.arange(0, length, step) if step > 1 else torch.arange(length)


def _compute_tsne(vectors: Tensor, seed: int) -> tuple[Tensor, None]:
    """Points [T, 2]; t-SNE has no share of the variance."""
    for module in ("sklearn", "sklearn.manifold"):
        manifold = import_extra(module, by="position_map with method='tsne'", extra="tsne")
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    found: Sequence[Sequence[float]] = manifold.TSNE(
        n_components=2, perplexity=perplexity, init="pca", random_state=seed % 2**32
    ).fit_transform(vectors.numpy())
    return torch.as_tensor(found, dtype=torch.float64), None
