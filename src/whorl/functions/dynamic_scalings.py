"""Scalings that depend on the context length, found from measurements in two long contexts."""

import math
from typing import Any

from torch import Tensor

from whorl.scaling import DynamicLinear, DynamicNTK, DynamicYaRN, Ladder, LongRoPE, Scaling
from whorl.scaling.yarn import compute_mscale

from .by_parts import fit_by_parts
from .frequency_rules import compute_frequencies, fit_base
from .length_dependence import LengthDependence
from .pairs import Pairs
from .rounding import are_close, list_roundings

__all__ = ["fit_dynamic_scaling"]


def fit_dynamic_scaling(
    base: float,
    short: Tensor,
    scale: float,
    measured: LengthDependence,
    pairs: Pairs,
    tolerance: Tensor,
) -> Scaling | None:
    """The scaling that explains the frequencies measured in longer contexts, or None.

    short, scale: frequencies [P] and attention scale in a short context.
    """
    if len(measured.longer) < 2 or measured.constant_up_to is None:
        return None
    lengths = [length for length, _ in measured.longer]
    frequencies = [pairs.fill_gaps(t.frequency.mean(-1)).abs() for _, t in measured.longer]
    scales = [float(t.size.mean()) for _, t in measured.longer]
    found = (
        _fit_dynamic_ntk(base, short, lengths, frequencies, tolerance)
        or _fit_dynamic_linear(short, lengths, frequencies, tolerance)
        or _fit_dynamic_yarn(base, short, lengths, frequencies, tolerance)
    )
    if found is not None:
        return found
    if bool(((frequencies[0] / frequencies[1] - 1).abs() <= tolerance).all()) and bool(
        (frequencies[0] > 0).all()
    ):
        return _fit_longrope(
            base, short, frequencies[1], (scale, scales[1]), measured.constant_up_to, tolerance
        )
    return None


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
    base: float, short: Tensor, lengths: list[int], frequencies: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """DynamicYaRN, if frequencies are scaled by parts and the factor grows with the length."""
    found = fit_by_parts(frequencies[0], tolerance, compute_mscale(2.0, 1.0))
    if found is None or found[0] != base:
        return None
    parts = found[1].to_dict()
    context = round(lengths[0] / parts["factor"])
    if parts["name"] == "llama3":
        parts |= {"beta_fast": parts["high_freq_factor"], "beta_slow": parts["low_freq_factor"]}
        parts |= {"ramp": "rotations", "truncate": True}
    times = context / parts["original_context"]
    scaling = DynamicYaRN(
        context,
        beta_fast=next(list_roundings(parts["beta_fast"] * times, 1e-9)),
        beta_slow=next(list_roundings(parts["beta_slow"] * times, 1e-9)),
        ramp=parts["ramp"],
        truncate=parts["truncate"],
    )
    steps = Ladder.of(2 * len(short), base)
    for length, wanted in zip(lengths, frequencies, strict=True):
        if not are_close(scaling.frequencies(steps, length).inv_freq, wanted, tolerance):
            return None
    return scaling


def _fit_longrope(
    base: float,
    short: Tensor,
    long: Tensor,
    scales: tuple[float, float],
    context: int,
    tolerance: Tensor,
) -> Scaling:
    """LongRoPE with one list of divisors for short contexts and one for long ones."""
    lists = {
        name: tuple(
            next(list_roundings(float(v), t))
            for v, t in zip(
                compute_frequencies(base, len(short)) / frequencies, tolerance.tolist(), strict=True
            )
        )
        for name, frequencies in (("short_factors", short), ("long_factors", long))
    }
    before, after = (next(list_roundings(scale, 1e-7)) for scale in scales)
    options: dict[str, Any] = {**lists, "original_context": context}
    if abs(before - after) > 1e-6:
        return LongRoPE(**options, attention_factor=before, long_attention_factor=after)
    factor = math.exp((scales[0] ** 2 - 1) * math.log(context))
    rounded = next(list_roundings(factor, 1e-4))
    if before > 1 and float(f"{rounded:.4g}") == rounded:
        return LongRoPE(**options, factor=rounded)
    return LongRoPE(**options, attention_factor=before)
