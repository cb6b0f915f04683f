"""Tensors that have a shape but no memory, or not all of it, which a kernel must not be given."""

import torch
from torch import Tensor

from .tensors import ORDINARY

__all__ = ["check_storage"]


def check_storage(x: Tensor, where: str, what: str) -> None:
    """Refuse a tensor that reaches past its storage, as one that was freed or made smaller.

    Refuse torch's zero tensors too, which never had memory. Inside a transform or a tracer there
    is none to ask for, and all is well.
    """
    if torch.compiler.is_compiling() or type(x) not in ORDINARY:
        return
    try:
        # len is the quickest question after the bytes of a storage.
        held = len(x.untyped_storage())
        if x.data_ptr() and x.is_contiguous():
            first = x.storage_offset()
            if (first * x.element_size() if first else 0) + x.nbytes <= held:
                return
        if x.is_meta or torch._C._get_tracing_state() or not x.numel():
            return
        last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
        end = (x.storage_offset() + last + 1) * x.element_size()
        if x.data_ptr() and end <= held:
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
        f" and {held} bytes, where {end} are needed. Fill it again before the call, or free it"
        " later."
    )
