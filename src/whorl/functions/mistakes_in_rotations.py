"""Mistakes in how a function turns: signs, layouts, frequencies, offsets, scales."""

import math

import torch
from torch import Tensor

from whorl.scaling import Linear, YaRN

from .evidence import Evidence, Mistakes
from .pair_rotations import predict_blocks, wrap_angle
from .pairs import Pairs
from .report import Mistake

__all__ = ["RULES"]

#: Bases that models have; the square of one is more likely a mistake than a choice.
_COMMON_BASES = (10_000.0, 500_000.0, 1_000_000.0)
#: The largest relative misfit of angles that are formed in float32.
_FLOAT32_MISFIT = 2e-6


def detect_missing_rotation(e: Evidence) -> Mistakes:
    maps = e.seen.maps
    if e.seen.pairs is not None or e.seen.unpaired is not None:
        return
    if e.fails("turns"):
        same = "is the input" if e.found.encoding == "nope" else "is not the input either"
        yield Mistake(
            "no-rotation",
            f"The result is the same at positions 0 to 15 and {same}: no channel turns. Are"
            " positions used at all?",
        )
        return
    low, high = float(maps[maps != 0].min()), float(maps.max())
    yield Mistake(
        "no-mixing",
        "Every result channel is one input channel times a number that changes with the position"
        f" (from {low:.3g} to {high:.3g} at positions 0 to 15): no channel turns into another. Is"
        " the term with sin missing? It must be a' = a cos - b sin, b' = b cos + a sin.",
    )


def detect_missing_pairs(e: Evidence) -> Mistakes:
    if e.seen.unpaired is not None:
        yield Mistake(
            "not-pairs",
            f"It is no rotation of pairs: {e.seen.unpaired}. Look at how the two halves are cut"
            " and put together again.",
        )


def _get_unequal_frequencies(e: Evidence) -> tuple[Tensor, Tensor, Pairs] | None:
    """Rates of first and second channels where they differ."""
    if e.seen.turning is None or e.seen.pairs is None or not e.fails("layout"):
        return None
    first, second = e.seen.turning.rate.unbind(-1)
    return first, second, e.seen.pairs


def detect_sign_on_one_half(e: Evidence) -> Mistakes:
    if (rows := _get_unequal_frequencies(e)) is None:
        return
    first, second, _ = rows
    if bool(((first + second).abs() <= 1e-4 * first.abs()).all()):
        yield Mistake(
            "sign-on-one-half",
            "One channel of each pair turns forwards and the other backwards: a minus sign is"
            " missing or too many in one half. It must be a' = a cos - b sin, b' = b cos + a sin;"
            " with half layout, rotate_half(x) = cat(-x2, x1).",
        )


def detect_layout_mixup(e: Evidence) -> Mistakes:
    if (rows := _get_unequal_frequencies(e)) is None:
        return
    first, second, pairs = rows
    if pairs.moved:
        yield Mistake(
            "channels-moved",
            f"Of those that turn, {pairs.moved}: the others lose their place too. Put the parts"
            " together in the order in which they were cut.",
        )
        return
    if pairs.layout is None or pairs.out_layout is None:
        yield Mistake(
            "unusual-pairs",
            "Channels pair neither i with i + R/2 (half) nor 2i with 2i + 1 (interleaved).",
        )
        return
    if bool(((first + second).abs() <= 1e-4 * first.abs()).all()):
        return
    by_channel = torch.zeros(e.seen.probe.head_dim, dtype=torch.float64)
    by_channel[pairs.a_out], by_channel[pairs.b_out] = first.abs(), second.abs()
    turned = by_channel[pairs.start : pairs.start + pairs.width]
    half = pairs.width // 2
    tiled = torch.allclose(turned[:half], turned[half:], rtol=1e-4, atol=0)
    repeated = torch.allclose(turned[0::2], turned[1::2], rtol=1e-4, atol=0)
    made = "half" if tiled else "interleaved" if repeated else "neither layout"
    remedy = {
        "half": "cat(angles, angles)",
        "interleaved": "repeat_interleave(angles, 2)",
    }[pairs.out_layout]
    yield Mistake(
        "layout-mixup",
        f"Channels pair as in layout {pairs.out_layout!r}, but the tables are arranged for"
        f" {made if made == 'neither layout' else repr(made)}: the two channels of a pair turn by"
        f" different angles, so norms drift (by {e.error('norm'):.3g} here). For"
        f" {pairs.out_layout!r} the tables are {remedy}.",
    )


def detect_reversed_sign(e: Evidence) -> Mistakes:
    if e.fails("direction") and e.error("direction") == 1 and not e.fails("layout"):
        yield Mistake(
            "sign-reversed",
            "It turns backwards: angles fall with the position. Scores are still relative, but"
            " weights trained with the usual direction get mirrored distances. It must be"
            " a' = a cos - b sin, b' = b cos + a sin.",
        )


