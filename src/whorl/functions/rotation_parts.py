"""The parts of a measured rotation: scale, direction, offset, and the rule of its frequencies."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whorl.scaling import (
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Ladder,
    LongRoPE,
    Proportional,
    Scaling,
)
from whorl.scaling.yarn import compute_mscale

from .by_parts import USUAL_BASES, fit_by_parts, list_ramp_options
from .frequency_rules import FrequencyRule, choose_share, find_near_base, fit_base, fit_rule
from .measured_function import PRECISIONS, MeasuredRotation
from .pairs import Pairs, wrap_angle
from .rounding import are_close, compute_frequencies, compute_tolerance, list_roundings

__all__ = ["RotationParts", "derive_parts", "fit_rotation_rule"]


class RotationParts(NamedTuple):
    """What a rotation has besides the rule of its frequencies; departs: what no config has."""

    inv_freq: Tensor  # [P], signed
    scale: float
    sign: int
    offset: float
    departs: list[str]


def derive_parts(function: MeasuredRotation) -> RotationParts:
    """Frequencies, scale, direction and offset, each one number for all pairs where possible."""
    pairs, rotations, departs = function.pairs, function.rotations, list[str]()
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
    function: MeasuredRotation, parts: RotationParts
) -> tuple[FrequencyRule, Pairs]:
    """The rule of the frequencies in a short context, at the highest precision that has one."""
    inv_freq, pairs, unit = parts.inv_freq * parts.sign, function.pairs, function.rounding_unit
    if function.precision == "unknown" and (most := find_near_base(inv_freq)) is not None:
        return FrequencyRule(most[0]), pairs  # approximated cos and sin change fast pairs only
    known = [name for name in PRECISIONS if _fits_dtype(inv_freq, name, unit)]
    for precision in (*(PRECISIONS[name] for name in known if PRECISIONS[name] >= unit), unit):
        tolerance = compute_tolerance(inv_freq, precision)
        rule = fit_rule(inv_freq, tolerance, parts.scale)
        if rule.base is not None:
            wider = _fit_wider_rule(rule, inv_freq, tolerance, pairs)
            rule, pairs = wider or (rule, pairs)
            break
    if rule.scaling is None and function.lengths.constant_up_to is not None:
        rule = _fit_dynamic_rule(rule, inv_freq, parts, function, pairs, tolerance)
    return rule, pairs


def _fits_dtype(inv_freq: Tensor, name: str, unit: float) -> bool:
    """Whether frequencies with relative error ``unit`` could be numbers of a dtype."""
    if PRECISIONS[name] <= unit:
        return True
    rounded = inv_freq.to(getattr(torch, name)).double()
    return bool(((rounded - inv_freq).abs() <= 8 * unit * inv_freq.abs()).all())


def _fit_wider_rule(
    rule: FrequencyRule, inv_freq: Tensor, tolerance: Tensor, pairs: Pairs
) -> tuple[FrequencyRule, Pairs] | None:
    """The rule of the whole head, if the pairs are the rotating ones of a ``Proportional``."""
    head_dim = pairs.head_dim
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
    function: MeasuredRotation,
    pairs: Pairs,
    tolerance: Tensor,
) -> FrequencyRule:
    """The rule with the scaling that explains frequencies in two longer contexts, if one does."""
    base, constant_up_to = rule.base or 10_000.0, function.lengths.constant_up_to
    assert constant_up_to is not None
    found, longer = None, function.lengths.longer
    if len(longer) == 2:
        lengths = [length for length, _ in longer]
        frequencies = [pairs.fill_gaps(t.frequency.mean(-1)).abs() for _, t in longer]
        found = (
            _fit_dynamic_ntk(base, inv_freq, lengths, frequencies, tolerance)
            or _fit_dynamic_linear(inv_freq, lengths, frequencies, tolerance)
            or _fit_dynamic_yarn(base, lengths, frequencies, tolerance)
        )
        same = (frequencies[0] / frequencies[1] - 1).abs() <= tolerance
        if found is None and bool((same & (frequencies[0] > 0)).all()):
            scales = parts.scale, float(longer[1][1].size.mean())
            lists = inv_freq, frequencies[1]
            found = _fit_longrope(base, lists, scales, constant_up_to, tolerance)
    if found is None:
        parts.departs.append(
            f"past a context of {constant_up_to} tokens the frequencies change by no rule that is"
            " known here"
        )
        return rule
    return FrequencyRule(base, found)


def _fit_dynamic_ntk(
    base: float, short: Tensor, lengths: list[int], frequencies: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """DynamicNTK, if the base grows as it says.

    (base_now / base) ^ ((P - 1) / P) = 1 + factor (L_now - L) / L is a line in L_now, so two
    lengths give factor and L.
    """
    pairs = len(short)
    bases = [fit_base(r, tolerance) for r in frequencies]
    if pairs < 2 or bases[0] is None or bases[1] is None:
        return None
    one, two = ((b / base) ** ((pairs - 1) / pairs) for b in (bases[0], bases[1]))
    slope = (two - one) / (lengths[1] - lengths[0])
    factor = 1 - (one - slope * lengths[0])
    if slope <= 0 or factor <= 0:
        return None
    context = round(factor / slope)
    for rounded in list_roundings(slope * context, 100 * float(tolerance.max())):
        if rounded >= 1:
            return DynamicNTK(rounded, context)
    return None


def _fit_dynamic_linear(
    short: Tensor, lengths: list[int], frequencies: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """DynamicLinear, if all frequencies are divided by L_now / L."""
    ratio = short / frequencies[0]
    if not bool(((ratio / ratio[0] - 1).abs() <= 2 * tolerance).all()):
        return None
    context = round(lengths[0] / float(ratio[0]))
    wanted = lengths[1] / context
    fits = abs(float((short / frequencies[1])[0]) / wanted - 1) <= 1e-5
    return DynamicLinear(context) if fits else None


def _fit_dynamic_yarn(
    base: float, lengths: list[int], frequencies: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """DynamicYaRN, if frequencies are scaled by parts and the factor grows with the length."""
    found = fit_by_parts(frequencies[0], tolerance, compute_mscale(2.0, 1.0))
    if found is None or found[0] != base:
        return None
    context, options = round(lengths[0] / found[1].factor), list_ramp_options(found[1])
    times = context / found[1].original_context
    for name in ("beta_fast", "beta_slow"):
        options[name] = next(list_roundings(options[name] * times, 1e-9))
    scaling = DynamicYaRN(context, **options)
    steps = Ladder.of(2 * len(tolerance), base)
    for length, wanted in zip(lengths, frequencies, strict=True):
        if not are_close(scaling.frequencies(steps, length).inv_freq, wanted, tolerance):
            return None
    return scaling


def _fit_longrope(
    base: float,
    frequencies: tuple[Tensor, Tensor],
    scales: tuple[float, float],
    context: int,
    tolerance: Tensor,
) -> Scaling:
    """LongRoPE with one list of divisors for short contexts and one for long ones."""
    options: dict[str, Any] = {"original_context": context}
    for name, measured in zip(("short_factors", "long_factors"), frequencies, strict=True):
        divisors = (compute_frequencies(base, len(measured)) / measured).tolist()
        both = zip(divisors, tolerance.tolist(), strict=True)
        options[name] = tuple(next(list_roundings(value, slack)) for value, slack in both)
    before, after = (next(list_roundings(scale, 1e-7)) for scale in scales)
    if abs(before - after) > 1e-6:
        return LongRoPE(**options, attention_factor=before, long_attention_factor=after)
    factor = math.exp((scales[0] ** 2 - 1) * math.log(context))
    rounded = next(list_roundings(factor, 1e-4))
    if before > 1 and float(f"{rounded:.4g}") == rounded:
        return LongRoPE(**options, factor=rounded)
    return LongRoPE(**options, attention_factor=before)
