"""Judges made-up results by published claims."""

from collections.abc import Sequence
from typing import Any

from whorl.lab import RunConfig
from whorl.lab.compare.claims import check_claims

from .made import add_thirds, made

__all__ = ["CONFIG", "NOISE", "SAME", "judge", "judge_with_third", "outcome", "risen"]

CONFIG = RunConfig()  # trains on 128 tokens, evaluates at 256 and 512 among others
SAME = [[2.0, 2.1, 1.9]]
# Two steady rows may differ by 0.03 with another seed, two rising ones by 0.28, curves by 0.1.
NOISE = {"steady": {"1": 0.01}, "rising": {"1": 0.1}, "curve": 0.05 / 2**0.5}


def risen(by: float, noise: float = 0.01) -> list[list[float]]:
    return [[value + by + noise * n for n, value in enumerate(SAME[0])]]


def judge(
    claim: str, curves: dict[str, list[Sequence[float]]] | None = None, **losses: Any
) -> dict[str, Any]:
    found = {one["id"]: one for one in check_claims(made(curves, **losses), CONFIG)}
    return found[claim]


def outcome(claim: str, **losses: Any) -> str:
    return str(judge(claim, **losses)["outcome"])


def judge_with_third(claim: str, now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The claim by the losses ``now``, which were those of ``before`` with a third of the steps."""
    entries = add_thirds(made(**now), made(**before))
    return {one["id"]: one for one in check_claims(entries, CONFIG)}[claim]
