"""How other frameworks read the same config, and where they differ from whorl.

Each framework has a file with its rules as options of RoPE (``base.py`` says why), its version, and
how the rules were found. To add one, add a file with NAME, VERSION, BASIS and ``read``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.scaling import Ladder
from whorl.scaling.base import compute_frequencies

from . import llama_cpp, mlx_lm, transformers, vllm
from .base import Basis, ConfiguredLayers, FrameworkReading, Remark

__all__ = [
    "FRAMEWORKS",
    "ConfiguredLayers",
    "FrameworkComparison",
    "FrameworkReading",
    "Remark",
    "compare_frameworks",
]

FRAMEWORKS: tuple[ModuleType, ...] = (transformers, mlx_lm, vllm, llama_cpp)

# float32 frequencies differ from exact ones by about 1e-7, other readings by far more.
_SAME = 1e-5


@dataclass(frozen=True)
class FrameworkComparison:
    """How one framework reads a config, compared with whorl.

    inv_freq: largest relative difference of an inverse frequency, at pair ``pair`` and a length of
        ``length`` tokens; None if it is not known or the number of pairs differs.
    attention_scale, softmax_scale, layout: those of the framework; None if not known.
    differs: what differs, out of "inverse frequencies", "pairs", "attention scale", "softmax
        scale" and "layout".
    outcome: "inexpressible" if no config.json can ask for the extension.
    config: the config that was read: the published one, or the one with the extension.
    """

    framework: str
    version: str
    basis: Basis
    outcome: Literal["agrees", "differs", "refuses", "unknown", "inexpressible"]
    length: int | None = None
    inv_freq: float | None = None
    pair: int | None = None
    attention_scale: float | None = None
    softmax_scale: float | None = None
    layout: str | None = None
    differs: tuple[str, ...] = ()
    why: str | None = None
    remarks: tuple[Remark, ...] = ()
    config: Literal["as published", "as extended"] = "as published"

    def to_dict(self) -> dict[str, Any]:
        plain = dict(vars(self))
        plain["differs"] = list(self.differs)
        plain["remarks"] = [vars(remark).copy() for remark in self.remarks]
        return plain


def compare_frameworks(
    case: ConfiguredLayers, lengths: Sequence[int]
) -> tuple[FrameworkComparison, ...]:
    """How every framework reads these layers, at the length where it differs most from whorl."""
    return tuple(_compare_framework(framework, case, lengths) for framework in FRAMEWORKS)


def _compare_framework(
    framework: ModuleType, case: ConfiguredLayers, lengths: Sequence[int]
) -> FrameworkComparison:
    who = (framework.NAME, framework.VERSION, framework.BASIS)
    unread = _explain_unread(case) if framework.BASIS == "by reading" else None
    if unread is not None:
        return FrameworkComparison(*who, "unknown", why=unread)
    try:
        reading: FrameworkReading = framework.read(case)
        if case.part.where and framework is not transformers:  # which reads the whole config
            reading = replace(reading, remarks=(*reading.remarks, _note_part_alone(who, case)))
        if reading.options is None:
            outcome: Any = reading.outcome
            return FrameworkComparison(*who, outcome, why=reading.why, remarks=reading.remarks)
        found = [_compare_numbers(who, case, reading, length) for length in lengths]
    except (ValueError, TypeError, KeyError) as error:
        # Values that whorl does not read, such as a factor that is not a number.
        return FrameworkComparison(
            *who, "unknown", why=f"its rule cannot be applied to this config: {error}"
        )
    return max(found, key=_measure_distance)


def _explain_unread(case: ConfiguredLayers) -> str | None:
    """Why rules found by reading source code cannot be applied to a config; None if they can."""
    noted = {note.id for note in case.model.notes}
    if "transformers-refuses" in noted:
        return (
            "transformers refuses this config, and what other frameworks do then was not examined"
        )
    known = any(note.id == "partial-ignored" for note in case.group.notes)
    if "transformers-differs" in noted and not known and "truncate" not in case.parameters:
        return (
            "transformers reads it differently, and what other frameworks do then was not examined"
        )
    return None


def _note_part_alone(who: tuple[str, str, Basis], case: ConfiguredLayers) -> Remark:
    text = f"compared as {quote(case.model_type)}, by {case.part.where} alone; code of"
    text += f" {quote(case.model.model_type)} was not examined"
    return Remark(text, f"{who[0]} {who[1]}")


def _measure_distance(each: FrameworkComparison) -> tuple[int, float]:
    """How much a comparison differs, for sorting; rounding does not count."""
    off = each.inv_freq or 0.0
    return len(each.differs), off if off > _SAME else 0.0


def _compare_numbers(
    who: tuple[str, str, Basis], case: ConfiguredLayers, reading: FrameworkReading, length: int
) -> FrameworkComparison:
    assert reading.options is not None
    ours, scale = _compute_frequencies(case.options, length)
    theirs, other = _compute_frequencies(reading.options, reading.at or length)
    worst, pair, differs = None, None, []
    if len(ours) != len(theirs):
        differs.append("pairs")
    else:
        gap = (theirs - ours).abs() / torch.where(ours == 0, torch.ones_like(ours), ours.abs())
        pair = int(gap.argmax())
        worst = float(gap[pair])
        if worst > _SAME:
            differs.append("inverse frequencies")
    if abs(other - scale) > _SAME * abs(scale):
        differs.append("attention scale")
    if abs(reading.softmax_scale - case.group.softmax_scale) > _SAME:
        differs.append("softmax scale")
    if reading.layout is not None and reading.layout != case.options.get("layout", "half"):
        differs.append("layout")
    framework, version, basis = who
    return FrameworkComparison(
        framework,
        version,
        basis,
        "differs" if differs else "agrees",
        length=length,
        inv_freq=worst,
        pair=pair,
        attention_scale=other,
        softmax_scale=reading.softmax_scale,
        layout=reading.layout,
        differs=tuple(differs),
        remarks=reading.remarks,
    )


def _compute_frequencies(options: Mapping[str, Any], length: int) -> tuple[Tensor, float]:
    """Inverse frequencies, float64 [P], and attention scale of a RoPE with these options."""
    dtype = torch.float32 if options.get("precision") == "float32" else torch.float64
    given, base = options.get("inv_freq"), float(options.get("base", 10_000.0))
    if given is None:
        width = options.get("rotary_dim") or options["head_dim"] - options.get("rotary_start", 0)
        steps = Ladder(compute_frequencies(width, base, dtype), base)
    else:
        steps = Ladder(torch.as_tensor(given, dtype=dtype), None)
    scaling = options.get("scaling")
    if scaling is None:
        return steps.inv_freq.double(), 1.0
    found = scaling.frequencies(steps, length)
    return found.inv_freq.double(), float(found.attention_scale)
