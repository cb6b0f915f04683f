"""Machine, versions and threads of a run, and what changed when it was resumed."""

from collections.abc import Mapping
from typing import Any

from whorl.info import describe_environment

__all__ = ["describe_changes", "describe_environment"]

# Entries that may change the numbers of a run.
_COMPARED = ("torch", "cpu", "kernel", "threads", "whorl", "python", "system")


def describe_changes(environment: Mapping[str, Any]) -> list[str]:
    """A sentence for each resumption in another environment than before."""
    found, before = [], environment
    for now in environment["resumes"]:
        if words := [f"{k} {before[k]} -> {now[k]}" for k in _COMPARED if before[k] != now[k]]:
            found.append(
                f"resumed at step {now['step']} in another environment ({', '.join(words)}): from"
                " there on numbers may differ from those of a run without a break"
            )
        before = now
    return found
