"""The processes of one fine-tuning, as ``torchrun`` and ``accelerate launch`` start them.

Both say by the variables RANK and WORLD_SIZE which process this is. Each process computes the
gradients of its share of every batch, and all of them take the same step with the mean. Only the
first process writes files and prints.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ProcessGroup", "is_main_process", "open_processes"]


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those of one training: its rank, and how many they are."""

    rank: int = 0
    world: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def average_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their means over all processes."""
        for tensor in tensors if self.world > 1 else ():
            dist.all_reduce(tensor)
            tensor /= self.world

    def agree(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.world == 1:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def wait(self) -> None:
        """Return when all processes are here."""
        if self.world > 1:
            dist.barrier()


def is_main_process() -> bool:
    """Whether this process writes and prints; true unless a launcher started several."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def open_processes() -> Iterator[ProcessGroup]:
    """The processes that a launcher started, connected by gloo in a with block; else this one."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ProcessGroup()
        return
    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group("gloo")
    try:
        yield ProcessGroup(dist.get_rank(), dist.get_world_size())
    finally:
        if ours:
            dist.destroy_process_group()
