"""Whether torch does more with a call than run it: then it must see tensors, not addresses."""

import torch
from torch.autograd import forward_ad

__all__ = ["is_watched"]

# torch has no public way to ask. Where a version lacks one of these, nothing counts as plain and
# every call takes the operator: slower, but right.
try:
    from torch._C import _is_tracing, _len_torch_dispatch_stack
    from torch._C._functorch import peek_interpreter_stack

    def is_watched() -> bool:
        """Whether a mode, a transform, forward-mode differentiation or a tracer looks on."""
        return (
            torch.compiler.is_compiling()
            or _len_torch_dispatch_stack() > 0
            or peek_interpreter_stack() is not None
            or forward_ad._current_level >= 0
            or _is_tracing()
        )

except ImportError:  # pragma: no cover

    def is_watched() -> bool:
        return True
