"""Contestants of linear attention: against SDPA, at doubled lengths, and one token per call."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl import RoPE, linear_attention
from whorl.attention.linear.features import FeatureMapName
from whorl.bench.contestants import Contestant, ContestantMakers

from . import oracle
from .plan import HEAD_DIM, Cell, Plan

__all__ = ["build_doubling", "build_linear", "build_recurrent"]


def build_linear(cell: Cell, plan: Plan) -> ContestantMakers:
    """Causal linear attention with RoPE, and SDPA without RoPE, which has less to compute."""
    q, k, v = oracle.make_inputs(cell.length)
    rows = oracle.choose_rows(cell.length)

    def sdpa() -> Contestant:
        return oracle.make_contestant(
            "sdpa",
            lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            rows,
            lambda: oracle.compute_softmax(q, k, v, rows),
        )

    maps: tuple[FeatureMapName, ...] = ("elu", "relu", "cosine")
    return [("sdpa", sdpa), *((n, partial(_build_whole, n, n, q, k, v)) for n in maps)]


def build_doubling(cell: Cell, plan: Plan) -> ContestantMakers:
    """The same call of linear attention at each of ``cell.lengths``."""
    tensors = oracle.make_inputs(max(cell.lengths))

    def make(length: int) -> Contestant:
        q, k, v = (x[:, :, :length].contiguous() for x in tensors)
        return _build_whole(str(length), "elu", q, k, v)

    return [(str(n), partial(make, n)) for n in cell.lengths]


def build_recurrent(cell: Cell, plan: Plan) -> ContestantMakers:
    """Decoding with a state, one token per call, after each of ``cell.lengths``."""
    rope = RoPE(HEAD_DIM)
    q, k, v = oracle.make_inputs(max(cell.lengths) + 1)

    def make(length: int) -> Contestant:
        past = [x[:, :, :length] for x in (q, k, v)]
        _, state = linear_attention(past[0], past[1], past[2], rope, causal=True, return_state=True)

        def step(n: int) -> Tensor:
            nonlocal state
            one = slice(n, n + 1)
            out, state = linear_attention(
                q[:, :, one], k[:, :, one], v[:, :, one],
                rope, causal=True, state=state, return_state=True,
            )  # fmt: skip
            return out

        def call() -> None:
            for n in range(plan.run):
                step(n % q.shape[2])

        def find_problem() -> str | None:
            upto = length + 1
            keys, values = k[:, :, :upto], v[:, :, :upto]
            expected = oracle.compute_linear(q, keys, values, torch.tensor([length]), "elu")
            return oracle.describe_difference(step(length), expected)

        return Contestant(str(length), call, find_problem, plan.run)

    return [(str(n), partial(make, n)) for n in cell.lengths]


def _build_whole(
    name: str, feature_map: FeatureMapName, q: Tensor, k: Tensor, v: Tensor
) -> Contestant:
    rope, rows = RoPE(HEAD_DIM), oracle.choose_rows(q.shape[2])
    return oracle.make_contestant(
        name,
        lambda: linear_attention(q, k, v, rope, feature_map=feature_map, causal=True),
        rows,
        lambda: oracle.compute_linear(q, k, v, rows, feature_map),
    )
