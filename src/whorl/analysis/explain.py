"""An encoding step by step on numbers small enough to follow by hand.

Every number comes from the module itself. The last step is the same for all: scores of one query
and one key at several places m and n. Where equal differences m - n give equal scores, the encoding
is relative.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.encodings import Encoding, RoPE

from .decay import complex_pairs
from .permutation import permutation
from .record import Record, generator, rows, whole
from .scores import embedded, scores, widened
from .sizes import sizes_of
from .terms import terms

__all__ = ["Explanation", "Step", "explain"]

Cell = str | int | float

#: Places (m, n) of a query and a key: three differences, each near the start and far from it.
_PLACES = ((1, 0), (3, 2), (41, 40), (5, 1), (9, 5), (44, 40), (12, 3), (19, 10), (49, 40))
_DISTANCES = (0, 1, 2, 3, 4, 8, 16, 32, 64)
_SHOWN = 8


@dataclass(frozen=True)
class Step(Record):
    """What happens, in words and as a table."""

    title: str
    words: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


@dataclass(frozen=True)
class Explanation(Record):
    """An encoding, its formula, and the steps."""

    encoding: str
    formula: str
    paper: str
    position: int
    steps: tuple[Step, ...]
    #: What was chosen for the example, where nobody said it.
    notes: tuple[str, ...] = ()


@torch.no_grad()
def explain(encoding: Encoding, position: int = 3, *, seed: int = 0) -> Explanation:
    """What the encoding does at a position, hook by hook, and whether it is relative.

    Make it small, such as ``whorl.RoPE(6)``: every pair and channel gets a line, up to some.

    >>> import whorl
    >>> steps = explain(whorl.RoPE(6), 3).steps
    >>> [step.title for step in steps][:3]
    ['1. Pairs of channels', '2. Angles at position 3', '3. The rotation']
    >>> steps[1].rows[0][:3]  # pair, p theta in radians and in degrees
    (0, 3.0, 171.887...)
    """
    wide = widened(encoding, "explain")
    whole(position, "position", "explain", 0, 2**24)
    generator(seed, "explain")
    steps: list[Step] = []
    for part in wide.parts:
        if isinstance(part, RoPE):
            steps += _rope(part, position)
        else:
            steps += _hooks(part, position, seed)
    steps.append(_relativity(wide, seed))
    steps.append(_order(wide))
    cards = [part.card for part in wide.parts]
    return Explanation(
        encoding=repr(encoding),
        formula="; ".join(card.formula for card in cards if card is not None),
        paper="; ".join(f"{card.paper}, {card.url}" for card in cards if card is not None),
        position=position,
        steps=tuple(
            Step(f"{n}. {s.title}", s.words, s.heads, s.rows) for n, s in enumerate(steps, 1)
        ),
    )


def _rope(rope: RoPE, position: int) -> list[Step]:
    turns = rope.frequencies(position + 1)
    angle = position * turns.inv_freq
    return [
        _paired(rope, turns.inv_freq),
        Step(
            f"Angles at position {position}",
            f"angle = {position} theta",
            ("pair", "radians", "degrees", "cos", "sin"),
            tuple(
                (i, float(r), math.degrees(float(r)), math.cos(float(r)), math.sin(float(r)))
                for i, r in enumerate(angle)
            ),
        ),
        *_turned(rope, position, float(turns.attention_scale)),
    ]


def _paired(rope: RoPE, theta: Tensor) -> Step:
    """Which channels form a pair, and how fast it turns."""
    config = rope.config
    P, first = config.width // 2, config.rotary_start
    half = config.layout == "half"
    channels = [
        (first + i, first + i + P) if half else (first + 2 * i, first + 2 * i + 1) for i in range(P)
    ]
    kept = f"; channels outside {first} .. {first + config.width - 1} pass" * (
        config.width < config.head_dim
    )
    return Step(
        "Pairs of channels",
        f"layout {config.layout!r} pairs channels as below{kept}; theta = base^(-2 i / R) is"
        " what a pair turns by per position, in radians",
        ("pair", "channels", "theta", "positions per turn"),
        tuple(
            (i, f"{a}, {b}", float(theta[i]), math.tau / float(theta[i]) if theta[i] else math.inf)
            for i, (a, b) in enumerate(channels)
        ),
    )


def _turned(rope: RoPE, position: int, scale: float) -> list[Step]:
    """The vector (1, 2, 3, ...) before and after, and its norms."""
    x = torch.arange(1, rope.config.head_dim + 1, dtype=torch.float64)
    turned = rope.rotate(
        x.view(1, 1, 1, -1), torch.tensor([position]), context_length=position + 1
    ).flatten()
    before, after = complex_pairs(x, rope), complex_pairs(turned, rope)
    return [
        Step(
            "The rotation",
            "a' = a cos - b sin, b' = a sin + b cos, of x = (1, 2, 3, ...)"
            + (f"; times the attention scale {scale:.6g}" if scale != 1 else ""),
            ("pair", "a", "b", "a'", "b'", "|(a, b)|", "|(a', b')|"),
            tuple(
                (i, z.real, z.imag, w.real, w.imag, abs(z), abs(w))
                for i, (z, w) in enumerate(zip(before.tolist(), after.tolist(), strict=True))
            ),
        ),
        Step(
            "Norms",
            "a rotation keeps the length of a vector" if scale == 1 else "all lengths grow by it",
            ("", "before", "after"),
            (("|x|", float(x.norm()), float(turned.norm())),),
        ),
    ]


def _hooks(part: Encoding, position: int, seed: int) -> list[Step]:
    steps = []
    if "input" in part.hooks:
        steps.append(_input(part, position))
    if "rotation" in part.hooks:
        steps.append(_rotation(part, position))
    if part.distance_bias(torch.zeros(1, dtype=torch.long)) is not None:
        steps.append(_bias(part, position))
    if part.acts("content_score"):
        steps.append(_content(part, position, seed))
    if part.acts("value_term"):
        steps.append(
            Step("Values", "vectors by distance are also added to the values that are mixed")
        )
    if not steps:
        steps.append(Step("Nothing", "queries, keys and scores are left as they are"))
    return steps


def _input(part: Encoding, position: int) -> Step:
    width = sizes_of(part).width
    at = tuple(dict.fromkeys((0, 1, 2, position)))
    found = embedded(part, width, torch.tensor(at))
    shown = min(width, _SHOWN)
    more = f" (the first {shown} of {width} channels)" if shown < width else ""
    return Step(
        "Added to the embedding",
        f"a vector for each position{more}{_trained(part)}",
        ("channel", *(f"p = {p}" for p in at)),
        tuple((c, *row) for c, row in enumerate(rows(found.T[:shown]))),
    )


def _rotation(part: Encoding, position: int) -> Step:
    """Angle and factor of each pair, read off unit vectors that the module rotates."""
    sizes, config = sizes_of(part, num_heads=1), part.config
    width = getattr(config, "width", sizes.head_dim)
    P, first = width // 2, getattr(config, "rotary_start", 0)
    half = getattr(config, "layout", "half") == "half"
    pairs = [(first + i, first + i + P) if half else (first + 2 * i, first + 2 * i + 1)
             for i in range(P)]  # fmt: skip
    ones = torch.zeros(1, sizes.num_heads, P, sizes.head_dim, dtype=torch.float64)
    for i, (a, _) in enumerate(pairs):
        ones[:, :, i, a] = 1.0
    axes = part.position_axes
    places = torch.full((P,), position)
    if axes > 1:  # a step more on each axis tells them apart
        places = torch.stack([places + axis for axis in range(axes)])
    q, k = part(ones, ones[:, : sizes.key_heads], places)
    along = _axes(part, ones, pairs) if axes > 1 else []
    lines: list[tuple[Cell, ...]] = []
    for i, (a, b) in enumerate(pairs[: 2 * _SHOWN]):
        z, w = (complex(float(t[0, 0, i, a]), float(t[0, 0, i, b])) for t in (q, k))
        turn = math.degrees(math.atan2(z.imag, z.real))
        lines.append((i, f"{a}, {b}", *(along[i] if along else ()), turn, abs(z), abs(w)))
    where = str(position) if axes == 1 else ", ".join(str(position + n) for n in range(axes))
    more = f"; the first {len(lines)} of {P} pairs" if len(lines) < P else ""
    several = f". It has {axes} axes: each is a step further on, to tell them apart" * (axes > 1)
    return Step(
        f"Rotation at position ({where})" if axes > 1 else f"Rotation at position {where}",
        f"each pair turns (degrees, wrapped to -180 .. 180){more}{several}",
        (
            "pair",
            "channels",
            *(("axis", "theta") if along else ()),
            "degrees",
            "factor on q",
            "factor on k",
        ),
        tuple(lines),
    )


def _axes(part: Encoding, ones: Tensor, pairs: list[tuple[int, int]]) -> list[tuple[int, float]]:
    """The axis that each pair follows, and what it turns by for a step along it, in radians."""
    turns = []
    for axis in range(part.position_axes):
        step = torch.zeros(part.position_axes, len(pairs), dtype=torch.long)
        step[axis] = 1
        q, _ = part(ones, ones[:, :1], step)
        turns.append([math.atan2(float(q[0, 0, i, b]), float(q[0, 0, i, a]))
                      for i, (a, b) in enumerate(pairs)])  # fmt: skip
    found = []
    for each in zip(*turns, strict=True):
        axis = max(range(len(each)), key=lambda n: abs(each[n]))
        found.append((axis, each[axis]))
    return found


def _bias(part: Encoding, position: int) -> Step:
    distances = sorted({*_DISTANCES, position})
    found = part.distance_bias(torch.tensor(distances))
    assert found is not None
    shown = min(found.shape[0], _SHOWN)
    more = f"; {shown} of {found.shape[0]} heads" if shown < found.shape[0] else ""
    return Step(
        "Added to the score",
        f"a number for each head and distance i - j{more}{_trained(part)}",
        ("distance", *(f"head {h}" for h in range(shown))),
        tuple((d, *row) for d, row in zip(distances, rows(found[:shown].double().T), strict=True)),
    )


def _content(part: Encoding, position: int, seed: int) -> Step:
    sizes, source = sizes_of(part), generator(seed, "explain")
    q, k = (
        torch.randn(1, heads, 1, sizes.head_dim, generator=source, dtype=torch.float64)
        for heads in (sizes.num_heads, sizes.key_heads)
    )
    found = terms(part, q, k, torch.tensor([position]), torch.tensor([0]))
    lines: list[tuple[Cell, ...]] = [(n, float(t[0, 0, 0, 0])) for n, t in found.terms.items()]
    lines.append(("score, their sum", float(found.score[0, 0, 0, 0])))
    return Step(
        "Terms of a score",
        f"of a random query at {position} and a random key at 0, head 0, in logits{_trained(part)}",
        ("term", "logits"),
        tuple(lines),
    )


def _relativity(encoding: Encoding, seed: int) -> Step:
    """One query and one key, or one token's embedding, at several places."""
    sizes = sizes_of(encoding)
    source = generator(seed, "explain")
    found = [_score(encoding, m, n, sizes, source.manual_seed(seed)) for m, n in _PLACES]
    groups: dict[int, list[float]] = {}
    for (m, n), score in zip(_PLACES, found, strict=True):
        groups.setdefault(m - n, []).append(score)
    size = max(map(abs, found)) or 1.0
    spread = max(max(group) - min(group) for group in groups.values()) / size
    verdict = (
        "equal differences give equal scores: the encoding is relative"
        if spread < 1e-9
        else f"equal differences give different scores (by {spread:.2g} of the largest): it is not"
        " relative"
    )
    return Step(
        "Is it relative?",
        f"scores of the same query at m and key at n{_all(encoding)}, head 0: {verdict}",
        ("m", "n", "m - n", "score"),
        tuple((m, n, m - n, s) for (m, n), s in zip(_PLACES, found, strict=True)),
    )


