"""Measurement of one rotation cell: every contestant is verified, then all are timed."""

from collections.abc import Sequence

import torch

from whorl._support.threads import use_threads
from whorl.bench.contestants import describe_error
from whorl.bench.measure import prepare_allocator

from .case import RotationCase
from .peers import COPY, Peer, PeerCall
from .plan import Cell, Plan
from .results import CellResult, Result

__all__ = ["measure_cell", "verify"]


def measure_cell(cell: Cell, peers: Sequence[Peer], plan: Plan) -> CellResult:
    """The results of one cell, whose contestants are verified and then timed."""
    prepare_allocator()
    with use_threads(cell.threads), torch.set_grad_enabled(cell.shape.kind == "training"):
        case = RotationCase(cell)
        results: list[Result] = []
        entries: list[tuple[str, PeerCall]] = []
        for peer in peers:
            if not peer.supports(cell):
                continue
            try:
                for entry in peer.build_calls(case):
                    if problem := verify(peer, entry, case):
                        results.append(Result(peer.name, entry.mode, problem=problem))
                    else:
                        entries.append((peer.name, entry))
            except Exception as error:  # its failure is reported, and the benchmark goes on
                results.append(Result(peer.name, "", problem=describe_error(error)))
        case.reset(fill=0.0)
        timings = plan.time_calls([entry.call for _, entry in entries])
    timed = [
        Result(name, entry.mode, timing)
        for (name, entry), timing in zip(entries, timings, strict=True)
    ]
    return CellResult(cell, (*timed, *results))


def verify(peer: Peer, entry: PeerCall, case: RotationCase) -> str | None:
    """What is wrong with the rotation of a call; None if it is right, and for ``copy_``."""
    if peer.name == COPY:
        return None
    case.reset()
    return case.find_problem(entry.results(), own_angles=peer.own_angles)
