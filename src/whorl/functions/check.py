"""Is this rotation right? Every property measured, and every known mistake named."""

import math
from collections.abc import Callable
from typing import Any

import torch

from .calls import measure_calls
from .constant_length import TOKENS, build_constant_length_probe
from .evidence import Evidence
from .identification import Identification
from .identify import add_call_failures, add_origins, identify_measured, merge_keys
from .measured_function import (
    MeasuredFunction,
    make_reference_call,
    measure_function,
    name_function,
    prepare_probe,
)
from .mistakes import find_mistakes, find_named_mistakes
from .probe import DTYPES, FunctionProbe, Kind, NoAnswerError, RefusedLaterError
from .properties import MEANINGS, measure_matrix_properties
from .report import CheckReport, Measured, Mistake
from .results import PropertyResults
from .roles import compare_roles, describe_dependence

__all__ = ["check"]

#: What no config can say. Not ``history``: here it also counts what half-precision calls leave
#: behind, which is a mistake but no part of what the function is.
_BEYOND_CONFIG = ("heads", "offset", "batch", "length")

#: Mistakes that frequencies hide which are not the same in all calls.
_HIDDEN_ACROSS_LENGTHS = ("bf16-positions", "fp16-positions", "dtype-differs", "far-positions")
#: Mistakes that such frequencies feign, and properties that they spoil.
_FALSE_ACROSS_LENGTHS = ("keys-differ", "norm")
_WRONG_ACROSS_LENGTHS = ("far", *DTYPES, "keys", "relative", "norm")


def check(
    fn: Callable[..., Any], head_dim: int, *, kind: Kind = "x", base: float | None = None
) -> CheckReport:
    """Probe a rotary function with basis vectors, and say what holds and what is wrong.

    Args:
        fn: takes and gives NumPy arrays or torch tensors [B, H, T, D]; what it raises is reported.
        head_dim: channels of one head, D.
        kind: "x" for fn(x, positions), "qk" for fn(q, k, positions), "cos_sin" for
            fn(q, k, cos, sin).
        base: the base that is meant. Without it, the square of a common base is taken for an
            exponent that counts its 2 twice.

    >>> import whorl
    >>> report = whorl.check(whorl.RoPE(64).rotate, head_dim=64)
    >>> report.ok, report.diagnoses
    (True, [])
    >>> report.properties["norm"].ok
    True
    """
    try:
        probe = prepare_probe(fn, head_dim, kind, "check")
        before = make_reference_call(probe)
        seen = [measure_function(role) for role in probe.roles()]
        found = [identify_measured(each) for each in seen]
        evidence = _collect_evidence(seen, found, before, base)
    except NoAnswerError as problem:
        return _build_refusal_report(fn, head_dim, problem)
    return _build_report(evidence, _measure_at_one_length(evidence))


def _measure_at_one_length(evidence: list[Evidence]) -> list[Evidence]:
    """What is measured in calls of one length; nothing where that tells nothing more.

    Calls of different lengths hide mistakes where frequencies follow the length of a call, that of
    earlier calls, or the context.
    """
    follows = any(
        each.fails("history") or each.calls.far.tokens or each.follows_calls or each.follows_context
        for each in evidence
    )
    held = build_constant_length_probe(evidence[0].seen) if follows else None
    if held is None:
        return []
    try:
        before = make_reference_call(held)
        seen = [measure_function(role) for role in held.roles()]
        found = [identify_measured(each) for each in seen]
        again = _collect_evidence(seen, found, before, evidence[0].base)
    except NoAnswerError:
        return []
    steady = ("history", "length")  # if not, the length is not all that results depend on
    return [] if any(each.fails(name) for each in again for name in steady) else again


