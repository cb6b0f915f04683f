"""What a contestant is: the calls it offers for a cell, and what it says about itself."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whorl.bench.rotation.case import RotationCase
from whorl.bench.rotation.plan import Cell

__all__ = ["CallMode", "Peer", "PeerCall", "build_torch_call"]

# "inplace" overwrites its inputs, "out" writes to given tensors, "fresh" allocates its results,
# "training" is fresh with the backward pass. "bound" is "out" on tensors that it was shown before
# the clock started and that never move; every other mode must take new ones at each call. "past" is
# "inplace" with a table that ends before the last position.
CallMode = Literal["inplace", "out", "fresh", "training", "bound", "past"]

RotateFunction = Callable[[Tensor, Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class PeerCall:
    """One way to do a cell's work.

    call: does it once; this is what is timed.
    results: does it once and returns q, k (and their gradients) as [B, H, T, D] torch tensors.
    """

    mode: CallMode
    call: Callable[[], object]
    results: Callable[[], Sequence[Tensor]]


class Peer(ABC):
    """An implementation to compare with.

    module: what must import. package: the distribution whose version is reported.
    own_angles: whether it forms angles in float32 by itself instead of taking tables.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    module: ClassVar[str | None] = None
    package: ClassVar[str | None] = None
    layouts: ClassVar[tuple[str, ...]] = ("half", "interleaved")
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")
    trains: ClassVar[bool] = True
    own_angles: ClassVar[bool] = False
    note: ClassVar[str] = ""

    def missing(self) -> str | None:
        """None if it can be used here, else why not."""
        if self.module is None:
            return None
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a peer's broken installation must not end the run
            return f"{type(error).__name__}: {error}"
        return None

    def version(self) -> str | None:
        """Version of the package, where there is one."""
        if self.package is None:
            return None
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def supports(self, cell: Cell) -> bool:
        """Whether it can do this cell at all."""
        fits = cell.layout in self.layouts and cell.dtype in self.dtypes
        return fits and (self.trains or cell.shape.kind != "training")

    @abstractmethod
    def entries(self, case: RotationCase) -> list[PeerCall]:
        """Set up everything that is not timed, and return the ways to do the work."""


def build_torch_call(
    case: RotationCase, turn: RotateFunction, *, heads_last: bool = False
) -> PeerCall:
    """The entry of a torch function (q, k) -> (q', k'): with the backward pass in training.

    heads_last: it takes [B, T, H, D], and gets contiguous tensors of that shape.
    """

    def own(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous() if heads_last else x

    def common(xs: Sequence[Tensor]) -> list[Tensor]:
        return [x.detach().transpose(1, 2) if heads_last else x.detach() for x in xs]

    q, k = own(case.q), own(case.k)
    if not case.training:
        return PeerCall("fresh", lambda: turn(q, k), lambda: common(turn(q, k)))
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    grads = own(case.q_grad), own(case.k_grad)

    def train() -> list[Tensor]:
        outs = turn(q, k)
        return [*outs, *torch.autograd.grad(outs, (q, k), grads)]

    return PeerCall("training", train, lambda: common(train()))
