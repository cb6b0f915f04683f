"""Contestants of linear attention: against SDPA, at doubled lengths, and one token per call."""

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl import RoPE, linear_attention
from whorl.bench.contestants import Contestant, ContestantMakers
from whorl.lab.config import FeatureMapName

from . import oracle
from .plan import HEAD_DIM, Cell, Plan

__all__ = ["build_doubling", "build_linear", "build_recurrent"]


def build_linear(cell: Cell, plan: Plan) -> ContestantMakers:
    """Causal linear attention with RoPE, and SDPA without RoPE, which has less to compute."""
    q, k, v = oracle.make_inputs(cell.length)
    rows = oracle.choose_rows(cell.length)

    def sdpa() -> Contestant:
        def call() -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        def find_problem() -> str | None:
            return oracle.describe_difference(
                call()[:, :, rows], oracle.compute_softmax(q, k, v, rows)
            )

        return Contestant("sdpa", call, find_problem)

    return [
        ("sdpa", sdpa),
        ("elu", lambda: _build_whole("elu", "elu", q, k, v)),
        ("relu", lambda: _build_whole("relu", "relu", q, k, v)),
        ("cosine", lambda: _build_whole("cosine", "cosine", q, k, v)),
    ]


def build_doubling(cell: Cell, plan: Plan) -> ContestantMakers:
    """The same call of linear attention at each of ``cell.lengths``."""
    tensors = oracle.make_inputs(max(cell.lengths))

    def make(length: int) -> Contestant:
        q, k, v = (x[:, :, :length].contiguous() for x in tensors)
        return _build_whole(str(length), "elu", q, k, v)

    return [(str(n), lambda n=n: make(n)) for n in cell.lengths]  # type: ignore[misc]


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

    return [(str(n), lambda n=n: make(n)) for n in cell.lengths]  # type: ignore[misc]


def _build_whole(
    name: str, feature_map: FeatureMapName, q: Tensor, k: Tensor, v: Tensor
) -> Contestant:
    rope, rows = RoPE(HEAD_DIM), oracle.choose_rows(q.shape[2])

    def call() -> Tensor:
        return linear_attention(q, k, v, rope, feature_map=feature_map, causal=True)

    def find_problem() -> str | None:
        expected = oracle.compute_linear(q, k, v, rows, feature_map)
        return oracle.describe_difference(call()[:, :, rows], expected)

    return Contestant(name, call, find_problem)