def detect_uneven_angles(e: Evidence) -> Mistakes:
    if e.seen.turning is None or e.fails("layout"):
        return
    noise, wobble = e.seen.turning.noise, e.seen.turning.wobble
    unexplained = e.seen.precision == "unknown" and noise > _FLOAT32_MISFIT
    if unexplained and wobble > noise / 8:
        far = e.calls.far.worst.get(e.seen.probe.form.dtype)
        known = far is not None and e.calls.far.ruled
        worst = f" Results of unit vectors differ from a rotation by up to {far:.2g}."
        yield Mistake(
            "uneven-angles",
            f"At positions 0 to 15 angles are up to {noise:.2g} of themselves off positions times"
            f" frequencies and sizes up to {wobble:.2g} off a constant, and neither angles nor"
            " tables are numbers of a half type. Are cos and sin approximated?"
            f"{worst if known else ''}",
        )
    elif unexplained or (not e.seen.steady and not _is_rounding_of_half_tables(e)):
        yield Mistake(
            "uneven-angles",
            "Angles are not positions times frequencies. If positions are places on a grid, ask"
            " along one axis; else something is added on the way.",
        )


def _is_rounding_of_half_tables(e: Evidence) -> bool:
    """Whether uneven angles are so small that half tables round them: no result is further off."""
    if e.seen.half_tables is None or e.seen.short is None or e.seen.turning is None:
        return False
    line = predict_blocks(e.seen.turning, range(len(e.seen.short)))
    return float((e.seen.short - line).abs().max()) <= 2.0**-5


def detect_mixed_directions(e: Evidence) -> Mistakes:
    if e.fails("direction") and e.error("direction") < 1 and not e.fails("layout"):
        share = e.error("direction")
        yield Mistake(
            "mixed-directions",
            f"{share:.0%} of the pairs turn backwards and the others forwards.",
        )


def detect_wrong_order(e: Evidence) -> Mistakes:
    if e.seen.turning is None or e.seen.pairs is None or not e.fails("order"):
        return
    rates = e.seen.pairs.on_ladder(e.seen.turning.rate[:, 0]).abs()
    if bool((rates[1:] >= rates[:-1]).all()):
        yield Mistake(
            "reversed-frequencies",
            f"Fast and slow pairs are swapped: the first pair turns by {float(rates[0]):.3g} and"
            f" the last by {float(rates[-1]):.3g} radians per position. Pair 0 must turn fastest:"
            " theta_i = base ** (-2 i / R).",
        )
    elif not e.fails("layout"):
        yield Mistake(
            "unordered-frequencies",
            "Frequencies do not fall from the first pair to the last.",
        )


def detect_wrong_exponent(e: Evidence) -> Mistakes:
    base = e.found.base
    if base is None or e.fails("layout") or e.seen.probe.kind == "cos_sin":
        return
    wanted = (e.base,) if e.base is not None else _COMMON_BASES
    for usual in wanted:
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
            f"Positions are off by one: position p turns by the angle of p {offset:+d}."
            " Position 0 must change nothing. Alone it is harmless, because scores depend on"
            " differences; with a cache or other weights that count from 0 it is not.",
        )
    elif offset:
        yield Mistake(
            "position-offset",
            f"Every position is {abs(offset):g} too {'far' if offset > 0 else 'near'}: position 0"
            f" turns by the angle of {offset:g}.",
        )


def detect_constant_angle(e: Evidence) -> Mistakes:
    """Every pair at the same angle at position 0, which is no offset of positions."""
    if e.seen.turning is None or not e.fails("identity") or e.fails("layout") or e.found.offset:
        return
    phase, rate = e.seen.turning.phase, e.seen.turning.rate
    angle = float(phase[0, 0])
    same = wrap_angle(phase - angle).abs().max()
    if abs(angle) < 1e-3 or float(same) > 1e-3:
        return
    if abs(angle - math.pi / 2) < 1e-3 and bool((rate < 0).all()):
        yield Mistake(
            "cos-sin-swapped",
            "cos and sin are exchanged: position 0 turns every pair by a quarter turn, and angles"
            " fall from there. It must be a' = a cos - b sin, b' = b cos + a sin.",
        )
        return
    yield Mistake(
        "constant-angle",
        f"Every pair is turned by {angle:.6g} radians at position 0 already, whatever its"
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
    if e.seen.turning is None:
        return
    growth = float(e.seen.turning.growth.abs().max())
    changes = growth * 15 > max(1e-4, 8 * e.seen.unit) and e.seen.steady
    if e.found.encoding == "xpos" or (changes and not e.fails("layout")):
        named = "as XPos does" if e.found.encoding == "xpos" else "which no rotation does"
        yield Mistake(
            "position-dependent-norm",
            f"The length of vectors changes with the position, by {growth:.2g} per position,"
            f" {named}. With XPos, queries shrink and keys grow, so scores stay relative as long as"
            " both are counted from the same reference: half the length of a call is not one, and"
            " far positions overflow half types.",
        )
    elif e.fails("norm") and not e.fails("layout"):
        why = "cos and sin do not belong to one angle"
        if e.seen.turning.noise <= _FLOAT32_MISFIT:
            why = "angles are right, so it is multiplied by something that changes"
        yield Mistake("norm", f"The length of vectors changes by {e.error('norm'):.2g}: {why}.")


def detect_nonlinearity(e: Evidence) -> Mistakes:
    if e.fails("linear"):
        yield Mistake(
            "not-linear",
            f"The function is not linear in x (by {e.error('linear'):.2g}): it does more than turn,"
            " such as normalising.",
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
    detect_missing_pairs,
    detect_sign_on_one_half,
    detect_layout_mixup,
    detect_reversed_sign,
    detect_mixed_directions,
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
