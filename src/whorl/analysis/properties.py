"""The report card: properties of position encodings, measured on the modules themselves.

unique          of N distances (positions, for encodings of the input), how many look different
deterministic   do two instances made under two seeds agree, and does training change them?
extrapolates    at 16 times the length: is it refused? what share of the numbers is outside their
                earlier range? how much attention goes to distances past the length?
relative        change of scores if query and key move together, relative to the largest score
decays          rank correlation of the score of equal tokens with their distance, and its fall
n-D             how many axes positions have, and whether scores depend on each of them
norm            change of the norm of a query, or of an embedding
linear          whether linear attention supports it, with and without a causal mask

Trained parameters are random, so that results do not depend on what a model learns. Extrapolation
is that of the formula: whether a model keeps its quality is an experiment (``whorl compare``), and
the results of those are ``Card.longer``, "longer than trained" in the table of encodings. ``RULES``
has the thresholds of all verdicts.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from whorl._support import memory
from whorl.attention import attention
from whorl.encodings import Encoding, NoPE, names
from whorl.testing.inputs import set_random_parameters

from . import _measures as measure
from ._measures import HEAD_DIM, HEADS, LENGTH, PropertyVerdict
from .record import Record, check_int
from .scores import copy_in_float64, repeat_on_axes
from .sizes import get_sizes, make_for_sizes

__all__ = ["Cost", "Properties", "ReportCard", "properties"]


_EXPLANATIONS = (
    "new: share of the encoding's numbers that leave their range past the length; far: share of"
    " attention past the length, 94% if weights are equal. Both are about the formula; whorl"
    " compare measures whether a trained model works there, and the table of encodings has the"
    " results (longer than trained).",
    "rank: rank correlation of the score of equal tokens with distance; by: its fall in logits;"
    " the worst of five draws of trained parameters.",
)


@dataclass(frozen=True)
class Cost(Record):
    """Time of one causal attention call at a length, and time and memory compared with NoPE."""

    length: int
    milliseconds: float
    times_nope: float
    extra_megabytes: float


@dataclass(frozen=True)
class Properties(Record):
    """Verdicts by property, their evidence in words, and the measured numbers."""

    name: str
    encoding: str
    verdicts: dict[str, PropertyVerdict]
    evidence: dict[str, str]
    numbers: dict[str, float]
    parameters: int
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class ReportCard(Record):
    """One row for each encoding, and the sizes used to measure them."""

    num_heads: int
    head_dim: int
    length: int
    rules: dict[str, str]  # the condition for "yes", by property
    words: tuple[str, ...]  # explanations of the words in the evidence
    rows: tuple[Properties, ...]


@torch.no_grad()
def properties(
    encodings: Sequence[str] | None = None, *, lengths: Sequence[int] = (512, 2048)
) -> ReportCard:
    """The report card of encodings by name, by default of all; "rope+alibi" composes two.

    lengths: those at which to measure time and memory; an empty list skips that.

    >>> card = properties(["rope", "nope"], lengths=[])
    >>> [row.verdicts["unique"] for row in card.rows]
    ['yes', 'no']
    """
    chosen = names() if encodings is None else list(dict.fromkeys(encodings))
    if not chosen:
        raise ValueError("properties: encodings must have at least one name; got none.")
    for length in lengths:
        check_int(length, "each of lengths", "properties", 1, 65_536)
    once = tuple(dict.fromkeys(lengths))
    rows = tuple(_measure_encoding(name, once) for name in chosen)
    return ReportCard(HEADS, HEAD_DIM, LENGTH, dict(measure.RULES), _EXPLANATIONS, rows)


def _measure_encoding(name: str, lengths: Sequence[int]) -> Properties:
    encoding = measure.make_sized(name)
    wide = copy_in_float64(set_random_parameters(measure.make_sized(name)), "properties")
    found = {
        "unique": measure.measure_uniqueness(wide),
        "deterministic": measure.measure_determinism(name),
        "extrapolates": measure.measure_extrapolation(wide, name),
        "relative": measure.measure_relativity(wide),
        "decays": measure.measure_decay(name, wide),
        "n-D": measure.measure_axes(wide),
        "norm": measure.measure_norm(wide),
        "linear": measure.measure_linear_attention(encoding),
    }
    return Properties(
        name=name,
        encoding=repr(encoding),
        verdicts={key: each[0] for key, each in found.items()},
        evidence={key: each[1] for key, each in found.items()},
        numbers={k: v for each in found.values() for k, v in each[2].items()},
        parameters=sum(p.numel() for p in encoding.parameters()),
        costs=tuple(_measure_cost(name, n) for n in lengths),
    )


def _time_attention(encoding: Encoding, length: int) -> tuple[float, int]:
    """Seconds of one call, the best of three, and the bytes by which memory grew at its peak."""
    H, G, D, width = get_sizes(encoding, num_heads=HEADS, head_dim=HEAD_DIM)
    source = torch.Generator().manual_seed(4)
    q, k = (torch.randn(1, heads, length, D, generator=source) for heads in (H, G))
    at, x = repeat_on_axes(encoding, torch.arange(length)), torch.zeros(1, length, width)
    positions = at if encoding.position_axes > 1 else None
    best, before = math.inf, memory.reset_peak()
    for _ in range(3):
        start = time.perf_counter()
        if "input" in encoding.hooks:
            encoding.embed(x)
        attention(q, k, k, encoding, causal=True, positions=positions)
        best = min(best, time.perf_counter() - start)
    return best, max(0, memory.read_peak() - before)


def _measure_cost(name: str, length: int) -> Cost:
    base = _time_attention(NoPE(), length)  # again each time, because the speed of machines varies
    longest = max(LENGTH, length)
    encoding = make_for_sizes(name, num_heads=HEADS, head_dim=HEAD_DIM, max_length=longest)
    seconds, peak = _time_attention(encoding, length)
    return Cost(length, seconds * 1e3, seconds / base[0], max(0, peak - base[1]) / 1e6)
