"""Which rotation is this? The simplest config that reproduces a function, by measurement alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whorl.scaling import DynamicLinear, DynamicNTK, DynamicYaRN, LongRoPE, Proportional

from .by_parts import USUAL_BASES
from .calls import measure_beyond_config
from .far_positions import find_first_departure
from .frequency_rules import (
    FrequencyRule,
    choose_share,
    describe_near_base,
    find_near_base,
    fit_base,
    fit_rule,
)
from .identification import Identification
from .length_dependence import FIRST_POSITIONS, fit_dynamic_scaling, measure_in_context
from .measured_function import (
    PRECISIONS,
    MeasuredFunction,
    make_reference_call,
    measure_function,
    prepare_probe,
)
from .options import add_attention_scale, build_rope_options, build_rope_parameters
from .pair_rotations import wrap_angle
from .pairs import Pairs
from .probe import Kind, NoAnswerError
from .properties import MEANINGS, compute_rounding_limit
from .results import PropertyResults
from .roles import are_keys_like_queries, describe_dependence, list_differences, measure_dependence
from .rounding import compute_tolerance, list_roundings
from .table_forms import TABLE_BASE
from .xpos import fit_xpos

__all__ = ["add_origins", "identify", "identify_measured", "merge_keys"]


def identify(fn: Callable[..., Any], head_dim: int, *, kind: Kind = "x") -> Identification:
    """Recover layout, frequencies, scaling and the rest from what a rotary function does.

    Args:
        fn: takes and gives NumPy arrays or torch tensors [B, H, T, D].
        head_dim: channels of one head, D.
        kind: "x" for fn(x, positions), "qk" for fn(q, k, positions), "cos_sin" for
            fn(q, k, cos, sin), which is given tables of base 10,000.

    Raises ValueError where the function cannot be called at all.

    >>> import whorl
    >>> rope = whorl.RoPE(64, base=500_000.0, layout="interleaved")
    >>> found = whorl.identify(rope.rotate, head_dim=64)
    >>> found.layout, found.base, found.offset
    ('interleaved', 500000.0, 0)
    >>> dict(found.config)
    {'head_dim': 64, 'base': 500000.0, 'layout': 'interleaved'}
    """
    try:
        probe, *keys = prepare_probe(fn, head_dim, kind, "identify").roles()
        before = make_reference_call(probe)
        seen = measure_function(probe)
        found = add_call_failures(identify_measured(seen), measure_beyond_config(seen, before[0]))
        if not keys:
            return found
        made = describe_dependence(measure_dependence(probe, 1e-3)[0])
        if are_keys_like_queries(seen, keys[0]):
            return add_origins(found, made)
        other = measure_function(keys[0])
        apart = float((other.maps - seen.maps).abs().max())
        theirs = add_call_failures(
            identify_measured(other), measure_beyond_config(other, before[1])
        )
        found = merge_keys(found, theirs, tuple(list_differences(found, theirs)), apart)
        return add_origins(found, made)
    except NoAnswerError as problem:
        raise ValueError(f"identify: the function {problem}") from None


def add_origins(found: Identification, made: str) -> Identification:
    """With what the results are made of, where that is not q for the first and k for the second."""
    if not made:
        return found
    return replace(found, exact=False, departs=(*found.departs, made))


def add_call_failures(
    found: Identification,
    results: PropertyResults,
    names: Sequence[str] = ("heads", "offset", "batch", "length", "history"),
) -> Identification:
    """With what depends on more than the vector and its position."""
    lines = [
        f"it does not hold that {MEANINGS[name]}: the error is {results.error(name):.2g}"
        for name in names
        if results.fails(name) and found.encoding is not None
    ]
    if not lines:
        return found
    return replace(found, exact=False, departs=(*found.departs, *lines))


def merge_keys(
    queries: Identification, keys: Identification, differs: tuple[str, ...], apart: float
) -> Identification:
    """What is found of queries, with what is different about keys; apart: by how much."""
    if not differs and keys.exact >= queries.exact:
        return replace(queries, error=max(queries.error, keys.error))
    lines = [f"keys are not treated as queries are: {line}" for line in differs]
    if not differs:
        lines = [f"keys: {line}" for line in keys.departs]
    return replace(
        queries,
        error=max(queries.error, apart),
        exact=False,
        departs=(*queries.departs, *lines),
        keys=keys,
    )


class _RotationParts(NamedTuple):
    """The parts of a rotation that a rule does not say."""

    rates: Tensor  # [P], signed
    scale: float
    sign: int
    offset: float
    departs: list[str]


def identify_measured(seen: MeasuredFunction) -> Identification:
    """The answer for what was measured."""
    probe = seen.probe
    common: dict[str, Any] = {
        "name": probe.name,
        "precision": seen.precision,
        "asked": str(probe.form),
    }
    if seen.unrepeated > compute_rounding_limit(seen):
        said = f"the same call twice in a row differs by {seen.unrepeated:.2g}"
        return Identification(encoding=None, departs=(said,), **common)
    if seen.pairs is None or seen.turning is None or seen.lengths is None:
        if seen.unpaired is not None:
            return Identification(encoding=None, departs=(seen.unpaired,), **common)
        error = float((seen.maps - torch.eye(probe.head_dim)).abs().max())
        if error < 1e-6:
            return Identification(encoding="nope", config={}, error=error, exact=True, **common)
        said = "no channel turns into another, and the result is not the input"
        return Identification(encoding=None, departs=(said,), **common)
    parts = _derive_parts(seen, seen.pairs)
    rule, pairs = _fit_rule(seen, seen.pairs, parts)
    found = Identification(
        encoding="rope",
        layout=pairs.layout,
        out_layout=pairs.out_layout,
        rotary_dim=pairs.width,
        rotary_start=pairs.start,
        inv_freq=tuple(parts.rates.tolist()),
        attention_scale=parts.scale,
        sign=parts.sign,
        offset=parts.offset,
        reach=seen.lengths.reach,
        **common,
    )
    found = _add_config(found, rule, pairs, parts, seen)
    decay = fit_xpos(seen.turning, pairs, seen.unit)
    if decay is not None:
        found = decay.applied(found)
        parts.departs.extend(decay.departs)
    return _compare_with_config(found, seen, parts.departs)


def _derive_parts(seen: MeasuredFunction, pairs: Pairs) -> _RotationParts:
    assert seen.turning is not None
    turned, departs = seen.turning, list[str]()
    if not seen.steady and seen.precision != "unknown":
        departs.append("angles are not positions times frequencies; does it count along two axes?")
    first, second = turned.rate.unbind(-1)
    allowed = compute_tolerance(first, max(seen.unit, 1e-9)) * 4
    if not bool(((first - second).abs() <= allowed * first.abs().clamp(min=1e-30)).all()):
        worst = int(((first - second).abs() / first.abs().clamp(min=1e-30)).argmax())
        departs.append(
            f"the two channels of pair {worst} turn by {float(first[worst]):.6g} and"
            f" {float(second[worst]):.6g} per position; in a rotation they are the same"
        )
        rate = first
    else:
        rate = turned.rate.mean(-1)
    if pairs.moved:
        departs.append(pairs.moved)
    elif pairs.layout is None or pairs.out_layout is None:
        departs.append("channels pair neither i with i + R/2 nor 2i with 2i + 1")
    sign = -1 if float(rate.sign().sum()) < 0 else 1
    sizes = turned.size
    scale = float(sizes.median() if seen.precision == "unknown" else sizes.mean())
    slack = 8 * seen.unit
    if float((sizes / scale - 1).abs().max()) > max(1e-7, 100 * slack):
        departs.append("the factor on rotated channels differs between pairs")
    scale = 1.0 if abs(scale - 1) <= slack else next(list_roundings(scale, slack))
    offset = _fit_offset(turned.phase[:, 0], rate, max(seen.unit, 1e-9))
    if offset is None:
        departs.append("the angles at position 0 are no multiple of the frequencies")
    return _RotationParts(pairs.on_ladder(rate), scale, sign, offset or 0, departs)


def _fit_offset(phase: Tensor, rate: Tensor, unit: float) -> float | None:
    """The position that every pair is ahead by at position 0; None where they disagree."""
    if float(phase.abs().max()) <= 100 * unit:
        return 0
    if not float(rate.abs().min()):
        return None
    slowest = int(rate.abs().argmin())
    estimate = float(phase[slowest] / rate[slowest])
    for pair in rate.abs().argsort().tolist():  # each faster pair sharpens it
        estimate += float(wrap_angle(phase[pair] - rate[pair] * estimate) / rate[pair])
    nearest = next(list_roundings(estimate, 1e-5))
    misfit = wrap_angle(phase - rate * nearest).abs().max()
    if float(misfit) > 1e-3:
        return None
    return int(nearest) if nearest == int(nearest) else nearest


def _fit_rule(
    seen: MeasuredFunction, pairs: Pairs, parts: _RotationParts
) -> tuple[FrequencyRule, Pairs]:
    """The rule of the short rates, at the tightest precision that has one."""
    assert seen.lengths is not None
    rates = parts.rates * parts.sign
    if seen.precision == "unknown" and (most := find_near_base(rates)) is not None:
        return FrequencyRule(
            most[0]
        ), pairs  # what bends the angles of fast pairs leaves slow ones alone
    for name, unit in PRECISIONS.items():
        if unit < seen.unit or not _fits_dtype(rates, name, seen.unit):
            continue
        tolerance = compute_tolerance(rates, unit)
        rule = fit_rule(rates, tolerance, parts.scale)
        if rule.base is not None:
            wider = _fit_wider_rule(rule, rates, tolerance, pairs, seen.probe.head_dim)
            rule, pairs = wider or (rule, pairs)
            if rule.scaling is None and seen.lengths.short_up_to is not None:
                rule = _fit_dynamic_rule(rule, rates, parts, seen, pairs, tolerance)
            return rule, pairs
    tolerance = compute_tolerance(rates, seen.unit)
    rule = fit_rule(rates, tolerance, parts.scale)
    if seen.lengths.short_up_to is not None:
        rule = _fit_dynamic_rule(rule, rates, parts, seen, pairs, tolerance)
    return rule, pairs


def _fits_dtype(rates: Tensor, name: str, unit: float) -> bool:
    """Whether rates, measured to ``unit``, look rounded to the type; float64 and their own do."""
    if PRECISIONS[name] <= unit:
        return True
    rounded = rates.to(getattr(torch, name)).double()
    return bool(((rounded - rates).abs() <= 8 * unit * rates.abs()).all())


def _fit_wider_rule(
    rule: FrequencyRule, rates: Tensor, tolerance: Tensor, pairs: Pairs, head_dim: int
) -> tuple[FrequencyRule, Pairs] | None:
    """Interleaved pairs at the start of a head may be the turning part of a proportional ladder."""
    partial = pairs.layout == pairs.out_layout == "interleaved" and pairs.width < head_dim
    if not partial or pairs.start or head_dim % 2 or rule.scaling is not None or rule.base is None:
        return None
    base = fit_base(rates, tolerance, head_dim // 2)
    if base not in USUAL_BASES or rule.base in USUAL_BASES:
        return None
    scaling = Proportional(choose_share(len(rates), head_dim // 2))
    return FrequencyRule(base, scaling), replace(pairs, width=head_dim)


def _fit_dynamic_rule(
    rule: FrequencyRule,
    rates: Tensor,
    parts: _RotationParts,
    seen: MeasuredFunction,
    pairs: Pairs,
    tolerance: Tensor,
) -> FrequencyRule:
    assert seen.lengths is not None
    base = rule.base or 10_000.0
    found = fit_dynamic_scaling(base, rates, parts.scale, seen.lengths, pairs, tolerance)
    if found is None:
        parts.departs.append(
            f"past a context of {seen.lengths.short_up_to} tokens the frequencies change by no"
            " rule that is known here"
        )
        return rule
    return FrequencyRule(base, found)


def _add_config(
    found: Identification,
    rule: FrequencyRule,
    pairs: Pairs,
    parts: _RotationParts,
    seen: MeasuredFunction,
) -> Identification:
    notes = []
    scale = parts.scale
    if isinstance(rule.scaling, (LongRoPE, DynamicYaRN)):
        scale = 1.0  # they bring their own
    head_dim = seen.probe.head_dim
    whole = add_attention_scale(rule, scale, 8 * seen.unit)
    if isinstance(rule.scaling, (DynamicNTK, DynamicLinear)) and scale != 1.0:
        parts.departs.append(f"the attention scale {scale} of a scaling that has none")
        scale = 1.0
    rates = (parts.rates * parts.sign).tolist()
    listed = [next(list_roundings(r, seen.unit / 4)) if r else 0.0 for r in rates]
    config = build_rope_options(whole, pairs, head_dim, listed, scale)
    if parts.sign < 0:
        config["direction"] = "backward"
    parameters, missing = build_rope_parameters(whole, parts.scale, parts.rates, pairs, head_dim)
    notes += [f"not in rope_parameters: {line}" for line in missing]
    if seen.probe.kind == "cos_sin":
        notes.append(f"the frequencies are those of the tables we gave it, base {TABLE_BASE:,.0f}")
    if whole.base is None:
        notes.append(
            f"no rule is known that gives these frequencies: all {len(listed)} are listed"
            f"{describe_near_base(parts.rates * parts.sign)}"
        )
    notes += _list_notes(seen, rule, pairs)
    return replace(
        found,
        base=whole.base,
        scaling=whole.scaling,
        config=config,
        hf=parameters,
        notes=tuple(notes),
    )


def _list_notes(seen: MeasuredFunction, rule: FrequencyRule, pairs: Pairs) -> list[str]:
    notes = []
    if seen.probe.addressing == "first":
        notes.append(
            "only the first position of a call counts; the others are taken to follow it,"
            " so left padding and packed documents need a call each"
        )
    if rule.base is not None and rule.scaling is None and pairs.width > 2:
        exponent = (pairs.width - 2) / pairs.width
        for usual in (10_000.0, 500_000.0, 1_000_000.0):
            factor = (rule.base / usual) ** exponent
            rounded = float(f"{factor:.3g}")
            if rounded > 1 and abs(factor / rounded - 1) < 1e-6 and rule.base % 10:
                notes.append(f"the base is that of NTK(factor={rounded:g}) on {usual:,.0f}")
    if seen.lengths is not None and seen.lengths.problem is not None:
        notes.append(
            f"answers contexts up to {seen.lengths.reach} tokens and no longer ones:"
            f" {seen.lengths.problem}"
        )
    if seen.lengths is not None and seen.lengths.slow:
        notes.append(seen.lengths.unasked)
    return notes


def _compare_with_config(
    found: Identification, seen: MeasuredFunction, departs: list[str]
) -> Identification:
    """Compare the config with the function: at the first positions, and at longer lengths."""
    assert seen.pairs is not None
    assert seen.lengths is not None
    probe = seen.probe
    if found.layout is None or found.out_layout is None:
        return replace(found, config=None, encoding=None, departs=tuple(departs))
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(4, probe.head_dim, generator=generator).double()
    vectors = vectors / vectors.norm(dim=-1, keepdim=True)
    at = torch.tensor(FIRST_POSITIONS, dtype=torch.float64) + found.offset
    theirs = probe.turned(vectors, FIRST_POSITIONS)
    ours = _rotate_by_config(found, vectors, at, None)
    error = float((theirs - ours).abs().max())
    for length, _ in seen.lengths.past:
        inputs = torch.zeros(2, probe.head_dim, dtype=torch.float64)
        inputs[0, seen.pairs.a_in], inputs[1, seen.pairs.b_in] = 1, 1
        turned = _rotate_by_config(found, inputs, at, length)
        mine = torch.stack((turned[..., seen.pairs.a_out], turned[..., seen.pairs.b_out]), -1)
        past = measure_in_context(probe, seen.pairs, length) - mine.permute(0, 2, 3, 1)
        error = max(error, float(past.abs().max()))
    allowed = 128 * seen.unit if seen.unit < 1e-6 else 8 * seen.unit  # angles up to 15, sizes of 1
    if found.encoding == "rope" and not departs:
        wrong = find_first_departure(seen, seen.pairs, found)
        if wrong is not None:
            rough = " (they are as rough as in a half type)" if seen.half_angles else ""
            departs.append(
                f"at position {wrong[0]:,}, angles no longer continue the first ones{rough}"
            )
            error = max(error, wrong[1])
    if seen.precision == "unknown":
        departs.append(_describe_misfit(seen))
    exact = error <= allowed * max(1.0, found.attention_scale) and not departs
    if not exact and not departs:
        departs.append(f"results differ by up to {error:.2g} on unit vectors")
    if found.offset:
        plain = _rotate_by_config(found, vectors, at - found.offset, None)
        departs.append(
            f"no config has an offset: call the encoding with positions {found.offset:+g}, where it"
            f" differs by {error:.1g}"
        )
        exact, error = False, max(error, float((theirs - plain).abs().max()))
    return replace(found, error=error, exact=exact, departs=tuple(departs))


def _describe_misfit(seen: MeasuredFunction) -> str:
    """What is not a rotation at the first positions, where no rounding explains it."""
    assert seen.turning is not None
    if seen.turning.wobble > seen.turning.noise / 8:
        return (
            f"angles are up to {seen.turning.noise:.2g} of themselves off positions times"
            f" frequencies and sizes up to {seen.turning.wobble:.2g} off a constant"
        )
    return "angles are not positions times frequencies; does it count along two axes?"


def _rotate_by_config(
    found: Identification, vectors: Tensor, at: Tensor, length: int | None
) -> Tensor:
    """Vectors [N, D] at each position, by the config: [T, N, D]."""
    encoding: Any = found.build(table="on_the_fly")
    x = vectors[:, None, None, :].expand(-1, 1, len(at), -1).contiguous()
    more: dict[str, Any] = {}
    if found.role is not None:
        more["role"] = found.role
    if length is not None:
        more["context_length"] = length
    rotated: Tensor = encoding.rotate(x, at, **more)
    return rotated[:, 0].transpose(0, 1)
