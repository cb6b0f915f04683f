"""How other frameworks read the same config, and where they differ from whorl's reading.

One file for each: its rules as options of RoPE (``base.py`` says why), the version they hold for,
and how they were found. A framework is added by a file with NAME, VERSION, BASIS and ``read``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.scaling import Ladder
from whorl.scaling.base import ladder

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

# float32 frequencies differ from exact ones by 1e-7 or so; another reading by far more.
_SAME = 1e-5


@dataclass(frozen=True)
class FrameworkComparison:
    """One framework's reading beside whorl's.

    inv_freq: largest relative difference of an inverse frequency, at pair ``pair`` and a length of
        ``length`` tokens; None where it is not known or the number of pairs differs.
    attention_scale, softmax_scale, layout: theirs; None where not known.
    differs: what differs, of "inverse frequencies", "pairs", "attention scale", "softmax scale" and
        "layout".
    outcome: "inexpressible" where no config asks for what is to be compared.
    config: which one was read: the model's own, or the one that asks for an extension of it.
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
    """Every framework's reading of the case, at the length where it is furthest from whorl's."""
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
        if case.part.where and framework is not transformers:  # which reads the whole
            reading = replace(reading, remarks=(*reading.remarks, _note_part_alone(who, case)))
        if reading.options is None:
            outcome: Any = reading.outcome
            return FrameworkComparison(*who, outcome, why=reading.why, remarks=reading.remarks)
        found = [_compare_numbers(who, case, reading, length) for length in lengths]
    except (ValueError, TypeError, KeyError) as error:
        # Values that whorl's reading never needed, such as a factor that is no number.
        return FrameworkComparison(
            *who, "unknown", why=f"its rule does not fit this config: {error}"
        )
    return max(found, key=_measure_distance)


def _explain_unread(case: ConfiguredLayers) -> str | None:
    """Why rules that were found by reading do not answer for this way to write a config."""
    noted = {note.id for note in case.model.notes}
    if "transformers-refuses" in noted:
        return "transformers refuses this config, and what others do with such was not read"
    known = any(note.id == "partial-ignored" for note in case.group.notes)
    if "transformers-differs" in noted and not known and "truncate" not in case.parameters:
        return "transformers reads it otherwise, and which of the two others do was not read"
    return None


def _note_part_alone(who: tuple[str, str, Basis], case: ConfiguredLayers) -> Remark:
    text = f"judged as {quote(case.model_type)}, by {case.part.where} alone: what"
    text += f" {quote(case.model.model_type)} adds was not read"
    return Remark(text, f"{who[0]} {who[1]}")


def _measure_distance(each: FrameworkComparison) -> tuple[int, float]:
    """How far a reading is from whorl's; rounding is no distance."""
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
    """Inverse frequencies, float64 [P], and the attention scale, of a RoPE with these options."""
    dtype = torch.float32 if options.get("precision") == "float32" else torch.float64
    given, base = options.get("inv_freq"), float(options.get("base", 10_000.0))
    if given is None:
        width = options.get("rotary_dim") or options["head_dim"] - options.get("rotary_start", 0)
        steps = Ladder(ladder(width, base, dtype), base)
    else:
        steps = Ladder(torch.as_tensor(given, dtype=dtype), None)
    scaling = options.get("scaling")
    if scaling is None:
        return steps.inv_freq.double(), 1.0
    found = scaling.frequencies(steps, length)
    return found.inv_freq.double(), float(found.attention_scale)
