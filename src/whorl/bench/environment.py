"""Where and with what a report was made."""

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

import torch

import whorl
from whorl.info import cpu
from whorl.kernels import native

__all__ = ["describe", "same"]


class Peer(Protocol):
    """What is told of another library; see ``rotation.peers``."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def package(self) -> str | None: ...

    @property
    def note(self) -> str: ...

    def missing(self) -> str | None: ...

    def version(self) -> str | None: ...


def describe(peers: Sequence[Peer] = ()) -> dict[str, Any]:
    """CPU, date and versions; peers that do not import stand under "missing" with the reason."""
    missing = {peer.name: problem for peer in peers if (problem := peer.missing())}
    versions = {peer.package: peer.version() for peer in peers if peer.name not in missing}
    return {
        "cpu": cpu().model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "whorl": whorl.__version__,
        "kernel": _kernel(),
        "peers": {name: found for name, found in versions.items() if name and found},
        "missing": missing,
        "notes": {p.title: p.note for p in peers if p.note and p.name not in missing},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "",
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two reports come from the same machine and versions; date and command may differ."""
    free = ("date", "command")
    first, second = ({k: v for k, v in e.items() if k not in free} for e in (one, other))
    return first == second


def _kernel() -> str:
    problem = native.find_problem()
    if problem:
        return f"PyTorch reference: {problem}"
    return f"native, {native.get_best_isa()}"
