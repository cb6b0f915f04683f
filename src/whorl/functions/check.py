"""``check``: measure every property of a rotary function, and name its mistakes."""

import math
from collections.abc import Callable
from typing import Any

import torch

from .calls import measure_calls
from .constant_length import TOKENS, build_constant_length_probe
from .evidence import Evidence
from .identification import Identification
from .identify import add_call_failures, add_dependence, identify_measured, merge_keys
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

#: Properties that no config can describe. ``history`` is not one of them: here it includes what
#: calls in half precision change, which is a mistake but does not make it another rotation.
_BEYOND_CONFIG = ("heads", "offset", "batch", "length")

#: Mistakes that stay hidden where frequencies depend on the length of calls.
_HIDDEN_ACROSS_LENGTHS = ("bf16-positions", "fp16-positions", "dtype-differs", "far-positions")
#: Mistakes that seem to be there because of such frequencies, and properties measured wrongly.
_FALSE_ACROSS_LENGTHS = ("keys-differ", "norm")
_WRONG_ACROSS_LENGTHS = ("far", *DTYPES, "keys", "relative", "norm")


def check(
    fn: Callable[..., Any], head_dim: int, *, kind: Kind = "x", base: float | None = None
) -> CheckReport:
    """Measure what a rotary function does to basis vectors, and report what is wrong with it.

    Args:
        fn: takes and returns NumPy arrays or torch tensors [B, H, T, D]. Its errors are reported.
        head_dim: channels of one head, D.
        kind: "x" for fn(x, positions), "qk" for fn(q, k, positions), "cos_sin" for
            fn(q, k, cos, sin).
        base: the base that it should have. Without it, the square of a common base is reported as
            a mistake in the exponent.

    >>> import whorl
    >>> report = whorl.check(whorl.RoPE(64).rotate, head_dim=64)
    >>> report.ok, report.diagnoses
    (True, [])
    >>> report.properties["norm"].ok
    True
    """
    try:
        probe = prepare_probe(fn, head_dim, kind, "check")
        evidence = _collect_evidence(probe, base)
    except NoAnswerError as problem:
        return _build_refusal_report(fn, head_dim, problem)
    return _build_report(evidence, _measure_at_one_length(evidence))


def _measure_at_one_length(evidence: list[Evidence]) -> list[Evidence]:
    """Evidence from calls of one length, or [] if it adds nothing.

    If frequencies depend on the length of calls or on the context, calls of different lengths
    cannot be compared, which hides mistakes.
    """
    depends_on_length = any(
        each.fails("history")
        or each.calls.far.wrong_call_tokens
        or each.depends_on_call_length
        or each.depends_on_context
        for each in evidence
    )
    if not depends_on_length:
        return []
    probe = build_constant_length_probe(evidence[0].function)
    if probe is None:
        return []
    try:
        again = _collect_evidence(probe, evidence[0].base)
    except NoAnswerError:
        return []
    # If these fail, results depend on more than the length, so one length is no remedy.
    required = ("history", "length")
    return [] if any(each.fails(name) for each in again for name in required) else again


def _collect_mistakes(evidence: list[Evidence], one_length: list[Evidence]) -> list[Mistake]:
    """All mistakes, including those that only calls of one length show.

    If earlier calls change results, later calls seem to have more mistakes than they have. Then
    calls of one length add only those that other calls cannot show.
    """
    found, again = find_mistakes(evidence), find_named_mistakes(one_length) if one_length else []
    if one_length:
        confirmed = {one.id for one in again}
        found = [one for one in found if one.id in confirmed or one.id not in _FALSE_ACROSS_LENGTHS]
    known, has_history = {one.id for one in found}, any(each.fails("history") for each in evidence)
    return found + [
        Mistake(one.id, f"In calls of {TOKENS} tokens each: {one.words}")
        for one in again
        if one.id not in known and (not has_history or one.id in _HIDDEN_ACROSS_LENGTHS)
    ]


