"""``identify``: find the simplest config that reproduces a rotary function."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whorl.scaling import DynamicLinear, DynamicNTK, DynamicYaRN, LongRoPE

from .call_forms import TABLE_BASE, Kind
from .calls import measure_beyond_config
from .evidence import Evidence
from .far_positions import find_first_departure
from .frequency_rules import FrequencyRule, find_near_base
from .identification import Identification
from .measured_function import (
    MeasuredFunction,
    MeasuredRotation,
    make_reference_call,
    measure_function,
    measure_in_context,
    prepare_probe,
)
from .options import add_attention_scale, add_xpos, build_rope_options, build_rope_parameters
from .pairs import FIRST_POSITIONS, Pairs
from .probe import NoAnswerError
from .properties import MEANINGS
from .roles import are_keys_like_queries, describe_dependence, list_differences, measure_dependence
from .rotation_parts import RotationParts, derive_parts, fit_rotation_rule
from .rounding import list_roundings

__all__ = ["add_call_failures", "add_dependence", "identify", "identify_measured", "merge_keys"]


def identify(fn: Callable[..., Any], head_dim: int, *, kind: Kind = "x") -> Identification:
    """Find layout, frequencies, scaling and all other options of a rotary function by calling it.

    Args:
        fn: takes and returns NumPy arrays or torch tensors [B, H, T, D].
        head_dim: channels of one head, D.
        kind: "x" for fn(x, positions), "qk" for fn(q, k, positions), "cos_sin" for
            fn(q, k, cos, sin), which is given tables of base 10,000.

    Raises ValueError if the function cannot be called in any way that is tried.

    >>> import whorl
    >>> rope = whorl.RoPE(64, base=500_000.0, layout="interleaved")
    >>> found = whorl.identify(rope.rotate, head_dim=64)
    >>> found.layout, found.base, found.offset
    ('interleaved', 500000.0, 0)
    >>> dict(found.config)
    {'head_dim': 64, 'base': 500000.0, 'layout': 'interleaved'}
    """
    try:
        probe, *keys = prepare_probe(fn, head_dim, kind, "identify").split_roles()
        before = make_reference_call(probe)
        function = measure_function(probe)
        found = _identify_role(function, before[0])
        if not keys:
            return found
        dependence = describe_dependence(measure_dependence(probe, 1e-3)[0])
        if are_keys_like_queries(function, keys[0]):
            return add_dependence(found, dependence)
        other = measure_function(keys[0])
        difference = float((other.matrices - function.matrices).abs().max())
        theirs = _identify_role(other, before[1])
        found = merge_keys(found, theirs, tuple(list_differences(found, theirs)), difference)
        return add_dependence(found, dependence)
    except NoAnswerError as problem:
        raise ValueError(f"identify: the function {problem}") from None


def _identify_role(function: MeasuredFunction, before: Tensor) -> Identification:
    """Identification of x, queries or keys, with properties that no config can describe."""
    e = Evidence(function, identify_measured(function))
    measure_beyond_config(e, before)
    return add_call_failures(e, ("heads", "offset", "batch", "length", "history"))


def add_dependence(found: Identification, words: str) -> Identification:
    """The identification, with a sentence about which argument makes which result, if any."""
    if not words:
        return found
    return replace(found, exact=False, departs=(*found.departs, words))


def add_call_failures(e: Evidence, names: Sequence[str]) -> Identification:
    """The identification, with properties that fail when calls are compared."""
    lines = [
        f"it does not hold that {MEANINGS[name]}: the error is {e.error(name):.2g}"
        for name in names
        if e.fails(name) and e.found.encoding is not None
    ]
    if not lines:
        return e.found
    return replace(e.found, exact=False, departs=(*e.found.departs, *lines))


def merge_keys(
    queries: Identification, keys: Identification, differences: tuple[str, ...], error: float
) -> Identification:
    """The identification of queries, with how keys differ; error: by how much."""
    if not differences and keys.exact >= queries.exact:
        return replace(queries, error=max(queries.error, keys.error))
    lines = [f"keys are not treated as queries are: {line}" for line in differences]
    if not differences:
        lines = [f"keys: {line}" for line in keys.departs]
    return replace(
        queries,
        error=max(queries.error, error),
        exact=False,
        departs=(*queries.departs, *lines),
        keys=keys,
    )


def identify_measured(function: MeasuredFunction) -> Identification:
    """The simplest config of a measured function, and where the function differs from it."""
    probe = function.probe
    common: dict[str, Any] = {
        "name": probe.name,
        "precision": function.precision,
        "asked": str(probe.form),
    }
    if function.repeat_difference > function.rounding_limit:
        said = f"the same call twice in a row differs by {function.repeat_difference:.2g}"
        return Identification(encoding=None, departs=(said,), **common)
    if not isinstance(function, MeasuredRotation):
        if function.no_pairs_reason is not None:
            return Identification(encoding=None, departs=(function.no_pairs_reason,), **common)
        error = float((function.matrices - torch.eye(probe.head_dim)).abs().max())
        if error < 1e-6:
            return Identification(encoding="nope", config={}, error=error, exact=True, **common)
        said = "no channel mixes with another, and the result is not the input"
        return Identification(encoding=None, departs=(said,), **common)
    parts = derive_parts(function)
    rule, pairs = fit_rotation_rule(function, parts)
    found = Identification(
        encoding="rope",
        layout=pairs.layout,
        out_layout=pairs.out_layout,
        rotary_dim=pairs.width,
        rotary_start=pairs.start,
        inv_freq=tuple(parts.inv_freq.tolist()),
        attention_scale=parts.scale,
        sign=parts.sign,
        offset=parts.offset,
        reach=function.lengths.longest_context,
        **common,
    )
    found = _add_config(found, rule, pairs, parts, function)
    found = add_xpos(found, function, pairs, parts.departs)
    return _compare_with_config(found, function, parts.departs)


def _add_config(
    found: Identification,
    rule: FrequencyRule,
    pairs: Pairs,
    parts: RotationParts,
    function: MeasuredRotation,
) -> Identification:
    """The identification with options for whorl and for transformers, and notes about them."""
    notes = []
    scale = parts.scale
    if isinstance(rule.scaling, (LongRoPE, DynamicYaRN)):
        scale = 1.0  # these scalings include it
    whole = add_attention_scale(rule, scale, 8 * function.rounding_unit)
    if isinstance(rule.scaling, (DynamicNTK, DynamicLinear)) and scale != 1.0:
        parts.departs.append(f"the attention scale {scale} of a scaling that has none")
        scale = 1.0
    inv_freq = (parts.inv_freq * parts.sign).tolist()
    listed = [next(list_roundings(r, function.rounding_unit / 4)) if r else 0.0 for r in inv_freq]
    config = build_rope_options(whole, pairs, listed, scale)
    if parts.sign < 0:
        config["direction"] = "backward"
    parameters, missing = build_rope_parameters(whole, parts.scale, parts.inv_freq, pairs)
    notes += [f"not in rope_parameters: {line}" for line in missing]
    if function.probe.kind == "cos_sin":
        notes.append(
            f"the frequencies are those of the tables it was given, base {TABLE_BASE:,.0f}"
        )
    if whole.base is None:
        note = f"no rule is known that gives these frequencies: all {len(listed)} are listed"
        if (near := find_near_base(parts.inv_freq * parts.sign)) is not None:
            some = ", ".join(map(str, near[1][:4])) + (", ..." if len(near[1]) > 4 else "")
            note += f"; all but pairs {some} would fit base {near[0]:,.0f}"
        notes.append(note)
    notes += _list_notes(function, rule, pairs)
    return replace(
        found,
        base=whole.base,
        scaling=whole.scaling,
        config=config,
        hf=parameters,
        notes=tuple(notes),
    )


def _list_notes(function: MeasuredRotation, rule: FrequencyRule, pairs: Pairs) -> list[str]:
    """Notes about positions, bases and contexts."""
    notes = []
    if function.probe.addressing == "first":
        notes.append(
            "only the first position of a call counts; the others are assumed to be consecutive,"
            " so left padding and packed documents need a call each"
        )
    if rule.base is not None and rule.scaling is None and pairs.width > 2:
        exponent = (pairs.width - 2) / pairs.width
        for usual in (10_000.0, 500_000.0, 1_000_000.0):
            factor = (rule.base / usual) ** exponent
            rounded = float(f"{factor:.3g}")
            if rounded > 1 and abs(factor / rounded - 1) < 1e-6 and rule.base % 10:
                notes.append(f"the base is that of NTK(factor={rounded:g}) on {usual:,.0f}")
    if function.lengths.problem is not None:
        notes.append(
            f"answers contexts up to {function.lengths.longest_context} tokens and no longer ones:"
            f" {function.lengths.problem}"
        )
    if function.lengths.too_slow:
        notes.append(function.lengths.time_limit_note)
    return notes


def _compare_with_config(
    found: Identification, function: MeasuredRotation, departs: list[str]
) -> Identification:
    """The identification with the difference between config and function, and what departs."""
    probe, pairs = function.probe, function.pairs
    if found.layout is None or found.out_layout is None:
        return replace(found, config=None, encoding=None, departs=tuple(departs))
    vectors = probe.draw_vectors(4, seed=1)
    vectors = vectors / vectors.norm(dim=-1, keepdim=True)
    at = torch.tensor(FIRST_POSITIONS, dtype=torch.float64) + found.offset
    theirs = probe.rotate_vectors(vectors, FIRST_POSITIONS)
    ours = _rotate_by_config(found, vectors, at, None)
    error = float((theirs - ours).abs().max())
    for length, _ in function.lengths.longer:
        ours = pairs.select_blocks(_rotate_by_config(found, pairs.build_inputs(), at, length))
        past = measure_in_context(probe, pairs, length) - ours
        error = max(error, float(past.abs().max()))
    # Angles are up to 15 radians, which multiplies their rounding.
    allowed = (128 if function.rounding_unit < 1e-6 else 8) * function.rounding_unit
    if found.encoding == "rope" and not departs:
        wrong = find_first_departure(function, found)
        if wrong is not None:
            rough = " (they are rounded to half precision)" if function.half_angles else ""
            where = f" in a call of {wrong.call_tokens:,} tokens" if wrong.call_tokens else ""
            departs.append(
                f"from position {wrong.position:,} on{where}, angles do not continue the first"
                f" ones{rough}"
            )
            error = max(error, wrong.error)
    if function.precision == "unknown":
        departs.append(_describe_misfit(function))
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


def _describe_misfit(function: MeasuredRotation) -> str:
    """How the first positions differ from a rotation, where no rounding explains it."""
    if function.rotations.size_misfit > function.rotations.angle_misfit / 8:
        return (
            "angles differ from positions times frequencies by up to"
            f" {function.rotations.angle_misfit:.2g} of their size, and the length of pairs varies"
            f" by up to {function.rotations.size_misfit:.2g}"
        )
    return "angles are not positions times frequencies; are positions those of a grid?"


def _rotate_by_config(
    found: Identification, vectors: Tensor, at: Tensor, length: int | None
) -> Tensor:
    """Vectors [N, D] rotated to each position by the encoding of the config: [T, N, D]."""
    encoding: Any = found.build(table="on_the_fly")
    x = vectors[:, None, None, :].expand(-1, 1, len(at), -1).contiguous()
    role = {} if found.role is None else {"role": found.role}
    rotated: Tensor = encoding.rotate(x, at, context_length=length, **role)
    return rotated[:, 0].transpose(0, 1)
