"""Which pairs a context extension keeps, blends and interpolates, for every scaling."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl import scaling as scalings
from whorl._support.words import quote
from whorl.scaling import Ladder, Scaling
from whorl.scaling.base import from_dict

from .record import Record, check_int

__all__ = ["Extensions", "ScalingExtension", "extensions"]


@dataclass(frozen=True)
class ScalingExtension(Record):
    """One scaling, pair by pair; a factor is unscaled over scaled frequency, None if that is 0."""

    name: str
    scaling: str
    note: str
    statuses: tuple[str, ...]
    factors: tuple[float | None, ...]
    attention_scale: float
    #: Tokens up to which no pair has an out-of-distribution angle; None: no limit.
    effective_context: int | None

    json_names: ClassVar[Mapping[str, str]] = {"effective_context": "reach"}


@dataclass(frozen=True)
class Extensions(Record):
    """All scalings for one model and factor; left_out: those that need more options."""

    rotary_dim: int
    base: float
    original_context: int
    factor: float
    wavelengths: tuple[float, ...]
    extensions: tuple[ScalingExtension, ...]
    left_out: tuple[str, ...]


def extensions(
    rotary_dim: int = 128,
    *,
    base: float = 10_000.0,
    original_context: int = 4096,
    factor: float = 8.0,
    names: Sequence[str] | None = None,
) -> Extensions:
    """What every registered scaling does to the frequencies of one model.

    LongRoPE's factors come from a search for each model; here they increase from 1 to ``factor`` in
    equal steps on a log scale, as those of NTK do. Proportional rotates a quarter of the pairs.

    >>> found = extensions(names=["linear", "yarn"])
    >>> [(e.name, e.statuses.count("kept")) for e in found.extensions]
    [('linear', 0), ('yarn', 21)]
    """
    check_int(original_context, "original_context", "extensions", 2, 2**40)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor <= 1e6:
        raise ValueError(
            f"extensions: factor must be a number from 1 to 1,000,000; got {quote(factor)}."
        )
    chosen = list(names) if names is not None else scalings.names()
    ladder = Ladder.of(rotary_dim, base)
    found, left_out = [], []
    for name in chosen:
        made = make_scaling(name, float(factor), original_context, rotary_dim // 2)
        if made is None:
            left_out.append(name)
            continue
        scaling, note = made
        text = repr(scaling)
        own = getattr(scaling, "original_context", None) is not None
        described = scaling.describe(
            ladder,
            round(original_context * factor),
            original_context=None if own else original_context,
        )
        extension = ScalingExtension(
            name=name,
            scaling=text if len(text) <= 120 else f"{text[:117]}...",
            note=note,
            statuses=tuple(pair.status for pair in described.pairs),
            factors=tuple(pair.factor for pair in described.pairs),
            attention_scale=described.attention_scale,
            effective_context=described.effective_context,
        )
        found.append(extension)
    return Extensions(
        rotary_dim=rotary_dim,
        base=float(base),
        original_context=original_context,
        factor=float(factor),
        wavelengths=tuple(ladder.wavelengths.tolist()),
        extensions=tuple(found),
        left_out=tuple(left_out),
    )


def make_scaling(name: str, factor: float, context: int, pairs: int) -> tuple[Scaling, str] | None:
    """The scaling for this factor, and a note about it; None if it needs more options."""
    options: dict[str, Any] = {"factor": factor, "original_context": context}
    note = ""
    if name == "longrope":
        rising = [factor ** (i / max(1, pairs - 1)) for i in range(pairs)]
        options |= {"short_factors": [1.0] * pairs, "long_factors": rising}
        note = "with ntk's factors"
    elif name == "proportional":
        options = {"rotary_share": 0.25}
        note = "a quarter rotates"
    elif name == "dynamic_ntk":
        options["factor"] = 1.0  # so that it scales by the ratio of lengths alone
    if name not in scalings.names():
        from_dict({"name": name})  # raises, and lists the known names
    fields = {f.name: f for f in dataclasses.fields(scalings.base._REGISTRY[name])}
    given = {key: value for key, value in options.items() if key in fields}
    required = [n for n, f in fields.items() if f.default is dataclasses.MISSING]
    if any(n not in given for n in required):
        return None
    return from_dict({"name": name, **given}), note