def _collect_evidence(probe: FunctionProbe, base: float | None) -> list[Evidence]:
    """Everything measured of x, or of queries and of keys."""
    before = make_reference_call(probe)
    functions = [measure_function(role) for role in probe.split_roles()]
    found = [identify_measured(function) for function in functions]
    measured = [_measure_properties(*each) for each in zip(functions, found, strict=True)]
    roles = None
    if len(functions) == 2:
        roles = compare_roles((functions[0], functions[1]), (found[0], found[1]))
        for results in measured:
            results.update(roles.results)
    evidence = []
    for n, calls in enumerate(measure_calls(functions, found, before)):
        measured[n].update(calls.results)
        both = roles if n == 0 else None
        evidence.append(Evidence(functions[n], found[n], measured[n], calls, base, both))
    return evidence


def _measure_properties(function: MeasuredFunction, found: Identification) -> PropertyResults:
    """Properties of one function that single calls show."""
    results = PropertyResults()
    results.add("answers", 0.0, 0.0)
    results.update(measure_matrix_properties(function, found))
    if function.probe.kind == "cos_sin":
        _measure_scale_power(results, function)
    return results


def _build_report(evidence: list[Evidence], one_length: list[Evidence]) -> CheckReport:
    """The report; results from calls of one length replace those that they correct."""
    first, results = evidence[0], PropertyResults()
    found = add_call_failures(first.found, first.results, _BEYOND_CONFIG)
    mistakes = _collect_mistakes(evidence, one_length)
    for each, again in zip(evidence, one_length, strict=False):
        each.results.update(again.results.select(_WRONG_ACROSS_LENGTHS))
    results.update(first.results)
    if len(evidence) == 2:
        results.merge_keys(evidence[1].results)
        roles = one_length[0].roles if one_length else first.roles
        assert roles is not None
        theirs = add_call_failures(evidence[1].found, evidence[1].results, _BEYOND_CONFIG)
        found = merge_keys(found, theirs, roles.differences, first.error("keys"))
        found = add_dependence(found, describe_dependence(roles.dependence))
    ordered = {name: results.measured[name] for name in MEANINGS if name in results.measured}
    return CheckReport(
        name=first.function.probe.name,
        head_dim=first.function.probe.head_dim,
        properties={name: measured for name, (measured, _) in ordered.items()},
        limits={name: limit for name, (_, limit) in ordered.items()},
        unmeasured=results.unmeasured,
        diagnoses=mistakes,
        identified=found,
    )


def _build_refusal_report(
    fn: Callable[..., Any], head_dim: int, problem: NoAnswerError
) -> CheckReport:
    """The report about a function that cannot be called, or only once."""
    name = "history" if isinstance(problem, RefusedLaterError) else "no-answer"
    return CheckReport(
        name=name_function(fn),
        head_dim=head_dim,
        properties={"answers": Measured(False, 1.0)},
        limits={"answers": 0.0},
        diagnoses=[Mistake(name, f"The function {problem}")],
    )


def _measure_scale_power(results: PropertyResults, function: MeasuredFunction) -> None:
    """Check that tables times 1.5 give results times 1.5, and not a higher power of it."""
    probe, pairs = function.probe, function.pairs
    assert probe.form.tables is not None
    if pairs is None:
        results.skip("scale", "no pairs rotate")
        return
    length = probe.take_new_length()
    x = torch.ones(1, 1, length, probe.head_dim, dtype=torch.float64)
    positions = torch.arange(length)
    plain = probe.ask_role(x, positions)
    scaled = probe.ask_with_scaled_tables(x, positions, 1.5)
    channels = torch.cat((pairs.a_out, pairs.b_out))
    growth = scaled[..., channels].norm() / plain[..., channels].norm()
    power = float(growth.log()) / math.log(1.5)
    results.record("scale", abs(power - 1) <= 1e-3, power - 1, 1e-3)
