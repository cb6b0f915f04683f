"""Processes that train one model together, as ``torchrun`` and ``accelerate launch`` start them.

    devices    which device a process computes on, and which settings of accelerate are refused
    group      the processes, connected: sums, agreement, what the first one does alone
    folders    whether all of them see one folder
    replicas   a model whose gradients are averaged: whole in each process, or in shards (FSDP2)
    shards     tensors that are split over the processes: norms, whole tensors, splitting

A step is the same whatever the number of processes: they share its sequences. Only the first one
writes files and prints.
"""

from .devices import check_precision, choose_sharding
from .folders import check_shared_folder
from .group import LostProcess, ProcessGroup, is_lost, open_processes
from .replicas import CollectedState, ParallelModel
from .shards import (
    compute_norm,
    get_local_part,
    join_parts,
    split_like,
)

__all__ = [
    "CollectedState",
    "LostProcess",
    "ParallelModel",
    "ProcessGroup",
    "check_precision",
    "check_shared_folder",
    "choose_sharding",
    "compute_norm",
    "get_local_part",
    "is_lost",
    "join_parts",
    "open_processes",
    "split_like",
]
