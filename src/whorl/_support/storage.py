"""Tensors that have a shape but no memory, which a kernel must not be given."""

import torch
from torch import Tensor

__all__ = ["check_storage"]

_ORDINARY = (Tensor, torch.nn.Parameter)


def check_storage(x: Tensor, where: str, what: str) -> None:
    """Refuse a tensor whose storage was freed, and torch's zero tensors, which never had one.

    Inside a transform or a tracer there is no memory to ask for, and all is well.
    """
    if torch.compiler.is_compiling() or type(x) not in _ORDINARY or x.is_meta:
        return
    try:
        if x.data_ptr() or not x.numel():
            return
    except RuntimeError:  # wrapped by a transform of torch.func
        return
    if x._is_zerotensor():
        raise ValueError(
            f"{where}: {what} must have memory, but torch._efficientzerotensor makes a tensor"
            f" without any; got one of shape {list(x.shape)}. Use torch.zeros."
        )
    raise ValueError(
        f"{where}: {what} must have memory, but its storage was freed; got shape {list(x.shape)}"
        " over 0 bytes. Fill it again before the call, or free it later."
    )
