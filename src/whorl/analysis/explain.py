"""An encoding step by step, on numbers small enough to follow by hand.

Every number is computed by the module itself. Two steps are the same for all encodings: scores of
one query and one key at several positions m and n, which are equal for equal m - n if the encoding
is relative, and whether outputs depend on the order of tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.encodings import Encoding, RoPE

from .decay import convert_to_complex
from .permutation import permutation
from .record import Record, check_int, convert_to_rows, make_generator, sample_normal
from .scores import compute_embedding, compute_scores, copy_in_float64, map_to_heads
from .sizes import get_sizes
from .terms import terms

__all__ = ["Explanation", "ExplanationStep", "explain"]

Cell = str | int | float

#: Positions (m, n) of a query and a key: three differences, each near the start and far from it.
_POSITION_PAIRS = ((1, 0), (3, 2), (41, 40), (5, 1), (9, 5), (44, 40), (12, 3), (19, 10), (49, 40))
_DISTANCES = (0, 1, 2, 3, 4, 8, 16, 32, 64)
_ROW_LIMIT = 8


@dataclass(frozen=True)
class ExplanationStep(Record):
    """One step of an explanation, in words and as a table."""

    title: str
    words: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


@dataclass(frozen=True)
class Explanation(Record):
    """An encoding, its formula, and the steps that explain it."""

    encoding: str
    formula: str
    paper: str
    position: int
    steps: tuple[ExplanationStep, ...]
    #: Options of the example that the caller did not choose.
    notes: tuple[str, ...] = ()


@torch.no_grad()
def explain(encoding: Encoding, position: int = 3, *, seed: int = 0) -> Explanation:
    """What the encoding does at a position, hook by hook, and whether it is relative.

    Use a small encoding, such as ``whorl.RoPE(6)``: every pair or channel gets a line.

    >>> import whorl
    >>> steps = explain(whorl.RoPE(6), 3).steps
    >>> [step.title for step in steps][:3]
    ['1. Pairs of channels', '2. Angles at position 3', '3. The rotation']
    >>> steps[1].rows[0][:3]  # pair, p theta in radians and in degrees
    (0, 3.0, 171.887...)
    """
    wide = copy_in_float64(encoding, "explain")
    check_int(position, "position", "explain", 0, 2**24)
    make_generator(seed, "explain")
    steps: list[ExplanationStep] = []
    for part in wide.parts:
        if isinstance(part, RoPE):
            steps += _explain_rope(part, position)
        else:
            steps += _explain_hooks(part, position, seed)
    steps.append(_explain_relativity(wide, seed))
    steps.append(_explain_order(wide))
    cards = [part.card for part in wide.parts]
    return Explanation(
        encoding=repr(encoding),
        formula="; ".join(card.formula for card in cards if card is not None),
        paper="; ".join(f"{card.paper}, {card.url}" for card in cards if card is not None),
        position=position,
        steps=tuple(
            ExplanationStep(f"{n}. {s.title}", s.words, s.heads, s.rows)
            for n, s in enumerate(steps, 1)
        ),
    )


def _explain_rope(rope: RoPE, position: int) -> list[ExplanationStep]:
    used = rope.frequencies(position + 1)
    angle = position * used.inv_freq
    return [
        _explain_pairs(rope, used.inv_freq),
        ExplanationStep(
            f"Angles at position {position}",
            f"angle = {position} theta",
            ("pair", "radians", "degrees", "cos", "sin"),
            tuple(
                (i, float(r), math.degrees(float(r)), math.cos(float(r)), math.sin(float(r)))
                for i, r in enumerate(angle)
            ),
        ),
        *_explain_rotated_vector(rope, position, float(used.attention_scale)),
    ]


def _explain_pairs(rope: RoPE, theta: Tensor) -> ExplanationStep:
    """Which channels form each pair, and how fast it rotates."""
    config, first = rope.config, rope.config.rotary_start
    channels = _list_channel_pairs(rope, config.head_dim)
    partial = config.width < config.head_dim
    others = f"; channels outside {first} .. {first + config.width - 1} do not change" * partial
    return ExplanationStep(
        "Pairs of channels",
        f"layout {config.layout!r} pairs channels as below{others}; theta = base^(-2 i / R) is the"
        " angle of a pair per position, in radians",
        ("pair", "channels", "theta", "wavelength"),
        tuple(
            (i, f"{a}, {b}", float(theta[i]), math.tau / float(theta[i]) if theta[i] else math.inf)
            for i, (a, b) in enumerate(channels)
        ),
    )


def _list_channel_pairs(part: Encoding, head_dim: int) -> list[tuple[int, int]]:
    """The two channels of each pair that a rotation rotates."""
    config = part.config
    P, first = getattr(config, "width", head_dim) // 2, getattr(config, "rotary_start", 0)
    if getattr(config, "layout", "half") == "half":
        return [(first + i, first + i + P) for i in range(P)]
    return [(first + 2 * i, first + 2 * i + 1) for i in range(P)]


def _explain_rotated_vector(rope: RoPE, position: int, scale: float) -> list[ExplanationStep]:
    """The vector (1, 2, 3, ...) before and after the rotation, and its norms."""
    x = torch.arange(1, rope.config.head_dim + 1, dtype=torch.float64)
    rotated = rope.rotate(
        x.view(1, 1, 1, -1), torch.tensor([position]), context_length=position + 1
    ).flatten()
    before, after = convert_to_complex(x, rope), convert_to_complex(rotated, rope)
    return [
        ExplanationStep(
            "The rotation",
            "a' = a cos - b sin, b' = a sin + b cos, of x = (1, 2, 3, ...)"
            + (f"; times the attention scale {scale:.6g}" if scale != 1 else ""),
            ("pair", "a", "b", "a'", "b'", "|(a, b)|", "|(a', b')|"),
            tuple(
                (i, z.real, z.imag, w.real, w.imag, abs(z), abs(w))
                for i, (z, w) in enumerate(zip(before.tolist(), after.tolist(), strict=True))
            ),
        ),
        ExplanationStep(
            "Norms",
            "a rotation does not change the norm of a vector"
            if scale == 1
            else "the attention scale multiplies the norms",
            ("", "before", "after"),
            (("|x|", float(x.norm()), float(rotated.norm())),),
        ),
    ]


def _explain_hooks(part: Encoding, position: int, seed: int) -> list[ExplanationStep]:
    steps = []
    if "input" in part.hooks:
        steps.append(_explain_input(part, position))
    if "rotation" in part.hooks:
        steps.append(_explain_rotation(part, position))
    if part.distance_bias(torch.zeros(1, dtype=torch.long)) is not None:
        steps.append(_explain_bias(part, position))
    if part.acts("content_score"):
        steps.append(_explain_content_score(part, position, seed))
    if part.acts("value_term"):
        steps.append(
            ExplanationStep("Values", "a vector for each distance is also added to the values")
        )
    if not steps:
        steps.append(ExplanationStep("Nothing", "queries, keys and scores do not change"))
    return steps


def _explain_input(part: Encoding, position: int) -> ExplanationStep:
    width = get_sizes(part).width
    at = tuple(dict.fromkeys((0, 1, 2, position)))
    found = compute_embedding(part, width, torch.tensor(at))
    shown = min(width, _ROW_LIMIT)
    more = f" (the first {shown} of {width} channels)" if shown < width else ""
    return ExplanationStep(
        "Added to the embedding",
        f"a vector for each position{more}{_note_training(part)}",
        ("channel", *(f"p = {p}" for p in at)),
        tuple((c, *row) for c, row in enumerate(convert_to_rows(found.T[:shown]))),
    )


def _explain_rotation(part: Encoding, position: int) -> ExplanationStep:
    """Angle and factor of each pair, measured on unit vectors that the module rotates."""
    sizes = get_sizes(part, num_heads=1)
    pairs = _list_channel_pairs(part, sizes.head_dim)
    P = len(pairs)
    ones = torch.zeros(1, sizes.num_heads, P, sizes.head_dim, dtype=torch.float64)
    for i, (a, _) in enumerate(pairs):
        ones[:, :, i, a] = 1.0
    axes = part.position_axes
    places = torch.full((P,), position)
    if axes > 1:  # different positions on each axis, to distinguish the axes
        places = torch.stack([places + axis for axis in range(axes)])
    q, k = part(ones, ones[:, : sizes.key_heads], places)
    along = _find_pair_axes(part, ones, pairs) if axes > 1 else []
    lines: list[tuple[Cell, ...]] = []
    for i, (a, b) in enumerate(pairs[: 2 * _ROW_LIMIT]):
        z, w = (complex(float(t[0, 0, i, a]), float(t[0, 0, i, b])) for t in (q, k))
        degrees = math.degrees(math.atan2(z.imag, z.real))
        lines.append((i, f"{a}, {b}", *(along[i] if along else ()), degrees, abs(z), abs(w)))
    where = str(position) if axes == 1 else ", ".join(str(position + n) for n in range(axes))
    more = f"; the first {len(lines)} of {P} pairs" if len(lines) < P else ""
    several = f". The {axes} axes have different positions, to distinguish them" * (axes > 1)
    return ExplanationStep(
        f"Rotation at position ({where})" if axes > 1 else f"Rotation at position {where}",
        f"the angle of each pair (degrees, wrapped to -180 .. 180){more}{several}",
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


def _find_pair_axes(
    part: Encoding, ones: Tensor, pairs: list[tuple[int, int]]
) -> list[tuple[int, float]]:
    """The axis whose position rotates each pair, and its angle per step on it, in radians."""
    angles = []
    for axis in range(part.position_axes):
        step = torch.zeros(part.position_axes, len(pairs), dtype=torch.long)
        step[axis] = 1
        q, _ = part(ones, ones[:, :1], step)
        angles.append([math.atan2(float(q[0, 0, i, b]), float(q[0, 0, i, a]))
                       for i, (a, b) in enumerate(pairs)])  # fmt: skip
    found = []
    for each in zip(*angles, strict=True):
        axis = max(range(len(each)), key=lambda n: abs(each[n]))
        found.append((axis, each[axis]))
    return found


def _explain_bias(part: Encoding, position: int) -> ExplanationStep:
    distances = sorted({*_DISTANCES, position})
    found = part.distance_bias(torch.tensor(distances))
    assert found is not None
    shown = min(found.shape[0], _ROW_LIMIT)
    more = f"; {shown} of {found.shape[0]} heads" if shown < found.shape[0] else ""
    return ExplanationStep(
        "Added to the score",
        f"a number for each head and distance i - j{more}{_note_training(part)}",
        ("distance", *(f"head {h}" for h in range(shown))),
        tuple(
            (d, *row)
            for d, row in zip(distances, convert_to_rows(found[:shown].double().T), strict=True)
        ),
    )


def _explain_content_score(part: Encoding, position: int, seed: int) -> ExplanationStep:
    sizes, source = get_sizes(part), make_generator(seed, "explain")
    q, k = (
        sample_normal(source, 1, heads, 1, sizes.head_dim)
        for heads in (sizes.num_heads, sizes.key_heads)
    )
    found = terms(part, q, k, torch.tensor([position]), torch.tensor([0]))
    lines: list[tuple[Cell, ...]] = [(n, float(t[0, 0, 0, 0])) for n, t in found.terms.items()]
    lines.append(("score, their sum", float(found.score[0, 0, 0, 0])))
    return ExplanationStep(
        "Terms of a score",
        f"for a random query at {position} and a random key at 0, head 0, in logits"
        f"{_note_training(part)}",
        ("term", "logits"),
        tuple(lines),
    )


def _explain_relativity(encoding: Encoding, seed: int) -> ExplanationStep:
    """Scores of one query and one key at several positions, and whether they are relative."""
    sizes = get_sizes(encoding)
    source = make_generator(seed, "explain")
    found = [
        _compute_score(encoding, m, n, sizes, source.manual_seed(seed)) for m, n in _POSITION_PAIRS
    ]
    groups: dict[int, list[float]] = {}
    for (m, n), score in zip(_POSITION_PAIRS, found, strict=True):
        groups.setdefault(m - n, []).append(score)
    size = max(map(abs, found)) or 1.0
    spread = max(max(group) - min(group) for group in groups.values()) / size
    axes = encoding.position_axes
    on_axes = f" on all {axes} axes" if axes > 1 else ""
    verdict = (
        "equal differences give equal scores: the encoding is relative"
        if spread < 1e-9
        else f"equal differences give different scores (by {spread:.2g} of the largest): it is not"
        " relative"
    )
    return ExplanationStep(
        "Is it relative?",
        f"scores of the same query at m and key at n{on_axes}, head 0: {verdict}",
        ("m", "n", "m - n", "score"),
        tuple((m, n, m - n, s) for (m, n), s in zip(_POSITION_PAIRS, found, strict=True)),
    )


def _compute_score(
    encoding: Encoding, m: int, n: int, sizes: tuple[int, int, int, int], source: torch.Generator
) -> float:
    """The score of head 0 for a random query at m and a random key at n."""
    H, G, D, width = sizes

    ats = torch.tensor([m]), torch.tensor([n])
    if "input" in encoding.hooks:
        both = [sample_normal(source, 1, 1, width) for _ in range(2)]
        x, y = (encoding.embed(t, at) * width**-0.5 for t, at in zip(both, ats, strict=True))
        q, k = map_to_heads(x, source, H, D), map_to_heads(y, source, H, D)
    else:
        q, k = sample_normal(source, 1, H, 1, D), sample_normal(source, 1, G, 1, D)
    return float(compute_scores(encoding, q, k, *ats)[0, 0, 0, 0])


def _explain_order(encoding: Encoding) -> ExplanationStep:
    if encoding.causal:
        words = "it is for causal attention only, which depends on order by itself"
        return ExplanationStep("Does it see order?", words)
    change = permutation(encoding)
    words = "no: shuffled tokens give shuffled outputs" if change < 1e-9 else "yes"
    return ExplanationStep(
        "Does it see order?",
        f"outputs change by {change:.3g} of the largest if tokens are shuffled and the outputs put"
        f" back in order, without a causal mask: {words}",
    )


def _note_training(part: Encoding) -> str:
    return "; trained parameters at their start" if any(True for _ in part.parameters()) else ""
