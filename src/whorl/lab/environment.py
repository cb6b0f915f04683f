"""Machine, versions and threads of a run, and what changed when it was resumed."""

from collections.abc import Mapping
from typing import Any

from whorl import info
from whorl._support.launch import read_launch

__all__ = ["describe_changes", "describe_environment"]

# Entries that may change the numbers of a run.
_COMPARED = ("torch", "cpu", "kernel", "threads", "whorl", "python", "system", "processes")


def describe_environment(command: str = "") -> dict[str, Any]:
    """Machine, versions, threads, date and command of results, and how many processes made them."""
    launch = read_launch()
    several = {} if launch is None or launch.world == 1 else {"processes": launch.world}
    return {**info.describe_environment(command), **several}


def describe_changes(environment: Mapping[str, Any]) -> list[str]:
    """A sentence for each resumption in another environment than before."""
    found, before = [], environment
    for now in environment["resumes"]:
        was, is_ = ({"processes": 1, **one} for one in (before, now))
        if words := [f"{k} {was[k]} -> {is_[k]}" for k in _COMPARED if was[k] != is_[k]]:
            found.append(
                f"resumed at step {now['step']} in another environment ({', '.join(words)}): from"
                " there on numbers may differ from those of a run without a break"
            )
        before = now
    return found
