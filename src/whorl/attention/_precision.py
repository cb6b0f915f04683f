"""What autocast does to attention: inputs are cast, all that is computed from them is not."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

__all__ = ["cast_to_autocast", "disable_autocast"]


def cast_to_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype of autocast, if it is enabled and they are not float64."""
    device = tensors[0].device.type
    if not _is_autocast_enabled(device) or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(device)) for x in tensors)


def disable_autocast(x: Tensor) -> AbstractContextManager[None]:
    """A context without autocast, which would round scores, biases and sums to half precision."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if _is_autocast_enabled(device) else nullcontext()


def _is_autocast_enabled(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
