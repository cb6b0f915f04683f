"""Tensors that a kernel must not be given: without memory, or with a part of it elsewhere."""

import sys
from collections.abc import Iterable

import torch
from torch import Tensor

from .documentation import build_page_address
from .tensors import ORDINARY

__all__ = ["check_storage", "copy_values", "is_sharded", "refuse_sharded"]


def refuse_sharded(tensors: Iterable[Tensor], where: str, what: str) -> None:
    """Refuse a DTensor, of which other processes may hold a part."""
    for x in tensors:
        if is_sharded(x):
            raise TypeError(
                f"{where}: {what} must be a plain tensor, because each process computes with its"
                f" own part; got a DTensor {list(x.shape)}. Call with x.to_local() and"
                " encoding.shard_heads(rank, world), or use whorl.parallel:"
                f" {build_page_address('docs/parallel.md')}."
            )


def is_sharded(x: Tensor) -> bool:
    """Whether ``x`` is a DTensor, which a process that never loaded them does not have."""
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(x, loaded.DTensor)


@torch.no_grad()
def copy_values(parameter: Tensor, values: Tensor) -> None:
    """Give a parameter values of its shape; of a DTensor each process takes its own part."""
    if is_sharded(parameter):
        # Random ones are those of the first process.
        distribute = sys.modules["torch.distributed.tensor"].distribute_tensor
        mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
        values = distribute(values.to(parameter.device, parameter.dtype), mesh, placements)
    parameter.copy_(values)


def check_storage(x: Tensor, where: str, what: str) -> None:
    """Refuse a tensor that reaches past its storage, as one that was freed or made smaller.

    Refuse torch's zero tensors too, which never had memory. Inside a transform or a tracer there
    is none to ask for, and all is well.
    """
    if torch.compiler.is_compiling() or type(x) not in ORDINARY:
        refuse_sharded((x,), where, what)
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
