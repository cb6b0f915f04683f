"""A scaling step by step: which pairs it slows, by how much, and which angles follow.

Every number comes from ``Scaling.describe``, for one head and one extension. ``explain`` is the
same for encodings.
"""

import math
from typing import NamedTuple

from whorl._support.words import quote
from whorl.scaling import Description, Ladder

from .explain import Explanation, ExplanationStep
from .extensions import make_scaling
from .record import check_int

__all__ = ["explain_scaling"]


class _ScalingCard(NamedTuple):
    """The formula of a scaling, its paper, and what it does in one sentence."""

    formula: str
    paper: str
    words: str


_YARN = "Peng et al. 2023, YaRN, https://arxiv.org/abs/2309.00071"
_BY_PARTS = "theta_i if L theta_i / 2 pi > 32, theta_i / s if it is < 1, a blend between"
_SCALE = "; a = 0.1 ln s + 1 on q and k"
_CARDS = {
    "linear": _ScalingCard(
        "theta'_i = theta_i / s",
        "Chen et al. 2023, Position Interpolation, https://arxiv.org/abs/2306.15595",
        "Every pair is slowed by the same factor, so that the longer context fits into the angles"
        " of training; neighbours come closer together too.",
    ),
    "ntk": _ScalingCard(
        "base' = base s^(R / (R - 2))",
        f"bloc97 2023; {_YARN}, section 3.1",
        "A larger base slows the slowest pair by s, the fastest not at all, and each between by"
        " more than the one before.",
    ),
    "ntk_by_parts": _ScalingCard(
        f"theta'_i = {_BY_PARTS}",
        f"{_YARN}, section 3.2",
        "Pairs that rotate often within the trained length keep their frequency; those that do not"
        " rotate once are slowed by s; those between are blended.",
    ),
    "yarn": _ScalingCard(
        f"theta'_i = {_BY_PARTS}{_SCALE}",
        f"{_YARN}, sections 3.2 to 3.4",
        "As NTK by parts: fast pairs are kept, slow pairs are slowed by s, those between are"
        " blended. Queries and keys are multiplied by the attention scale a as well.",
    ),
    "llama3": _ScalingCard(
        "theta'_i = theta_i if L theta_i / 2 pi > 4, theta_i / s if it is < 1, a blend between",
        "Grattafiori et al. 2024, The Llama 3 Herd of Models, https://arxiv.org/abs/2407.21783",
        "As NTK by parts with other limits: a pair that rotates four times within the trained"
        " length is kept.",
    ),
    "longrope": _ScalingCard(
        "theta'_i = theta_i / short_i up to L, theta_i / long_i past it; a = sqrt(1 + ln s / ln L)",
        "Ding et al. 2024, LongRoPE, https://arxiv.org/abs/2402.13753",
        "Each pair has a factor of its own, which a search over the model finds.",
    ),
    "proportional": _ScalingCard(
        "theta'_i = theta_i for the fast pairs, 0 for the others",
        "Barbero et al. 2024, Round and Round We Go!, https://arxiv.org/abs/2410.06205",
        "The slow pairs do not rotate at all: they carry content without a position. A model must"
        " be trained that way.",
    ),
}
_FOLLOWING = {
    "dynamic_linear": ("linear", "s = max(1, length / L)"),
    "dynamic_ntk": ("ntk", "s = factor length / L - (factor - 1)"),
    "dynamic_yarn": ("yarn", "s = max(1, length / L)"),
}


