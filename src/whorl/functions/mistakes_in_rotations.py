"""Mistakes in the rotation itself: signs, layouts, frequencies, offsets, scales.

Every rule looks at all measurements, ``e``, and yields the mistakes that it finds.
"""

import math

import torch

from whorl.scaling import Linear, YaRN

from .by_parts import USUAL_BASES
from .evidence import Evidence, Mistakes
from .measured_function import MeasuredRotation
from .pairs import predict_blocks, wrap_angle
from .report import Mistake

__all__ = ["RULES"]

#: Bases of many models. The square of one of them is more likely a mistake than a choice.
_COMMON_BASES = USUAL_BASES[:3]
#: Largest relative misfit of angles that are computed in float32.
_FLOAT32_MISFIT = 2e-6


def detect_missing_rotation(e: Evidence) -> Mistakes:
    matrices = e.function.matrices
    if (reason := e.function.no_pairs_reason) is not None:
        yield Mistake(
            "not-pairs",
            f"It is no rotation of pairs: {reason}. Check how the channels are split and joined"
            " again.",
        )
        return
    if e.rotation is not None:
        return
    if e.fails("turns"):
        same = "is the input" if e.found.encoding == "nope" else "is not the input either"
        yield Mistake(
            "no-rotation",
            f"The result is the same at positions 0 to 15 and {same}: no channel rotates. Are"
            " positions used at all?",
        )
        return
    low, high = float(matrices[matrices != 0].min()), float(matrices.max())
    yield Mistake(
        "no-mixing",
        "Every result channel is one input channel times a number that changes with the position"
        f" (from {low:.3g} to {high:.3g} at positions 0 to 15): no channel mixes with another."
        " Is the term with sin missing? It must be a' = a cos - b sin, b' = b cos + a sin.",
    )


def detect_unequal_channels(e: Evidence) -> Mistakes:
    """Pairs whose two channels do not rotate alike."""
    if e.rotation is None or not e.fails("layout"):
        return
    pairs, (first, second) = e.rotation.pairs, e.rotation.rotations.frequency.unbind(-1)
    opposite = bool(((first + second).abs() <= 1e-4 * first.abs()).all())
    if opposite:
        yield Mistake(
            "sign-on-one-half",
            "One channel of each pair rotates forwards and the other backwards: one half has a"
            " minus sign too few or too many. It must be a' = a cos - b sin, b' = b cos + a sin;"
            " with half layout, rotate_half(x) = cat(-x2, x1).",
        )
    if pairs.moved_channels:
        yield Mistake(
            "channels-moved",
            f"Of the rotated channels, {pairs.moved_channels}, so the other channels move too. Join"
            " the parts in the order in which they were split.",
        )
    elif pairs.layout is None or pairs.out_layout is None:
        yield Mistake(
            "unusual-pairs",
            "Channels pair neither i with i + R/2 (half) nor 2i with 2i + 1 (interleaved).",
        )
    elif not opposite:
        yield _describe_layout_mixup(e, e.rotation)


def _describe_layout_mixup(e: Evidence, function: MeasuredRotation) -> Mistake:
    pairs, (first, second) = function.pairs, function.rotations.frequency.unbind(-1)
    by_channel = torch.zeros(pairs.head_dim, dtype=torch.float64)
    by_channel[pairs.a_out], by_channel[pairs.b_out] = first.abs(), second.abs()
    rotated = by_channel[pairs.start : pairs.start + pairs.width]
    first_half, second_half = rotated.chunk(2)
    tiled = torch.allclose(first_half, second_half, rtol=1e-4, atol=0)
    repeated = torch.allclose(rotated[0::2], rotated[1::2], rtol=1e-4, atol=0)
    made = "'half'" if tiled else "'interleaved'" if repeated else "neither layout"
    half = pairs.out_layout == "half"
    remedy = "cat(angles, angles)" if half else "repeat_interleave(angles, 2)"
    return Mistake(
        "layout-mixup",
        f"Channels pair as in layout {pairs.out_layout!r}, but the tables are arranged for {made}:"
        " the two channels of a pair rotate by different angles, so norms change (by"
        f" {e.error('norm'):.3g} here). For {pairs.out_layout!r} the tables are {remedy}.",
    )


