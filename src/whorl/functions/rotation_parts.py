"""The parts of a measured rotation: scale, direction, offset, and the rule of its frequencies."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.scaling import Proportional

from .by_parts import USUAL_BASES
from .dynamic_scalings import fit_dynamic_scaling
from .frequency_rules import (
    FrequencyRule,
    choose_share,
    find_near_base,
    fit_base,
    fit_rule,
)
from .measured_function import (
    PRECISIONS,
    MeasuredFunction,
)
from .pair_rotations import wrap_angle
from .pairs import Pairs
from .rounding import compute_tolerance, list_roundings

__all__ = ["RotationParts", "derive_parts", "fit_rotation_rule"]


class RotationParts(NamedTuple):
    """What a rotation has besides the rule of its frequencies; departs: what no config has."""

    inv_freq: Tensor  # [P], signed
    scale: float
    sign: int
    offset: float
    departs: list[str]


def derive_parts(function: MeasuredFunction, pairs: Pairs) -> RotationParts:
    """Frequencies, scale, direction and offset, each one number for all pairs where possible."""
    assert function.rotations is not None
    rotations, departs = function.rotations, list[str]()
    if not function.has_constant_frequencies and function.precision != "unknown":
        departs.append("angles are not positions times frequencies; are positions those of a grid?")
    first, second = rotations.frequency.unbind(-1)
    allowed = compute_tolerance(first, max(function.rounding_unit, 1e-9)) * 4
    if not bool(((first - second).abs() <= allowed * first.abs().clamp(min=1e-30)).all()):
        worst = int(((first - second).abs() / first.abs().clamp(min=1e-30)).argmax())
        departs.append(
            f"the two channels of pair {worst} rotate by {float(first[worst]):.6g} and"
            f" {float(second[worst]):.6g} per position; in a rotation they are the same"
        )
        frequency = first
    else:
        frequency = rotations.frequency.mean(-1)
    if pairs.moved_channels:
        departs.append(pairs.moved_channels)
    elif pairs.layout is None or pairs.out_layout is None:
        departs.append("channels pair neither i with i + R/2 nor 2i with 2i + 1")
    sign = -1 if float(frequency.sign().sum()) < 0 else 1
    sizes = rotations.size
    scale = float(sizes.median() if function.precision == "unknown" else sizes.mean())
    slack = 8 * function.rounding_unit
    if float((sizes / scale - 1).abs().max()) > max(1e-7, 100 * slack):
        departs.append("the factor on rotated channels differs between pairs")
    scale = 1.0 if abs(scale - 1) <= slack else next(list_roundings(scale, slack))
    offset = _fit_offset(rotations.phase[:, 0], frequency, max(function.rounding_unit, 1e-9))
    if offset is None:
        departs.append("the angles at position 0 are no multiple of the frequencies")
    return RotationParts(pairs.fill_gaps(frequency), scale, sign, offset or 0, departs)


def _fit_offset(phase: Tensor, frequency: Tensor, unit: float) -> float | None:
    """The offset of positions that explains all angles at position 0, or None if there is none."""
    if float(phase.abs().max()) <= 100 * unit:
        return 0
    if not float(frequency.abs().min()):
        return None
    slowest = int(frequency.abs().argmin())
    estimate = float(phase[slowest] / frequency[slowest])
    for pair in frequency.abs().argsort().tolist():  # each faster pair makes it more precise
        estimate += float(wrap_angle(phase[pair] - frequency[pair] * estimate) / frequency[pair])
    nearest = next(list_roundings(estimate, 1e-5))
    misfit = wrap_angle(phase - frequency * nearest).abs().max()
    if float(misfit) > 1e-3:
        return None
    return int(nearest) if nearest == int(nearest) else nearest


def fit_rotation_rule(
    function: MeasuredFunction, pairs: Pairs, parts: RotationParts
) -> tuple[FrequencyRule, Pairs]:
    """The rule of the frequencies in a short context, at the highest precision that has one."""
    assert function.lengths is not None
    inv_freq = parts.inv_freq * parts.sign
    if function.precision == "unknown" and (most := find_near_base(inv_freq)) is not None:
        return FrequencyRule(most[0]), pairs  # approximated cos and sin change fast pairs only
    for name, unit in PRECISIONS.items():
        if unit < function.rounding_unit or not _fits_dtype(inv_freq, name, function.rounding_unit):
            continue
        tolerance = compute_tolerance(inv_freq, unit)
        rule = fit_rule(inv_freq, tolerance, parts.scale)
        if rule.base is not None:
            wider = _fit_wider_rule(rule, inv_freq, tolerance, pairs, function.probe.head_dim)
            rule, pairs = wider or (rule, pairs)
            if rule.scaling is None and function.lengths.constant_up_to is not None:
                rule = _fit_dynamic_rule(rule, inv_freq, parts, function, pairs, tolerance)
            return rule, pairs
    tolerance = compute_tolerance(inv_freq, function.rounding_unit)
    rule = fit_rule(inv_freq, tolerance, parts.scale)
    if function.lengths.constant_up_to is not None:
        rule = _fit_dynamic_rule(rule, inv_freq, parts, function, pairs, tolerance)
    return rule, pairs


def _fits_dtype(inv_freq: Tensor, name: str, unit: float) -> bool:
    """Whether frequencies with relative error ``unit`` could be numbers of a dtype."""
    if PRECISIONS[name] <= unit:
        return True
    rounded = inv_freq.to(getattr(torch, name)).double()
    return bool(((rounded - inv_freq).abs() <= 8 * unit * inv_freq.abs()).all())


def _fit_wider_rule(
    rule: FrequencyRule, inv_freq: Tensor, tolerance: Tensor, pairs: Pairs, head_dim: int
) -> tuple[FrequencyRule, Pairs] | None:
    """The rule of the whole head, if the pairs are the rotating ones of a ``Proportional``."""
    partial = pairs.layout == pairs.out_layout == "interleaved" and pairs.width < head_dim
    if not partial or pairs.start or head_dim % 2 or rule.scaling is not None or rule.base is None:
        return None
    base = fit_base(inv_freq, tolerance, head_dim // 2)
    if base not in USUAL_BASES or rule.base in USUAL_BASES:
        return None
    scaling = Proportional(choose_share(len(inv_freq), head_dim // 2))
    return FrequencyRule(base, scaling), replace(pairs, width=head_dim)


def _fit_dynamic_rule(
    rule: FrequencyRule,
    inv_freq: Tensor,
    parts: RotationParts,
    function: MeasuredFunction,
    pairs: Pairs,
    tolerance: Tensor,
) -> FrequencyRule:
    """The rule with the scaling that explains frequencies in longer contexts, if one does."""
    assert function.lengths is not None
    base = rule.base or 10_000.0
    found = fit_dynamic_scaling(base, inv_freq, parts.scale, function.lengths, pairs, tolerance)
    if found is None:
        parts.departs.append(
            f"past a context of {function.lengths.constant_up_to} tokens the frequencies change"
            " by no rule that is known here"
        )
        return rule
    return FrequencyRule(base, found)
