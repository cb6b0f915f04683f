"""MLX: ``mx.fast.rope`` on the CPU, evaluated at every call."""

from typing import Any

import torch
from torch import Tensor

from whorl.bench.rotation.case import BASE, RotationCase

from .base import Peer, PeerCall

__all__ = ["MLX", "convert_from_mlx", "convert_to_mlx"]


class MLX(Peer):
    """``mx.fast.rope``, which takes a base and an offset and computes cos and sin at every call.

    Arrays are converted before the timing. The number of threads cannot be set.
    """

    name = "mlx"
    title = "MLX"
    module = "mlx.core"
    package = "mlx"
    own_angles = True
    note = "forms cos and sin at every call; its threads cannot be set"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        import mlx.core as mx

        shape, traditional = case.cell.shape, case.cell.layout == "interleaved"
        q, k = convert_to_mlx(case.q), convert_to_mlx(case.k)

        def rotate(x: Any) -> Any:
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
            done = [rotate(q), rotate(k)]
            mx.eval(done)
            return done

        if not case.training:
            return [PeerCall("fresh", fresh, lambda: [convert_from_mlx(x) for x in fresh()])]
        grads = [convert_to_mlx(case.q_grad), convert_to_mlx(case.k_grad)]

        def train() -> list[Any]:
            outs, cotangents = mx.vjp(lambda q, k: [rotate(q), rotate(k)], [q, k], grads)
            done = [*outs, *cotangents]
            mx.eval(done)
            return done

        return [PeerCall("training", train, lambda: [convert_from_mlx(x) for x in train()])]


def convert_to_mlx(x: Tensor) -> Any:
    """A tensor copied to an MLX array; bfloat16 as integers, because numpy does not have it."""
    import mlx.core as mx

    if x.dtype == torch.bfloat16:
        array = mx.array(x.view(torch.uint16).numpy()).view(mx.bfloat16)
    else:
        array = mx.array(x.numpy())
    mx.eval(array)
    return array


def convert_from_mlx(array: Any) -> Tensor:
    """An MLX array copied to a tensor."""
    import mlx.core as mx
    import numpy as np

    if array.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(array.view(mx.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
