"""What a launcher says of this process in its environment: ``torchrun`` and ``accelerate launch``.

Both set RANK, WORLD_SIZE and LOCAL_RANK where they start several processes. Light: without torch.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .words import quote

__all__ = ["Launch", "build_environment", "is_main_process", "read_launch"]

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ACCELERATE_MIXED_PRECISION")


@dataclass(frozen=True)
class Launch:
    """This process among those that a launcher started: its number, and how many they are.

    local_rank: its number on its machine.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0


def read_launch(environment: Mapping[str, str] | None = None) -> Launch | None:
    """What the launcher says; None if this process was started without one.

    >>> read_launch({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
    Launch(rank=1, world=2, local_rank=1)
    """
    found = os.environ if environment is None else environment
    if "RANK" not in found or "WORLD_SIZE" not in found:
        if "ACCELERATE_MIXED_PRECISION" not in found:
            return None
        _refuse_one_of_several(found)
        return Launch()
    rank, world = _read_count(found, "RANK"), _read_count(found, "WORLD_SIZE")
    if rank >= world:
        raise ValueError(
            f"RANK must be less than WORLD_SIZE; got {rank} and {world}. Let torchrun or accelerate"
            " launch set them."
        )
    return Launch(rank, world, _read_count(found, "LOCAL_RANK") if "LOCAL_RANK" in found else rank)


def is_main_process() -> bool:
    """Whether this process writes and prints; true unless a launcher started several."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def build_environment(**more: str) -> dict[str, str]:
    """The environment for a process of our own, which is none of those of the launcher."""
    return {**{key: x for key, x in os.environ.items() if key not in _VARIABLES}, **more}


def _refuse_one_of_several(found: Mapping[str, str]) -> None:
    """Refuse to be the one process that ``accelerate launch --cpu --num_processes 2`` starts.

    It names an address for the processes to meet at, and then starts a single one.
    """
    if "MASTER_ADDR" in found and "MASTER_PORT" in found:
        raise ValueError(
            "accelerate launch must start every process that it is asked for; with --cpu it starts"
            " one, whatever --num_processes says. Use torchrun --nproc-per-node N, or accelerate"
            " launch --multi_gpu --num_processes N, which works on CPUs too; if one is meant, unset"
            " MASTER_ADDR."
        )


def _read_count(found: Mapping[str, str], name: str) -> int:
    if not found[name].isdecimal():
        raise ValueError(
            f"the variable {name} must be a number, as torchrun and accelerate launch set it; got"
            f" {quote(found[name])}."
        )
    return int(found[name])
