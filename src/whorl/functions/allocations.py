"""How much memory a call of somebody else's function takes, before a longer one is made."""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["measure_array_bytes", "measure_tensor_bytes"]


class _LargestTensor(TorchFunctionMode):
    """Counts the bytes of the largest tensor that torch returns while this is active."""

    def __init__(self) -> None:
        self.bytes = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return made


def measure_tensor_bytes(call: Callable[[], Any]) -> int:
    """Bytes of the largest torch tensor that a call makes."""
    largest = _LargestTensor()
    with largest:
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
