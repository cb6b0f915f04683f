"""MLX: ``mx.fast.rope`` on the CPU, evaluated at every call."""

from typing import Any

import torch
from torch import Tensor

from whorl.bench.rotation.case import BASE, Case

from .base import Entry, Peer

__all__ = ["MLX", "from_mlx", "to_mlx"]


class MLX(Peer):
    """It takes a base and an offset, so cos and sin are formed at every call.

    Arrays are made beforehand. The number of threads cannot be set.
    """

    name = "mlx"
    title = "MLX"
    module = "mlx.core"
    package = "mlx"
    own_angles = True
    note = "forms cos and sin at every call; its threads cannot be set"

    def entries(self, case: Case) -> list[Entry]:
        import mlx.core as mx

        shape, traditional = case.cell.shape, case.cell.layout == "interleaved"
        q, k = to_mlx(case.q), to_mlx(case.k)

        def turn(x: Any) -> Any:
            return mx.fast.rope(
                x,
                shape.head_dim,
                traditional=traditional,
                base=BASE,
                scale=1.0,
                offset=shape.first,
                stream=mx.cpu,
            )

        def fresh() -> list[Any]:
            done = [turn(q), turn(k)]
            mx.eval(done)
            return done

        if not case.training:
            return [Entry("fresh", fresh, lambda: [from_mlx(x) for x in fresh()])]
        grads = [to_mlx(case.q_grad), to_mlx(case.k_grad)]

        def train() -> list[Any]:
            outs, cotangents = mx.vjp(lambda q, k: [turn(q), turn(k)], [q, k], grads)
            done = [*outs, *cotangents]
            mx.eval(done)
            return done

        return [Entry("training", train, lambda: [from_mlx(x) for x in train()])]


def to_mlx(x: Tensor) -> Any:
    """A copy as an MLX array; numpy has no bfloat16, so its bits travel as integers."""
    import mlx.core as mx

    if x.dtype == torch.bfloat16:
        array = mx.array(x.view(torch.uint16).numpy()).view(mx.bfloat16)
    else:
        array = mx.array(x.numpy())
    mx.eval(array)
    return array


def from_mlx(array: Any) -> Tensor:
    """A copy as a torch tensor."""
    import mlx.core as mx
    import numpy as np

    if array.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(array.view(mx.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