def explain_scaling(
    name: str,
    position: int | None = None,
    *,
    head_dim: int = 8,
    base: float = 10_000.0,
    factor: float = 4.0,
    trained: int = 4096,
) -> Explanation:
    """What a scaling does to each pair of a head, and to the angle at a position.

    position: by default the last one of the extended context, factor times the trained length.

    >>> found = explain_scaling("yarn")
    >>> [row[1] for row in found.steps[1].rows]
    ['kept', 'kept', 'blended', 'interpolated']
    """
    check_int(trained, "trained", "explain", 2, 2**40)
    if isinstance(factor, bool) or not 1 <= factor <= 1e6:
        raise ValueError(
            f"explain: factor must be a number from 1 to 1,000,000; got {quote(factor)}."
        )
    ladder = Ladder.of(head_dim, base)
    made = make_scaling(name, float(factor), trained, head_dim // 2)
    if made is None:
        raise ValueError(f"explain: {name} needs more options than a factor and a trained length.")
    scaling, note = made
    length = round(trained * factor)
    position = length - 1 if position is None else position
    check_int(position, "position", "explain", 0, 2**53)
    own = getattr(scaling, "original_context", None) is not None
    described = scaling.describe(
        ladder, max(length, position + 1), original_context=None if own else trained
    )
    card = _get_card(name)
    steps = (
        _explain_training(described, trained),
        _explain_scaled_pairs(described, card),
        _explain_angles(described, position),
        _explain_attention_scale(described),
        _explain_effective_context(described, trained),
    )
    return Explanation(
        encoding=f"{repr(scaling)[:120]} on a head of {head_dim} channels, base {base:g}",
        formula=card.formula,
        paper=card.paper,
        position=position,
        steps=tuple(
            ExplanationStep(f"{n}. {s.title}", s.words, s.heads, s.rows)
            for n, s in enumerate(steps, 1)
        ),
        notes=(f"LongRoPE's factors come from a search; here: {note}.",)
        if name == "longrope"
        else (),
    )


def _get_card(name: str) -> _ScalingCard:
    if name not in _FOLLOWING:
        return _CARDS.get(name, _ScalingCard("", "", "What it does to each pair:"))
    fixed, rule = _FOLLOWING[name]
    card = _CARDS[fixed]
    words = f"{card.words} The factor follows the length of the text: {rule}."
    return _ScalingCard(f"{card.formula}; {rule}", card.paper, words)


def _explain_training(described: Description, trained: int) -> ExplanationStep:
    return ExplanationStep(
        "Pairs in training",
        f"theta = base^(-2 i / R); within the trained length L = {trained:,} a pair rotates"
        " L theta / 2 pi times. One that does not rotate once never took all angles.",
        ("pair", "wavelength", "rotations in training"),
        tuple(
            (pair.index, _or_infinite(pair.wavelength), pair.rotations or 0.0)
            for pair in described.pairs
        ),
    )


def _explain_scaled_pairs(described: Description, card: _ScalingCard) -> ExplanationStep:
    return ExplanationStep(
        "What the scaling does",
        card.words,
        ("pair", "status", "divided by", "new wavelength"),
        tuple(
            (
                pair.index,
                pair.status,
                _or_infinite(pair.factor),
                _or_infinite(pair.new_wavelength),
            )
            for pair in described.pairs
        ),
    )


def _explain_angles(described: Description, position: int) -> ExplanationStep:
    """Rotations up to a position with both frequencies, and whether training had such an angle."""
    rows: list[tuple[str | int | float, ...]] = []
    for pair in described.pairs:
        before = position / _or_infinite(pair.wavelength)
        after = position / _or_infinite(pair.new_wavelength)
        trained = pair.rotations or 0.0
        known = trained >= 1 or after <= trained
        rows.append((pair.index, before, after, "yes" if known else "no"))
    return ExplanationStep(
        f"Rotations at position {position:,}",
        "A pair that rotated fully in training knows every angle. Another one knows those up to its"
        " rotations in training, so the scaling has to keep it there.",
        ("pair", "unscaled", "scaled", "angle known from training"),
        tuple(rows),
    )


def _explain_attention_scale(described: Description) -> ExplanationStep:
    a = described.attention_scale
    return ExplanationStep(
        "Attention scale",
        f"Queries and keys are multiplied by a = {a:.6g}, so scores by a^2 = {a * a:.6g}: more keys"
        " share the attention in a long text, and larger scores keep it as sharp."
        if a != 1
        else "a = 1: scores are not scaled.",
    )


def _explain_effective_context(described: Description, trained: int) -> ExplanationStep:
    found = described.effective_context
    words = (
        "No limit: every pair that rotates does so fully in training."
        if found is None
        else f"{found:,} tokens: up to there no pair has an angle that training did not have;"
        f" {trained:,} were trained. Known angles are necessary for good text, not sufficient."
    )
    return ExplanationStep("Effective context", words)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