def detect_direction(e: Evidence) -> Mistakes:
    if not e.fails("direction") or e.fails("layout"):
        return
    if (share := e.error("direction")) < 1:
        yield Mistake(
            "mixed-directions",
            f"{share:.0%} of the pairs rotate backwards and the others forwards.",
        )
        return
    yield Mistake(
        "sign-reversed",
        "It rotates backwards: angles fall as positions grow. Scores still depend on distances"
        " only, but weights trained with the usual direction see distances of the other sign."
        " It must be a' = a cos - b sin, b' = b cos + a sin.",
    )


def detect_uneven_angles(e: Evidence) -> Mistakes:
    if (function := e.rotation) is None or e.fails("layout"):
        return
    angle_misfit, size_misfit = function.rotations.angle_misfit, function.rotations.size_misfit
    unexplained = function.precision == "unknown" and angle_misfit > _FLOAT32_MISFIT
    uneven = not function.has_constant_frequencies and not _is_rounding_of_half_tables(function)
    if unexplained and size_misfit > angle_misfit / 8:
        worst = ""
        if e.known_far_error is not None:
            far = e.known_far_error
            worst = f" Results of unit vectors differ from a rotation by up to {far:.2g}."
        yield Mistake(
            "uneven-angles",
            f"At positions 0 to 15 angles differ from positions times frequencies by up to"
            f" {angle_misfit:.2g} of their size, and the length of pairs varies by up to"
            f" {size_misfit:.2g}; neither angles nor tables are rounded to half precision. Are cos"
            f" and sin approximated?{worst}",
        )
    elif unexplained or uneven:
        yield Mistake(
            "uneven-angles",
            "Angles are not positions times frequencies. If positions are those of a grid, check"
            " one axis; otherwise something is added to the angles.",
        )


def _is_rounding_of_half_tables(function: MeasuredRotation) -> bool:
    """Whether tables in half precision explain uneven angles, because no result differs more."""
    if function.half_tables is None:
        return False
    expected = predict_blocks(function.rotations, range(len(function.first_blocks)))
    return float((function.first_blocks - expected).abs().max()) <= 2.0**-5


def detect_wrong_order(e: Evidence) -> Mistakes:
    if e.rotation is None or not e.fails("order"):
        return
    inv_freq = e.rotation.pairs.fill_gaps(e.rotation.rotations.frequency[:, 0]).abs()
    if bool((inv_freq[1:] >= inv_freq[:-1]).all()):
        yield Mistake(
            "reversed-frequencies",
            f"Fast and slow pairs are swapped: the first pair rotates by {float(inv_freq[0]):.3g}"
            f" and the last by {float(inv_freq[-1]):.3g} radians per position. Pair 0 must be"
            " fastest: theta_i = base ** (-2 i / R).",
        )
    elif not e.fails("layout"):
        yield Mistake(
            "unordered-frequencies",
            "Frequencies do not fall from the first pair to the last.",
        )


def detect_wrong_exponent(e: Evidence) -> Mistakes:
    base = e.found.base
    if base is None or e.fails("layout") or e.function.probe.kind == "cos_sin":
        return
    for usual in _COMMON_BASES if e.base is None else (e.base,):
        if math.isclose(base, usual**2, rel_tol=1e-4):
            yield Mistake(
                "doubled-exponent",
                f"Frequencies are those of base {base:.6g}, which is {usual:,.0f} squared: the"
                " exponent counts its 2 twice, as base ** (-2 * arange(0, R, 2) / R) does."
                " arange(0, R, 2) is 2 i already."
                + ("" if e.base else f" If the base is meant, pass base={base:g}."),
            )
            return
    if e.base is None or math.isclose(base, e.base, rel_tol=1e-4):
        return
    if math.isclose(base, math.sqrt(e.base), rel_tol=1e-4):
        yield Mistake(
            "halved-exponent",
            f"Frequencies are those of base {base:.6g}, the square root of {e.base:,.0f}: the"
            " exponent is i / R where it must be 2 i / R.",
        )
        return
    yield Mistake("other-base", f"The base is {base:.9g}, not {e.base:.9g}.")


def detect_degrees(e: Evidence) -> Mistakes:
    scaling = e.found.scaling
    if isinstance(scaling, Linear) and math.isclose(scaling.factor, 180 / math.pi, rel_tol=1e-5):
        yield Mistake(
            "degrees",
            f"All angles are {scaling.factor:.6g} = 180 / pi times too small: angles in radians are"
            " taken for degrees and converted.",
        )


