"""What is known of sizes while torch.export traces a program."""

from collections.abc import Callable

import torch

__all__ = ["find_count", "is_exporting"]

# torch before 2.7 cannot say; there an exported program is what torch.compile would make of it.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)

_MOST = 128


def find_count(count: int) -> int | None:
    """``count`` as a plain int, or None where torch.export leaves it open.

    Found without a guard, which would tie the program to the length that it was traced with. Strict
    export shows an open size as an int, so its type says nothing; a count above 128 is taken for
    an open one.
    """
    # Here, because it loads sympy, which takes half a second.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return next((n for n in range(_MOST + 1) if statically_known_true(count == n)), None)
