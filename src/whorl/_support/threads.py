"""The number of threads that torch uses."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["use_threads"]


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` threads in a with block; None leaves the number as it is."""
    if count is not None and count < 1:
        raise ValueError(f"threads must be at least 1; got {count}.")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
