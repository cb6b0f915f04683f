"""Attention with keys and values that go from process to process, in both passes.

Each process sends what it holds to the next one and receives from the one before, while it computes
with what it holds. The backward pass sends keys and values around again, and their gradients with
them, so that nothing but a process's own tokens is kept in between. With the log sums L of a part
and of the whole, out = sum_p exp(L_p - L) out_p has the gradients

    d out_p = exp(L_p - L) g        d L_p = exp(L_p - L) (out_p - out) . g        g: of out

Liu et al. 2023, Ring Attention, https://arxiv.org/abs/2310.01889.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from whorl.attention import PartialAttention, merge_attention, partial_attention
from whorl.encodings import Encoding

__all__ = ["RingCall"]


@dataclass(frozen=True)
class RingCall:
    """One call, with all but its tensors of tokens.

    positions, masks: those of the tokens of every process, in the order of their ranks; a mask may
    be None. options: the other arguments of ``partial_attention``.
    """

    group: dist.ProcessGroup
    rank: int
    encoding: Encoding
    positions: Sequence[Tensor]
    masks: Sequence[Tensor | None]
    options: Mapping[str, Any]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of this process's queries over the keys of all, [B, H, T, Dv]."""
        parameters = [*self.encoding.parameters(), *self.encoding.list_outer_parameters()]
        out: Tensor = _RingFunction.apply(self, q, k, v, *parameters)  # type: ignore[no-untyped-call]
        return out

    def attend_part(self, q: Tensor, k: Tensor, v: Tensor, step: int) -> PartialAttention:
        """Attention over the keys that arrive at a step: those of ``step`` processes before."""
        source = (self.rank - step) % len(self.positions)
        return partial_attention(
            q,
            k,
            v,
            self.encoding,
            positions=self.positions[self.rank],
            key_positions=self.positions[source],
            mask=self.masks[source],
            **self.options,
        )

    def start_passing(self, tensors: Sequence[Tensor]) -> "_Passing":
        """Begin to send tensors to the next process, and to receive those of the one before."""
        world = len(self.positions)
        target, source = (
            dist.get_global_rank(self.group, (self.rank + n) % world) for n in (1, -1)
        )
        sent = [x.contiguous() for x in tensors]
        received = [torch.empty_like(x) for x in sent]
        operations = [dist.P2POp(dist.isend, x, target, self.group) for x in sent]
        operations += [dist.P2POp(dist.irecv, x, source, self.group) for x in received]
        return _Passing(sent, received, dist.batch_isend_irecv(operations))


@dataclass(frozen=True)
class _Passing:
    """Tensors on their way; ``sent`` must stay in memory until they are there."""

    sent: list[Tensor]
    received: list[Tensor]
    requests: list[Any]

    def wait(self) -> list[Tensor]:
        for request in self.requests:
            request.wait()
        return self.received


class _RingFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: RingCall, q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor
    ) -> Tensor:
        held, total = [k, v], None
        for step in range(len(call.positions)):
            is_last = step + 1 == len(call.positions)
            passing = None if is_last else call.start_passing(held)
            part = call.attend_part(q, held[0], held[1], step)
            total = part if total is None else merge_attention([total, part])
            held = held if passing is None else passing.wait()
        assert total is not None
        ctx.call = call
        ctx.save_for_backward(q, k, v, *total, *parameters)
        return total.out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        call: RingCall = ctx.call
        q, k, v, out, log_sum, *parameters = ctx.saved_tensors
        trained = [p for p in parameters if p.requires_grad]
        whole, gradient = PartialAttention(out, log_sum), gradient.to(out.dtype)
        held, sums = [k, v], [torch.zeros_like(x, dtype=out.dtype) for x in (k, v)]
        own = [torch.zeros_like(x, dtype=out.dtype) for x in (q, *trained)]
        for step in range(len(call.positions)):
            is_last = step + 1 == len(call.positions)
            passing = None if is_last else call.start_passing(held)
            found = _differentiate_part(call, (q, *held), trained, step, whole, gradient)
            for total, more in zip((own[0], *sums, *own[1:]), found, strict=True):
                total += more
            # After as many steps as there are processes, the sums are where their keys came from.
            sums = call.start_passing(sums).wait()
            held = held if passing is None else passing.wait()
        by_parameter = iter(own[1:])
        return (
            None,
            *(x.to(like.dtype) for x, like in zip((own[0], *sums), (q, k, v), strict=True)),
            *(next(by_parameter).to(p.dtype) if p.requires_grad else None for p in parameters),
        )


def _differentiate_part(
    call: RingCall,
    tensors: Sequence[Tensor],
    trained: Sequence[Tensor],
    step: int,
    whole: PartialAttention,
    gradient: Tensor,
) -> list[Tensor]:
    """Gradients of q, k, v and the trained parameters from the keys of one step."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in tensors]
        q, k, v = leaves
        part = call.attend_part(q, k, v, step)
    # A query that sees no key at all has -inf on both sides.
    share = torch.where(whole.log_sum.isfinite(), (part.log_sum - whole.log_sum).exp(), 0.0)
    by_out = share.detach().unsqueeze(-1) * gradient
    by_log_sum = (by_out * (part.out.detach() - whole.out)).sum(-1)
    inputs = [*leaves, *trained]
    found = torch.autograd.grad(part, inputs, (by_out, by_log_sum), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