def _collect_mistakes(evidence: list[Evidence], held: list[Evidence]) -> list[Mistake]:
    """All mistakes, those that show in calls of one length only among them.

    What earlier calls left behind looks like a mistake in all later ones; then only those are
    taken that could not show before.
    """
    named, again = find_mistakes(evidence), find_named_mistakes(held) if held else []
    if held:
        real = {one.id for one in again}
        named = [one for one in named if one.id in real or one.id not in _FALSE_ACROSS_LENGTHS]
    known, kept = {one.id for one in named}, any(each.fails("history") for each in evidence)
    return named + [
        Mistake(one.id, f"In calls of {TOKENS} tokens each: {one.words}")
        for one in again
        if one.id not in known and (not kept or one.id in _HIDDEN_ACROSS_LENGTHS)
    ]


def _collect_evidence(
    seen: list[MeasuredFunction],
    found: list[Identification],
    before: list[torch.Tensor],
    base: float | None,
) -> list[Evidence]:
    """Of x, or of queries and of keys."""
    measured = [_measure_properties(*each) for each in zip(seen, found, strict=True)]
    roles = None
    if len(seen) == 2:
        roles = compare_roles((seen[0], seen[1]), (found[0], found[1]))
        for results in measured:
            results.update(roles.results)
    evidence = []
    for each, calls in enumerate(measure_calls(seen, found, before)):
        measured[each].update(calls.results)
        both = roles if each == 0 else None
        evidence.append(Evidence(seen[each], found[each], measured[each], calls, base, both))
    return evidence


def _measure_properties(seen: MeasuredFunction, found: Identification) -> PropertyResults:
    results = PropertyResults()
    results.add("answers", 0.0, 0.0)
    results.update(measure_matrix_properties(seen, found))
    if seen.probe.kind == "cos_sin":
        _measure_scale_power(results, seen.probe, seen)
    return results


def _build_report(evidence: list[Evidence], held: list[Evidence]) -> CheckReport:
    first, found = (
        evidence[0],
        add_call_failures(evidence[0].found, evidence[0].results, _BEYOND_CONFIG),
    )
    diagnoses, results = _collect_mistakes(evidence, held), PropertyResults()
    for each, again in zip(evidence, held, strict=False):
        each.results.update(again.results.only(_WRONG_ACROSS_LENGTHS))
    results.update(first.results)
    if len(evidence) == 2:
        results.join_keys(evidence[1].results)
        roles = held[0].roles if held else first.roles
        assert roles is not None
        theirs = add_call_failures(evidence[1].found, evidence[1].results, _BEYOND_CONFIG)
        found = merge_keys(found, theirs, roles.differs, first.error("keys"))
        found = add_origins(found, describe_dependence(roles.depends))
    ordered = {name: results.measured[name] for name in MEANINGS if name in results.measured}
    return CheckReport(
        name=first.seen.probe.name,
        head_dim=first.seen.probe.head_dim,
        properties={name: measured for name, (measured, _) in ordered.items()},
        limits={name: limit for name, (_, limit) in ordered.items()},
        unmeasured=results.unmeasured,
        diagnoses=diagnoses,
        identified=found,
    )


def _build_refusal_report(
    fn: Callable[..., Any], head_dim: int, problem: NoAnswerError
) -> CheckReport:
    name = "history" if isinstance(problem, RefusedLaterError) else "no-answer"
    return CheckReport(
        name=name_function(fn),
        head_dim=head_dim,
        properties={"answers": Measured(False, 1.0)},
        limits={"answers": 0.0},
        diagnoses=[Mistake(name, f"The function {problem}")],
    )


def _measure_scale_power(
    results: PropertyResults, probe: FunctionProbe, seen: MeasuredFunction
) -> None:
    """Tables times 1.5: by which power of it does the result grow, less one?"""
    assert probe.form.tables is not None
    pairs = seen.pairs
    if pairs is None:
        results.skip("scale", "no pairs turn")
        return
    length = probe.next_length()
    x = torch.ones(1, 1, length, probe.head_dim, dtype=torch.float64)
    at = torch.arange(length)
    plain = probe.wide(x, at)
    scaled = probe.scaled(x, at, 1.5)
    channels = torch.cat((pairs.a_out, pairs.b_out))
    growth = scaled[..., channels].norm() / plain[..., channels].norm()
    power = float(growth.log()) / math.log(1.5)
    results.put("scale", abs(power - 1) <= 1e-3, power - 1, 1e-3)
