"""One cell: every contestant verified, then all of them timed in turn."""

from collections.abc import Sequence

import torch

from whorl.bench.contestants import describe_error
from whorl.bench.measure import settle_allocator, use_threads

from .case import RotationCase
from .peers import COPY, Peer, PeerCall
from .plan import Cell, Plan
from .results import CellResult, Result

__all__ = ["measure_cell", "verify"]


def measure_cell(cell: Cell, peers: Sequence[Peer], plan: Plan) -> CellResult:
    """Set up, verify and time the contestants of one cell."""
    settle_allocator()
    with use_threads(cell.threads), torch.set_grad_enabled(cell.shape.kind == "training"):
        case = RotationCase(cell)
        results: list[Result] = []
        entries: list[tuple[str, PeerCall]] = []
        for peer in peers:
            if not peer.supports(cell):
                continue
            try:
                for entry in peer.entries(case):
                    if problem := verify(peer, entry, case):
                        results.append(Result(peer.name, entry.mode, problem=problem))
                    else:
                        entries.append((peer.name, entry))
            except Exception as error:  # a peer that fails is a result, not the end of the run
                results.append(Result(peer.name, "", problem=describe_error(error)))
        case.reset(fill=0.0)
        timings = plan.time([entry.call for _, entry in entries])
    timed = [
        Result(name, entry.mode, timing)
        for (name, entry), timing in zip(entries, timings, strict=True)
    ]
    return CellResult(cell, (*timed, *results))


def verify(peer: Peer, entry: PeerCall, case: RotationCase) -> str | None:
    """None if the entry computes the rotation (``copy_`` need not), else what is wrong."""
    if peer.name == COPY:
        return None
    case.reset()
    return case.problem(entry.results(), own_angles=peer.own_angles)