def _score(
    encoding: Encoding, m: int, n: int, sizes: tuple[int, int, int, int], source: torch.Generator
) -> float:
    H, G, D, width = sizes

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    at, keys_at = torch.tensor([m]), torch.tensor([n])
    if "input" in encoding.hooks:
        x, y = (encoding.embed(random(1, 1, width), where) * width**-0.5 for where in (at, keys_at))
        q, k = ((t @ random(width, H * D)).unflatten(-1, (H, D)).transpose(1, 2) for t in (x, y))
    else:
        q, k = random(1, H, 1, D), random(1, G, 1, D)
    return float(scores(encoding, q, k, at, keys_at)[0, 0, 0, 0])


def _order(encoding: Encoding) -> Step:
    if encoding.causal:
        return Step("Does it see order?", "it is for causal attention only, which does by itself")
    change = permutation(encoding)
    words = "no: shuffled tokens give shuffled outputs" if change < 1e-9 else "yes"
    return Step(
        "Does it see order?",
        f"outputs change by {change:.3g} of the largest when tokens are shuffled and put back, with"
        f" no causal mask: {words}",
    )


def _all(encoding: Encoding) -> str:
    axes = encoding.position_axes
    return f" on all {axes} axes" if axes > 1 else ""


def _trained(part: Encoding) -> str:
    return "; trained numbers as they start" if any(True for _ in part.parameters()) else ""
