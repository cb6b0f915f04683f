"""Tensors that are split over the processes (DTensor), and plain ones, handled alike."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["compute_norm", "get_local_part", "is_split", "join_parts", "split_like"]


def is_split(tensor: Tensor) -> bool:
    """Whether each process holds a part of the tensor only."""
    return hasattr(tensor, "full_tensor")


def get_local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds; all of it if it is not split."""
    if not is_split(tensor):
        return tensor
    part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def join_parts(tensor: Tensor) -> Tensor:
    """The whole tensor; all processes must call this in the same order."""
    if not is_split(tensor):
        return tensor
    whole: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return whole


def split_like(whole: Tensor, other: Tensor) -> Tensor:
    """A whole tensor, the same in all processes, split as ``other`` is."""
    if not is_split(other):
        return whole
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = other.device_mesh, other.placements  # type: ignore[attr-defined]
    # No process sends: each takes its part of the tensor that it has already.
    return distribute_tensor(whole.to(mesh.device_type), mesh, placements, src_data_rank=None)


def compute_norm(tensors: Sequence[Tensor]) -> float:
    """The norm of all numbers of some tensors; those that are split count as a whole."""
    if not tensors:
        return 0.0
    norm = torch.stack(torch._foreach_norm([get_local_part(one) for one in tensors])).norm()
    if not is_split(tensors[0]):
        return float(norm)
    total = norm.square()
    dist.all_reduce(total)
    return float(total.sqrt())
