"""Every chart of the analysis by name: where its numbers come from, and who draws them.

One definition serves all outputs: ``numbers`` gives the data of a chart, ``chart`` the Altair chart
made from it, ``save`` a file. Options of a chart are the arguments of its function in ``_numbers``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whorl._support.lengths import parse_length
from whorl._support.words import did_you_mean, shown
from whorl.analysis.record import Record
from whorl.analysis.sizes import refuse_unused

from . import _numbers, decay, encodings, frequencies, maps, precision, scalings

__all__ = ["CHARTS", "Entry", "chart", "entry", "numbers", "sample"]

#: Options that are numbers of tokens, which may be typed as 128k or 1e5.
_LENGTHS = ("context", "length", "positions")

Group = Literal["RoPE", "context extension", "any encoding", "a model"]


@dataclass(frozen=True)
class Entry:
    """A chart: its name, one line about it, the function of its numbers, the one that draws."""

    name: str
    group: Group
    summary: str
    numbers: Callable[..., Record]
    draw: Callable[[Mapping[str, Any]], Any]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of its options."""
        parameters = inspect.signature(self.numbers).parameters.values()
        return {p.name: p.default for p in parameters}


def entry(name: str) -> Entry:
    """A chart by its name."""
    key = str(name).replace("_", "-")
    if key not in CHARTS:
        raise ValueError(
            f"unknown chart {name!r}{did_you_mean(key, CHARTS)} Known: {', '.join(CHARTS)}."
        )
    return CHARTS[key]


def numbers(name: str, **options: Any) -> Record:
    """The data of a chart; options may be text, as on a command line.

    >>> numbers("frequencies", dim="8").inv_freq
    (1.0, 0.1, 0.01, 0.001)
    """
    found = entry(name)
    known = found.options
    for option in options:
        if option not in known:
            has = ", ".join(known) or "none"
            raise ValueError(
                f"chart {found.name!r} has no option {option!r}{did_you_mean(option, known)} It"
                f" has: {has}."
            )
    given = {key: _typed(key, value, known[key]) for key, value in options.items()}
    chosen = given.get("encodings") or given.get("encoding") or known.get("encoding")
    if chosen:
        sizes = [word for word in ("dim", "heads") if word in given]
        listed = [chosen] if isinstance(chosen, str) else list(chosen)
        refuse_unused(listed, sizes, f"chart {found.name!r}")
    return found.numbers(**given)


def chart(name: str, **options: Any) -> Any:
    """The Altair chart of this name, drawn from its numbers."""
    return entry(name).draw(numbers(name, **options).to_dict())


def _typed(option: str, value: Any, default: Any) -> Any:
    """Text as what the option's default is; lists are split at commas."""
    if not isinstance(value, str) or isinstance(default, str):
        return value
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "no": False, "false": False}[value.lower()]
        kind = _read_length if option in _LENGTHS else type(default)
        if isinstance(default, tuple):
            if kind is tuple:
                kind = type(default[0]) if default else str
            return tuple(kind(word) for word in value.split(",") if word)
        return kind(value)
    except (ValueError, KeyError):
        words = {bool: "yes or no", int: "a whole number", float: "a number"}
        kinds = words.get(type(default), "values with commas between them")
        wanted = f"{kinds}, such as {sample(default)}"
        if option in _LENGTHS and type(default) is int:
            wanted = "a length such as 4096, 128k or 1e5"
        raise ValueError(f"option {option!r} must be {wanted}; got {shown(value)}.") from None


def _read_length(text: str) -> int:
    """A length as people type it, or a number that may be 0."""
    try:
        return int(text)
    except ValueError:
        return parse_length(text)


def sample(default: Any) -> str:
    """A value of an option as one types it."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


CHARTS: dict[str, Entry] = {
    each.name: each
    for each in (
        Entry(
            "frequencies",
            "RoPE",
            "how fast each pair turns",
            _numbers.frequencies,
            frequencies.frequencies,
        ),
        Entry(
            "wavelengths",
            "RoPE",
            "positions per turn of each pair, against a context",
            _numbers.wavelengths,
            frequencies.wavelengths,
        ),
        Entry(
            "angles",
            "RoPE",
            "angles by pair at some positions",
            _numbers.angles,
            frequencies.angles,
        ),
        Entry(
            "circle", "RoPE", "paths of pairs on the circle", _numbers.circle, frequencies.circle
        ),
        Entry(
            "scores",
            "RoPE",
            "one query, one key, every place: equal along diagonals",
            _numbers.scores,
            maps.inner_products,
        ),
        Entry(
            "decay",
            "RoPE",
            "envelope, Abel's bound, scores of random or trained q, k",
            _numbers.decay,
            decay.decay,
        ),
        Entry("bases", "RoPE", "what the base does to decay", _numbers.bases, decay.bases),
        Entry(
            "aliasing",
            "RoPE",
            "far distances that look near again",
            _numbers.aliasing,
            decay.aliasing,
        ),
        Entry(
            "precision",
            "RoPE",
            "error of tables by position; peers=yes adds peers",
            _numbers.precision,
            precision.precision,
        ),
        Entry(
            "scalings",
            "context extension",
            "which pairs every scaling keeps, blends, interpolates",
            _numbers.scalings,
            scalings.scalings,
        ),
        Entry(
            "attention-scale",
            "context extension",
            "what attention scales do to entropy",
            _numbers.attention_scale,
            scalings.attention_scale,
        ),
        Entry(
            "similarity",
            "any encoding",
            "how alike positions look, each with each",
            _numbers.similarity,
            maps.similarity,
        ),
        Entry(
            "map",
            "any encoding",
            "positions in the plane, by PCA or t-SNE",
            _numbers.map,
            maps.position_map,
        ),
        Entry("bias", "any encoding", "bias by distance, per head", _numbers.bias, encodings.bias),
        Entry(
            "terms", "any encoding", "a score as the sum of its terms", _numbers.terms, maps.terms
        ),
        Entry(
            "permutation",
            "any encoding",
            "do outputs notice shuffled tokens?",
            _numbers.permutation,
            encodings.permutations,
        ),
        Entry(
            "entropy",
            "any encoding",
            "how widely attention spreads, by length",
            _numbers.entropy,
            scalings.entropy,
        ),
        Entry(
            "properties",
            "any encoding",
            "the report card of whorl properties",
            _numbers.properties,
            encodings.properties,
        ),
        Entry(
            "attention",
            "a model",
            "how far each head of a trained model looks",
            _numbers.attention,
            encodings.attended,
        ),
    )
}
