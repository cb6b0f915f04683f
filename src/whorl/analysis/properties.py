"""The report card: what people wish of a position encoding, measured on the modules themselves.

unique          of N distances (positions, for encodings of the input), how many look different
deterministic   made under two seeds, do two instances agree, and does training change them?
extrapolates    run at 16 times the length: does it refuse? what share of its numbers is outside
                the range that they had? how much attention goes to distances past the length?
relative        change of scores when query and key move together, over the largest score
decays          rank correlation of the score of equal tokens with their distance, and its fall
n-D             how many axes positions have, and whether scores follow each of them
norm            change of the length of a query, or of an embedding
linear          whether linear attention takes it, with and without a causal mask

Trained parameters are random, so that what holds here holds whatever is learned. Extrapolation is
that of the formula: whether a model keeps its quality is an experiment (``whorl compare``), and
what those say is ``Card.longer``, "longer than trained" in the table of encodings. ``RULES`` has
the thresholds of all verdicts.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support import memory
from whorl.attention import attention
from whorl.encodings import Encoding, NoPE, names
from whorl.testing.probe import randomized

from . import _measures as measure
from ._measures import HEAD_DIM, HEADS, LENGTH, Verdict
from .record import Record, whole
from .scores import widened
from .sizes import Sizes, of_sizes, sizes_of

__all__ = ["Cost", "Properties", "ReportCard", "properties"]


_WORDS = (
    "new: share of its numbers that leave their range past the length; far: share of attention"
    " that goes past it, 94% if even. That is the formula; whether a trained model works there,"
    " whorl compare measures, and the table of encodings says (longer than trained).",
    "rank: rank correlation of the score of equal tokens with distance; by: its fall in logits;"
    " of what is trained, the worst of five draws.",
)


@dataclass(frozen=True)
class Cost(Record):
    """One causal attention call at a length: milliseconds, and both beyond those of NoPE."""

    length: int
    milliseconds: float
    times_nope: float
    extra_megabytes: float


@dataclass(frozen=True)
class Properties(Record):
    """Verdicts by property, the numbers behind them in words, and the numbers themselves."""

    name: str
    encoding: str
    verdicts: dict[str, Verdict]
    evidence: dict[str, str]
    numbers: dict[str, float]
    parameters: int
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class ReportCard(Record):
    """One row for each encoding, and the sizes that they were measured with."""

    num_heads: int
    head_dim: int
    length: int
    rules: dict[str, str]  # what "yes" takes, by property
    words: tuple[str, ...]  # what the words in the evidence mean
    rows: tuple[Properties, ...]


@torch.no_grad()
def properties(
    encodings: Sequence[str] | None = None, *, lengths: Sequence[int] = (512, 2048)
) -> ReportCard:
    """Measure encodings by name, all registered ones by default; "rope+alibi" is one of two.

    lengths: those that time and memory are measured at; none leaves them out.

    >>> card = properties(["rope", "nope"], lengths=[])
    >>> [row.verdicts["unique"] for row in card.rows]
    ['yes', 'no']
    """
    chosen = names() if encodings is None else list(dict.fromkeys(encodings))
    if not chosen:
        raise ValueError("properties: encodings must name at least one.")
    for length in lengths:
        whole(length, "each of lengths", "properties", 1, 65_536)
    once = tuple(dict.fromkeys(lengths))
    rows = tuple(_measured(name, once) for name in chosen)
    return ReportCard(HEADS, HEAD_DIM, LENGTH, dict(measure.RULES), _WORDS, rows)


def _measured(name: str, lengths: Sequence[int]) -> Properties:
    encoding = measure.make(name)
    wide = widened(randomized(measure.make(name)), "properties")
    found = {
        "unique": measure.unique(wide),
        "deterministic": measure.deterministic(name),
        "extrapolates": measure.extrapolates(wide, name),
        "relative": measure.relative(wide),
        "decays": measure.decays(name, wide),
        "n-D": measure.axes(wide),
        "norm": measure.norm(wide),
        "linear": measure.linear(encoding),
    }
    return Properties(
        name=name,
        encoding=repr(encoding),
        verdicts={key: each[0] for key, each in found.items()},
        evidence={key: each[1] for key, each in found.items()},
        numbers={k: v for each in found.values() for k, v in each[2].items()},
        parameters=sum(p.numel() for p in encoding.parameters()),
        costs=tuple(_cost(name, n) for n in lengths),
    )


def _inputs(encoding: Encoding, length: int) -> tuple[Sizes, Tensor, Tensor, Tensor | None]:
    sizes = sizes_of(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(4)
    q, k = (
        torch.randn(1, heads, length, sizes.head_dim, generator=source)
        for heads in (sizes.num_heads, sizes.key_heads)
    )
    axes = encoding.position_axes
    return sizes, q, k, None if axes == 1 else torch.arange(length).expand(axes, -1)


def _call(encoding: Encoding, length: int) -> tuple[float, int]:
    """Seconds of one call, the best of three, and bytes at its peak beyond those before it."""
    sizes, q, k, at = _inputs(encoding, length)
    x = torch.zeros(1, length, sizes.width)
    best, before = math.inf, memory.reset_peak()
    for _ in range(3):
        begun = time.perf_counter()
        if "input" in encoding.hooks:
            encoding.embed(x)
        attention(q, k, k, encoding, causal=True, positions=at)
        best = min(best, time.perf_counter() - begun)
    return best, max(0, memory.read_peak() - before)


def _cost(name: str, length: int) -> Cost:
    base = _call(NoPE(), length)  # each time anew, because machines have moods
    longest = max(LENGTH, length)
    encoding = of_sizes(name, num_heads=HEADS, head_dim=HEAD_DIM, max_length=longest)
    seconds, peak = _call(encoding, length)
    return Cost(length, seconds * 1e3, seconds / base[0], max(0, peak - base[1]) / 1e6)
