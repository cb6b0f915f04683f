"""Machine and versions that a report was measured with."""

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

import torch

import whorl
from whorl.info import read_cpu
from whorl.kernels import native

__all__ = ["describe_environment", "is_same_environment"]


class PeerInfo(Protocol):
    """What a report says about another library; ``rotation.peers`` has them."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def package(self) -> str | None: ...

    @property
    def note(self) -> str: ...

    def explain_missing(self) -> str | None: ...

    def read_version(self) -> str | None: ...


def describe_environment(peers: Sequence[PeerInfo] = ()) -> dict[str, Any]:
    """CPU, date and versions; under "missing" the peers that cannot be imported, and why."""
    missing = {peer.name: problem for peer in peers if (problem := peer.explain_missing())}
    versions = {peer.package: peer.read_version() for peer in peers if peer.name not in missing}
    return {
        "cpu": read_cpu().model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "whorl": whorl.__version__,
        "kernel": _describe_kernel(),
        "peers": {name: found for name, found in versions.items() if name and found},
        "missing": missing,
        "notes": {p.title: p.note for p in peers if p.note and p.name not in missing},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "",
    }


def is_same_environment(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two reports have the same machine and versions; date and command may differ."""
    free = ("date", "command")
    first, second = ({k: v for k, v in e.items() if k not in free} for e in (one, other))
    return first == second


def _describe_kernel() -> str:
    problem = native.find_problem()
    if problem:
        return f"PyTorch reference: {problem}"
    return f"native, {native.get_best_isa()}"
