"""How much memory a call of somebody else's function takes, before a longer one is made."""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["measure_array_bytes", "measure_tensor_bytes"]


class _LargestTensor(TorchDispatchMode):
    """Counts the bytes of the largest tensor that torch makes while this is active."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return made


def measure_tensor_bytes(call: Callable[[], Any]) -> int:
    """Bytes of the largest torch tensor that a call makes."""
    with _LargestTensor() as largest:
        call()
    return largest.bytes


def measure_array_bytes(call: Callable[[], Any]) -> int:
    """Bytes that a call takes at its peak, as Python and NumPy allocate them."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not running:
            tracemalloc.stop()
    return peak - before
