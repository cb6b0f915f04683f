"""What encodings add to scores: bias by distance for each head, and terms of a score as maps."""

from dataclasses import dataclass

import torch

from whorl.encodings import Encoding

from .permutation import permutation
from .record import Record, fits, generator, places, rows, whole
from .scores import widened
from .sizes import sizes_of
from .terms import terms

__all__ = [
    "BiasCurves",
    "Permutations",
    "TermMaps",
    "bias_curves",
    "permutations",
    "term_maps",
]

_PLACES = 513


@dataclass(frozen=True)
class BiasCurves(Record):
    """curves[h][n]: what head h adds to the score of a query and a key distances[n] before it."""

    encoding: str
    distances: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
    #: Numbers that training would change: what is shown is where they stand now.
    trained_parameters: int


@dataclass(frozen=True)
class TermMaps(Record):
    """terms[name][m][n]: that term of the score of query m and key n, of one head, in logits."""

    encoding: str
    head: int
    positions: tuple[int, ...]
    terms: dict[str, tuple[tuple[float, ...], ...]]
    sizes: dict[str, float]
    score: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Permutations(Record):
    """By how much outputs change when tokens are shuffled: 0 for what is blind to order."""

    names: tuple[str, ...]
    changes: tuple[float, ...]
    left_out: tuple[str, ...]  # for causal attention only, where a mask gives order away


@torch.no_grad()
def bias_curves(
    encoding: Encoding, length: int = 128, *, past: bool = True, future: bool = False
) -> BiasCurves:
    """Bias by distance i - j, from the hook itself; negative distances are keys to come.

    Past some hundred distances they are ever further apart.

    >>> import whorl
    >>> bias_curves(whorl.ALiBi(2), 3).curves
    ((0.0, -0.0625, -0.125), (0.0, -0.00390625, -0.0078125))
    """
    wide = widened(encoding, "bias_curves")
    if not past and not future:
        raise ValueError("bias_curves: past or future, at least one must be shown.")
    at = places(whole(length, "length", "bias_curves", 2, 2**53), _PLACES)
    before = [-d for d in reversed(at) if d] if future else []
    distances = torch.tensor([*before, *(at if past else [0])])
    found = wide.distance_bias(distances)
    if found is None:
        raise ValueError(
            f"bias_curves: {encoding!r} adds no bias by distance; its terms or its similarity show"
            " what it does."
        )
    count = sum(p.numel() for p in encoding.parameters())
    return BiasCurves(repr(encoding), tuple(distances.tolist()), rows(found.double()), count)


@torch.no_grad()
def term_maps(encoding: Encoding, length: int = 32, *, head: int = 0, seed: int = 0) -> TermMaps:
    """The terms of the scores of random tokens with each other, as ``analysis.terms`` splits them.

    >>> import whorl
    >>> sorted(term_maps(whorl.RoPE(16) + whorl.ALiBi(4), 8).terms)
    ['alibi: position-position', 'content-content', 'rope: interaction']
    """
    widened(encoding, "term_maps")
    whole(length, "length", "term_maps", 2)
    sizes = sizes_of(encoding)
    whole(head, "head", "term_maps", 0, sizes.num_heads - 1)
    fits(400 * sizes.num_heads * length**2, length, "term_maps")
    source = generator(seed, "term_maps")
    H, D = sizes.num_heads, sizes.head_dim
    axes = encoding.position_axes
    places = torch.arange(length).expand(axes, -1) if axes > 1 else None
    if "input" in encoding.hooks:
        x = torch.randn(1, length, sizes.width, generator=source, dtype=torch.float64)
        projections = [
            torch.randn(H * D, sizes.width, generator=source, dtype=torch.float64)
            * sizes.width**-0.5
            for _ in range(2)
        ]
        found = terms(
            encoding,
            x=x,
            query_proj=projections[0],
            key_proj=projections[1],
            num_heads=H,
            positions=places,
        )
    else:
        q, k = (
            torch.randn(1, heads, length, D, generator=source, dtype=torch.float64)
            for heads in (H, sizes.key_heads)
        )
        found = terms(encoding, q, k, places)
    return TermMaps(
        encoding=repr(encoding),
        head=head,
        positions=tuple(range(length)),
        terms={name: rows(term[0, head]) for name, term in found.terms.items()},
        sizes=found.sizes(),
        score=rows(found.score[0, head]),
    )


def permutations(
    encodings: dict[str, Encoding], *, length: int = 12, seed: int = 0
) -> Permutations:
    """The permutation test of several encodings, by name.

    >>> import whorl
    >>> permutations({"nope": whorl.NoPE()}).changes[0] < 1e-12
    True
    """
    if not encodings:
        raise ValueError("permutations: encodings must name at least one.")
    found = {
        name: permutation(encoding, length=length, seed=seed)
        for name, encoding in encodings.items()
        if not encoding.causal
    }
    left_out = tuple(name for name, encoding in encodings.items() if encoding.causal)
    return Permutations(tuple(found), tuple(found.values()), left_out)
