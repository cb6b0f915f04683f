"""What torch does with a tensor or a call besides computing, and the range of some integers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "ORDINARY",
    "POSITION_LIMIT",
    "find_ends",
    "has_values",
    "is_intercepted",
    "use_real_tensors",
]

#: The types of tensors that compute and do nothing else; subclasses may do more.
ORDINARY = (Tensor, torch.nn.Parameter)
#: Positions below this, and above its negative, stay within int64 whatever the length of a tensor.
POSITION_LIMIT = 1 << 62

_FEW = 64  # numbers that Python compares sooner than torch does


def has_values(x: Tensor) -> bool:
    """True if the numbers of ``x`` can be read and what they say holds for later calls too.

    False for meta and fake tensors, under vmap over ``x``, and while a compiler, an exporter or a
    tracer writes down what is done, for other numbers.
    """
    if torch.compiler.is_compiling() or x.is_meta:
        return False
    return not (_is_recorded() or _is_symbolic(x))


use_real_tensors: Callable[[], AbstractContextManager[object]]
is_intercepted: Callable[[], bool]
_is_recorded: Callable[[], bool]
_is_symbolic: Callable[[Tensor], bool]
# torch has no public way to ask. In a version that lacks one of these, no values are read and every
# call counts as intercepted: slower, but right.
try:
    from torch._C import (
        _get_dispatch_mode,
        _is_tracing,
        _len_torch_dispatch_stack,
        _TorchDispatchModeKey,
    )
    from torch._C._functorch import (
        get_unwrapped,
        is_batchedtensor,
        is_functorch_wrapped_tensor,
        is_legacy_batchedtensor,
        peek_interpreter_stack,
    )
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    # Inside FakeTensorMode, for constants that are computed with tensors and read as numbers.
    use_real_tensors = unset_fake_temporarily

    _MODES = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY)

    def is_intercepted() -> bool:
        """True if torch does more with a call than run it: then it must see tensors, not addresses.

        So do compilers and tracers, modes, transforms such as vmap, and forward-mode
        differentiation.
        """
        return (
            torch.compiler.is_compiling()
            or _len_torch_dispatch_stack() > 0
            or peek_interpreter_stack() is not None
            or forward_ad._current_level >= 0
            or _is_tracing()
        )

    def _is_recorded() -> bool:
        return _is_tracing() or any(_get_dispatch_mode(key) is not None for key in _MODES)

    def _is_symbolic(x: Tensor) -> bool:
        while is_functorch_wrapped_tensor(x):
            if is_batchedtensor(x):
                return True
            x = get_unwrapped(x)
        return isinstance(x, FakeTensor) or is_legacy_batchedtensor(x)

except ImportError:  # pragma: no cover
    use_real_tensors = nullcontext
    is_intercepted = lambda: True  # noqa: E731
    _is_recorded = lambda: True  # noqa: E731
    _is_symbolic = lambda x: True  # noqa: E731


def find_ends(x: Tensor) -> tuple[int, int]:
    """The smallest and the largest of some whole numbers, of which there is at least one."""
    if x.numel() > _FEW:
        low, high = x.aminmax()
        return int(low), int(high)
    listed = x.flatten().tolist()
    return min(listed), max(listed)
