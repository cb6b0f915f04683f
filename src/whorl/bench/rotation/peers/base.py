"""Base class of the contestants: their calls for a cell, and what is reported about them."""

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
# "training" is fresh with the backward pass. "bound" is "out" on tensors that it knows before the
# timing and that never move; every other mode must accept new ones at each call. "past" is
# "inplace" with a table that ends before the last position. The others are "inplace" and "past" of
# whorl's other rotations.
CallMode = Literal[
    "inplace", "out", "fresh", "training", "bound", "past",
    "xpos", "xpos-past", "mrope", "mrope-past", "axial", "axial-past",
]  # fmt: skip

RotateFunction = Callable[[Tensor, Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class PeerCall:
    """One way in which a peer does the work of a cell.

    call: does the work once; this is timed.
    results: does the work once and returns q, k (and their gradients) as [B, H, T, D] tensors.
    """

    mode: CallMode
    call: Callable[[], object]
    results: Callable[[], Sequence[Tensor]]


class Peer(ABC):
    """An implementation of the rotation.

    module: what must be importable. package: the distribution whose version is reported.
    own_angles: whether it computes angles in float32 itself, instead of taking tables.
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

    def explain_missing(self) -> str | None:
        """Why the peer cannot be used here; None if it can."""
        if self.module is None:
            return None
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a broken installation of a peer must not end the benchmark
            return f"{type(error).__name__}: {error}"
        return None

    def read_version(self) -> str | None:
        """Version of the peer's package, or None."""
        if self.package is None:
            return None
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def supports(self, cell: Cell) -> bool:
        """Whether the peer can do the work of this cell."""
        fits = cell.layout in self.layouts and cell.dtype in self.dtypes
        return fits and (self.trains or cell.shape.kind != "training")

    @abstractmethod
    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        """The peer's calls for a cell; everything that is not timed is done here."""


def build_torch_call(
    case: RotationCase, rotate: RotateFunction, *, heads_last: bool = False
) -> PeerCall:
    """The call of a torch function (q, k) -> (q', k'), in training with the backward pass.

    heads_last: the function gets contiguous tensors [B, T, H, D].
    """

    def own(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous() if heads_last else x

    def common(xs: Sequence[Tensor]) -> list[Tensor]:
        return [x.detach().transpose(1, 2) if heads_last else x.detach() for x in xs]

    q, k = own(case.q), own(case.k)
    if not case.training:
        return PeerCall("fresh", lambda: rotate(q, k), lambda: common(rotate(q, k)))
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    grads = own(case.q_grad), own(case.k_grad)

    def train() -> list[Tensor]:
        outs = rotate(q, k)
        return [*outs, *torch.autograd.grad(outs, (q, k), grads)]

    return PeerCall("training", train, lambda: common(train()))
