"""Is this rotation right? Every property measured, and every known mistake named."""

from collections.abc import Callable
from typing import Any

import torch

from .calls import call_properties, first_answer
from .diagnoses import diagnose
from .evidence import Evidence
from .identify import identified
from .probe import Kind, NoAnswerError, Probe, RefusedLaterError
from .properties import MEANINGS, Results, matrix_properties
from .report import CheckReport, Diagnosis, Measured
from .study import Study, name_of, prepare, study

__all__ = ["check"]


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
        probe = prepare(fn, head_dim, kind, "check")
    except NoAnswerError as problem:
        return _unanswered(fn, head_dim, problem)
    try:
        before = first_answer(probe)
        seen = study(probe)
        found = identified(seen)
        results = {"answers": (Measured(True, 0.0), 0.0), **matrix_properties(seen, found)}
        if kind == "cos_sin":
            results["scale"] = _scale(probe, seen)
        calls = call_properties(seen, before)
    except NoAnswerError as problem:
        return _unanswered(fn, head_dim, problem)
    results |= calls.results
    return _report(Evidence(seen, found, results, calls, base))


def _report(evidence: Evidence) -> CheckReport:
    probe, results = evidence.seen.probe, evidence.results
    ordered: Results = {name: results[name] for name in MEANINGS if name in results}
    return CheckReport(
        name=probe.name,
        head_dim=probe.head_dim,
        properties={name: measured for name, (measured, _) in ordered.items()},
        limits={name: limit for name, (_, limit) in ordered.items()},
        diagnoses=diagnose(evidence),
        identified=evidence.found,
    )


def _unanswered(fn: Callable[..., Any], head_dim: int, problem: NoAnswerError) -> CheckReport:
    name = "history" if isinstance(problem, RefusedLaterError) else "no-answer"
    return CheckReport(
        name=name_of(fn),
        head_dim=head_dim,
        properties={"answers": Measured(False, 1.0)},
        limits={"answers": 0.0},
        diagnoses=[Diagnosis(name, f"The function {problem}")],
    )


def _scale(probe: Probe, seen: Study) -> tuple[Measured, float]:
    """Tables times 1.5: by which power of it does the result grow, less one?"""
    assert probe.form.tables is not None
    pairs = seen.pairs
    if pairs is None:
        return Measured(True, 0.0), 1e-3
    length = probe.next_length()
    x = torch.ones(1, 1, length, probe.head_dim, dtype=torch.float64)
    at = torch.arange(length)
    plain = probe.wide(x, at)[0]
    scaled = probe.scaled(x, at, 1.5)
    channels = torch.cat((pairs.a_out, pairs.b_out))
    growth = scaled[..., channels].norm() / plain[..., channels].norm()
    power = float(growth.log() / torch.tensor(1.5, dtype=torch.float64).log())
    return Measured(abs(power - 1) <= 1e-3, power - 1), 1e-3
