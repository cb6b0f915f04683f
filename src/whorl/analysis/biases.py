"""Numbers for charts: bias by distance for each head, terms of a score as maps, permutations."""

from dataclasses import dataclass

import torch

from whorl.encodings import Encoding

from .permutation import permutation
from .record import (
    Record,
    check_int,
    check_memory,
    convert_to_rows,
    make_generator,
    sample_normal,
    sample_positions,
)
from .scores import copy_in_float64
from .sizes import get_sizes
from .terms import terms

__all__ = [
    "BiasCurves",
    "Permutations",
    "TermMaps",
    "bias_curves",
    "permutations",
    "term_maps",
]

_DISTANCE_COUNT = 513


@dataclass(frozen=True)
class BiasCurves(Record):
    """curves[h][n]: the bias of head h for a query and a key that is distances[n] before it."""

    encoding: str
    distances: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
    #: Number of trained parameters; the curves show their current values.
    trained_parameters: int


@dataclass(frozen=True)
class TermMaps(Record):
    """terms[name][m][n]: that term of the score of query m and key n, for one head, in logits."""

    encoding: str
    head: int
    positions: tuple[int, ...]
    terms: dict[str, tuple[tuple[float, ...], ...]]
    sizes: dict[str, float]
    score: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Permutations(Record):
    """By how much outputs change if tokens are shuffled: 0 if the encoding ignores their order."""

    names: tuple[str, ...]
    changes: tuple[float, ...]
    left_out: tuple[str, ...]  # for causal attention only, where the mask itself shows the order


@torch.no_grad()
def bias_curves(
    encoding: Encoding, length: int = 128, *, past: bool = True, future: bool = False
) -> BiasCurves:
    """Bias of each head by distance i - j; negative distances are future keys.

    If there are more than some hundred distances, a sample of them, ever further apart.

    >>> import whorl
    >>> bias_curves(whorl.ALiBi(2), 3).curves
    ((0.0, -0.0625, -0.125), (0.0, -0.00390625, -0.0078125))
    """
    wide = copy_in_float64(encoding, "bias_curves")
    if not past and not future:
        raise ValueError("bias_curves: past or future must be True, or both; got neither.")
    at = sample_positions(check_int(length, "length", "bias_curves", 2, 2**53), _DISTANCE_COUNT)
    before = [-d for d in reversed(at) if d] if future else []
    distances = torch.tensor([*before, *(at if past else [0])])
    found = wide.distance_bias(distances)
    if found is None:
        raise ValueError(
            f"bias_curves: encoding must have a bias by distance; got {encoding!r}. Use term_maps"
            " or similarity to see what it does."
        )
    count = sum(p.numel() for p in encoding.parameters())
    return BiasCurves(
        repr(encoding), tuple(distances.tolist()), convert_to_rows(found.double()), count
    )


@torch.no_grad()
def term_maps(encoding: Encoding, length: int = 32, *, head: int = 0, seed: int = 0) -> TermMaps:
    """The terms of the scores of random tokens with each other, as ``analysis.terms`` splits them.

    >>> import whorl
    >>> sorted(term_maps(whorl.RoPE(16) + whorl.ALiBi(4), 8).terms)
    ['alibi: position-position', 'content-content', 'rope: interaction']
    """
    copy_in_float64(encoding, "term_maps")
    check_int(length, "length", "term_maps", 2)
    sizes = get_sizes(encoding)
    check_int(head, "head", "term_maps", 0, sizes.num_heads - 1)
    check_memory(400 * sizes.num_heads * length**2, length, "term_maps")
    source = make_generator(seed, "term_maps")
    H, D = sizes.num_heads, sizes.head_dim
    axes = encoding.position_axes
    places = torch.arange(length).expand(axes, -1) if axes > 1 else None
    if "input" in encoding.hooks:
        x = sample_normal(source, 1, length, sizes.width)
        projections = [
            sample_normal(source, H * D, sizes.width) * sizes.width**-0.5 for _ in range(2)
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
        q, k = (sample_normal(source, 1, heads, length, D) for heads in (H, sizes.key_heads))
        found = terms(encoding, q, k, places)
    return TermMaps(
        encoding=repr(encoding),
        head=head,
        positions=tuple(range(length)),
        terms={name: convert_to_rows(term[0, head]) for name, term in found.terms.items()},
        sizes=found.sizes(),
        score=convert_to_rows(found.score[0, head]),
    )


def permutations(
    encodings: dict[str, Encoding], *, length: int = 12, seed: int = 0
) -> Permutations:
    """The permutation test for several encodings, by name.

    >>> import whorl
    >>> permutations({"nope": whorl.NoPE()}).changes[0] < 1e-12
    True
    """
    if not encodings:
        raise ValueError("permutations: encodings must have at least one name; got none.")
    found = {
        name: permutation(encoding, length=length, seed=seed)
        for name, encoding in encodings.items()
        if not encoding.causal
    }
    left_out = tuple(name for name, encoding in encodings.items() if encoding.causal)
    return Permutations(tuple(found), tuple(found.values()), left_out)
