"""``check``: measure every property of a rotary function, and name its mistakes."""

from collections.abc import Callable
from typing import Any

from .call_forms import DTYPES, Kind
from .calls import measure_calls
from .evidence import Evidence
from .identify import add_call_failures, add_dependence, identify_measured, merge_keys
from .measured_function import (
    make_reference_call,
    measure_function,
    name_function,
    prepare_probe,
)
from .mistakes import find_mistakes, find_named_mistakes
from .pairs import compute_difference
from .probe import ConstantLengthProbe, FunctionProbe, NoAnswerError, RefusedLaterError
from .properties import MEANINGS, measure_matrix_properties
from .report import CheckReport, Measured, Mistake
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
#: A position beyond all that are measured; then the last of those, for tables that end there.
_LARGEST_POSITIONS = (2**18 - 1, 2**17 - 1)


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
        or each.far.wrong_call_tokens
        or each.depends_on_call_length
        or each.depends_on_context
        for each in evidence
    )
    if not depends_on_length:
        return []
    probe = _build_constant_length_probe(evidence[0])
    if probe is None:
        return []
    try:
        again = _collect_evidence(probe, evidence[0].base)
    except NoAnswerError:
        return []
    # If these fail, results depend on more than the length, so one length is no remedy.
    required = ("history", "length")
    return [] if any(each.fails(name) for each in again for name in required) else again


def _build_constant_length_probe(e: Evidence) -> ConstantLengthProbe | None:
    """A probe whose calls do not change later ones, or None if there is none."""
    probe, rotation = e.function.probe, e.rotation
    if probe.addressing != "each" or rotation is None:
        return None
    longest = rotation.lengths.longest_context - 1
    for largest in (longest,) if rotation.lengths.too_slow else (*_LARGEST_POSITIONS, longest):
        candidate = ConstantLengthProbe(probe, largest)
        try:
            first, moved, again = (
                make_reference_call(candidate, start=start)[probe.role] for start in (0, 7, 0)
            )
        except NoAnswerError:
            continue
        is_constant = compute_difference(first, again) == 0 < compute_difference(first, moved)
        return candidate if is_constant else None
    return None


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
        Mistake(one.id, f"In calls of {ConstantLengthProbe.tokens} tokens each: {one.words}")
        for one in again
        if one.id not in known and (not has_history or one.id in _HIDDEN_ACROSS_LENGTHS)
    ]


def _collect_evidence(probe: FunctionProbe, base: float | None) -> list[Evidence]:
    """Everything measured of x, or of queries and of keys."""
    before = make_reference_call(probe)
    functions = [measure_function(role) for role in probe.split_roles()]
    evidence = [Evidence(each, identify_measured(each), base) for each in functions]
    for each in evidence:
        measure_matrix_properties(each)
    if len(evidence) == 2:
        compare_roles(*evidence)
    measure_calls(evidence, before)
    return evidence


def _build_report(evidence: list[Evidence], one_length: list[Evidence]) -> CheckReport:
    """The report; results from calls of one length replace those that they correct."""
    first = evidence[0]
    mistakes = _collect_mistakes(evidence, one_length)
    if any(one.id == "call-length" for one in mistakes):
        for each in evidence:
            each.record_call_length()
    found = add_call_failures(first, _BEYOND_CONFIG)
    for each, again in zip(evidence, one_length, strict=False):
        each.replace_by(again, _WRONG_ACROSS_LENGTHS)
    if len(evidence) == 2:
        keys, roles = evidence[1], (one_length or evidence)[0]
        assert roles.dependence is not None
        theirs = add_call_failures(keys, _BEYOND_CONFIG)
        found = merge_keys(found, theirs, roles.differences, first.error("keys"))
        found = add_dependence(found, describe_dependence(roles.dependence))
        _merge_results(first, keys)
    ordered = {name: first.measured[name] for name in MEANINGS if name in first.measured}
    return CheckReport(
        name=first.function.probe.name,
        head_dim=first.function.probe.head_dim,
        properties={name: measured for name, (measured, _) in ordered.items()},
        limits={name: limit for name, (_, limit) in ordered.items()},
        unmeasured=first.unmeasured,
        diagnoses=mistakes,
        identified=found,
    )


def _merge_results(queries: Evidence, keys: Evidence) -> None:
    """Replace results of queries by those of keys that are worse."""

    def rank(measured: Measured, limit: float) -> tuple[bool, float]:
        return not measured.ok, abs(measured.error) / (limit or 1.0)

    for name, theirs in keys.measured.items():
        if name not in queries.measured or rank(*theirs) > rank(*queries.measured[name]):
            queries.measured[name] = theirs
    for name, why in keys.unmeasured.items():
        queries.unmeasured.setdefault(name, f"keys: {why}" if name in queries.measured else why)


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
