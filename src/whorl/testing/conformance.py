"""The conformance suite: all checks on one encoding, like scikit-learn's ``check_estimator``."""

import copy
from collections.abc import Collection
from dataclasses import dataclass

from whorl._support.words import quote
from whorl.encodings import Encoding

from .checks import CHECKS

__all__ = ["CheckResult", "check_encoding", "list_checks"]


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: passed, failed with a message, or exempt with the encoding's reason."""

    check: str
    passed: bool
    message: str = ""
    exempt: bool = False


def list_checks() -> dict[str, str]:
    """Name of every check of the conformance suite, and what it checks in one line."""
    return {name: (check.__doc__ or "").strip().split("\n")[0] for name, check in CHECKS.items()}


def check_encoding(
    encoding: Encoding,
    *,
    only: Collection[str] | None = None,
    raises: bool = True,
) -> list[CheckResult]:
    """Run the conformance suite; raise one AssertionError that names every failed check.

    Each check works on a copy, so ``encoding`` does not change. A class that cannot pass a check by
    its nature declares it in ``exempt``, with the reason. ``raises=False`` returns results only.
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "check_encoding: encoding must be an instance of a whorl.Encoding subclass;"
            f" got {quote(encoding)}."
        )
    for name in (*encoding.exempt, *(only or ())):
        if name not in CHECKS:
            raise ValueError(f"unknown check {quote(name)}; known: {', '.join(CHECKS)}.")
    chosen = [name for name in CHECKS if only is None or name in only]
    results = [_run_check(encoding, name) for name in chosen]
    failed = [result for result in results if not result.passed]
    if failed and raises:
        lines = "\n".join(f"  {result.check}: {result.message}" for result in failed)
        raise AssertionError(
            f"{quote(encoding)} fails {len(failed)} of {len(results)} checks:\n{lines}"
        )
    return results


def _run_check(encoding: Encoding, name: str) -> CheckResult:
    if name in encoding.exempt:
        return CheckResult(name, True, encoding.exempt[name], exempt=True)
    try:
        CHECKS[name](copy.deepcopy(encoding))
    except Exception as error:  # whatever an encoding raises, it fails the check
        return CheckResult(name, False, f"{type(error).__name__}: {error}")
    return CheckResult(name, True)