def detect_position_offset(e: Evidence) -> Mistakes:
    offset = e.found.offset
    if offset in (1, -1):
        yield Mistake(
            "off-by-one",
            f"Positions are off by one: position p gets the angle of p {offset:+d}."
            " Position 0 must change nothing. Alone it is harmless, because scores depend on"
            " differences; with a cache or other weights that count from 0 it is not.",
        )
    elif offset:
        yield Mistake(
            "position-offset",
            f"Every position is {abs(offset):g} too {'far' if offset > 0 else 'near'}: position 0"
            f" gets the angle of {offset:g}.",
        )


def detect_constant_angle(e: Evidence) -> Mistakes:
    """All pairs have the same angle at position 0, which an offset of positions cannot give."""
    if e.rotation is None or not e.fails("identity") or e.fails("layout") or e.found.offset:
        return
    phase, frequency = e.rotation.rotations.phase, e.rotation.rotations.frequency
    angle = float(phase[0, 0])
    same = wrap_angle(phase - angle).abs().max()
    if abs(angle) < 1e-3 or float(same) > 1e-3:
        return
    if abs(angle - math.pi / 2) < 1e-3 and bool((frequency < 0).all()):
        yield Mistake(
            "cos-sin-swapped",
            "cos and sin are exchanged: position 0 rotates every pair by 90 degrees, and angles"
            " fall from there. It must be a' = a cos - b sin, b' = b cos + a sin.",
        )
        return
    yield Mistake(
        "constant-angle",
        f"Every pair is rotated by {angle:.6g} radians at position 0 already, whatever its"
        " frequency: a constant is added to all angles, or signs are wrong in both rows.",
    )


def detect_repeated_scale(e: Evidence) -> Mistakes:
    if not e.fails("scale"):
        return
    scaling, scale = e.found.scaling, e.found.attention_scale
    if isinstance(scaling, YaRN):
        yield Mistake(
            "scale-twice",
            f"The attention scale is {scale:.6g}, the square of {math.sqrt(scale):.6g} = 0.1 ln"
            f" {scaling.factor:g} + 1: it is applied twice. Queries and keys each get it once;"
            " the scores then carry the square.",
        )
        return
    yield Mistake(
        "scale-twice",
        f"Tables multiplied by a give a result multiplied by a^{e.error('scale') + 1:.3g}: the"
        " attention scale in the tables is applied more than once.",
    )


def detect_norm_change(e: Evidence) -> Mistakes:
    if (function := e.rotation) is None:
        return
    growth = float(function.rotations.growth.abs().max())
    grows = growth * 15 > max(1e-4, 8 * function.rounding_unit)
    changes = grows and function.has_constant_frequencies
    if e.found.encoding == "xpos" or (changes and not e.fails("layout")):
        named = "as XPos does" if e.found.encoding == "xpos" else "which no rotation does"
        yield Mistake(
            "position-dependent-norm",
            f"The length of vectors changes with the position, by {growth:.2g} per position,"
            f" {named}. With XPos, queries shrink and keys grow, so scores stay relative as long as"
            " both are counted from the same reference: half the length of a call is not one, and"
            " far positions overflow half precision.",
        )
    elif e.fails("norm") and not e.fails("layout"):
        why = "cos and sin do not belong to one angle"
        if function.rotations.angle_misfit <= _FLOAT32_MISFIT:
            why = "angles are right, so it is multiplied by something that changes"
        yield Mistake("norm", f"The length of vectors changes by {e.error('norm'):.2g}: {why}.")


def detect_nonlinearity(e: Evidence) -> Mistakes:
    if e.fails("linear"):
        yield Mistake(
            "not-linear",
            f"The function is not linear in x (by {e.error('linear'):.2g}): it does more than"
            " rotate, such as normalising.",
        )
    if e.fails("backward") and e.error("backward") == 1.0:
        yield Mistake(
            "no-gradient",
            "The input asks for gradients and the result has none: it is detached, or made under"
            " no_grad. Nothing before it can be trained; for inference alone that does no harm.",
        )
    elif e.fails("backward"):
        yield Mistake(
            "backward",
            "Gradients do not come back by the transpose (negated angles), or not at all.",
        )


RULES = (
    detect_missing_rotation,
    detect_unequal_channels,
    detect_direction,
    detect_uneven_angles,
    detect_wrong_order,
    detect_wrong_exponent,
    detect_degrees,
    detect_position_offset,
    detect_constant_angle,
    detect_repeated_scale,
    detect_norm_change,
    detect_nonlinearity,
)
