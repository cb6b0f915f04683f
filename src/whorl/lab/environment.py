"""Machine, versions and threads of a run, and what changed when it was resumed."""

import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import torch

import whorl
from whorl.info import read_cpu
from whorl.kernels import native

__all__ = ["describe_changes", "describe_environment"]

# Entries that may change the numbers of a run.
_COMPARED = ("torch", "cpu", "kernel", "threads", "whorl", "python", "system")


def describe_environment(command: str = "") -> dict[str, Any]:
    """Machine, versions, threads and the command, as plain values."""
    problem = native.find_problem()
    return {
        "cpu": read_cpu().model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "whorl": whorl.__version__,
        "kernel": f"PyTorch reference: {problem}"
        if problem
        else f"native, {native.get_best_isa()}",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }


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
