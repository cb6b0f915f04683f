"""A model that several processes train together: gradients are those of all rows of a batch.

Without ``shard`` each process has all weights, and accelerate averages the gradients (DDP). With
it, each has a part of every weight and of what the optimizer remembers of it, and torch's
``fully_shard`` (FSDP2) puts one layer at a time together while it computes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from whorl._support.extras import import_extra

from .group import ProcessGroup
from .shards import join_parts

__all__ = ["CollectedState", "ParallelModel"]


class StatefulOptimizer(Protocol):
    """What an optimizer remembers of each weight."""

    def get_state(self, weight: Tensor) -> Any:
        """What it remembers of a weight, by name."""


class NamedModel(Protocol):
    """A model, or the part of one that is trained."""

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Names and weights."""


class ParallelModel:
    """A model, its loss, and how its gradients are computed by several processes.

    Args:
        compute_loss: the mean loss of rows of a batch.
        shard: share out the weights. Then ``model`` has its parts of them from here on.
        passes: forward passes of each process in a step, which share its rows.
    """

    def __init__(
        self,
        processes: ProcessGroup,
        model: nn.Module,
        compute_loss: Callable[..., Tensor],
        *,
        shard: bool = False,
        passes: int = 1,
    ) -> None:
        model.to(processes.device)
        self.processes, self.model, self.sharded, self.passes = processes, model, shard, passes
        self._accelerator: Any = None
        self._began = False
        self._loss: nn.Module = _Loss(model, compute_loss)
        if shard:
            _split_model(model, processes)
        elif processes.world > 1:
            self._accelerator = _open_accelerator(processes)
            self._loss = self._accelerator.prepare_model(self._loss)

    def add_gradients(
        self, weight: float, *inputs: Tensor | None, last: bool = True, bfloat16: bool = False
    ) -> Tensor:
        """Add the gradients of ``weight`` x the loss of these rows; returns that product.

        The gradients of all processes are added up in the last pass of a step.
        """
        device, world = self.processes.device, self.processes.world
        moved = [None if one is None else one.to(device) for one in inputs]
        with self._delay_sum(last):
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                share = self._loss(*moved) * weight
            # DDP and FSDP2 divide the sum of the gradients by the number of processes.
            (share if world == 1 else share * world).backward()
        self._began = True
        return share.detach()  # type: ignore[no-any-return]

    @contextmanager
    def put_together(self) -> Iterator[None]:
        """Have the weights outside the layers whole in a with block, which all must enter."""
        if not self.sharded:
            yield
            return
        self.model.unshard()  # type: ignore[operator]
        try:
            yield
        finally:
            self.model.reshard()  # type: ignore[operator]

    def _delay_sum(self, last: bool) -> AbstractContextManager[Any]:
        if self.sharded:
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
        elif self._accelerator is not None and not last and self._began:
            # The first pass of all is never delayed: in it DDP finds out what parameters are used.
            delayed: AbstractContextManager[Any] = self._accelerator.no_sync(self._loss)
            return delayed
        return nullcontext()


class CollectedState:
    """Whole weights of a model and of its optimizer's memory, on the CPU of the first process.

    All processes must make it. In the others it is empty.
    """

    def __init__(
        self,
        processes: ProcessGroup,
        model: NamedModel,
        optimizer: StatefulOptimizer | None = None,
    ) -> None:
        if callable(reshard := getattr(model, "reshard", None)):
            reshard()  # a forward pass without gradients leaves weights outside the layers whole
        self._weights: dict[str, Tensor] = {}
        self._states: dict[int, dict[str, Tensor]] = {}
        for name, weight in model.named_parameters():
            whole = join_parts(weight.detach()).cpu()
            state = {} if optimizer is None else optimizer.get_state(weight)
            found = {key: join_parts(value).cpu() for key, value in state.items()}
            if processes.is_main:
                self._weights[name] = whole
                self._states[id(whole)] = found

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Names and whole weights."""
        return self._weights.items()

    def get_state(self, weight: Tensor) -> dict[str, Tensor]:
        """What the optimizer remembers of one of these weights."""
        return self._states[id(weight)]

    def load_state(self, weight: Tensor, state: Any) -> None:
        raise AssertionError("a collected state is not trained")

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Copy the weights into a model of the same shape, in the first process."""
        for name, weight in model.named_parameters():
            weight.copy_(self._weights[name])


class _Loss(nn.Module):
    """The loss as a module, whose call is what DDP watches."""

    def __init__(self, model: nn.Module, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.compute = model, compute

    def forward(self, *inputs: Tensor | None) -> Tensor:
        return self.compute(*inputs)


def _open_accelerator(processes: ProcessGroup) -> Any:
    """The Accelerator of these processes, which are connected already."""
    by = "training on several processes"
    accelerate = import_extra("accelerate", by=by, extra="scale")
    # Every step uses the same parameters, which need not be all that there are.
    options = accelerate.DistributedDataParallelKwargs(static_graph=True)
    return accelerate.Accelerator(
        cpu=processes.device.type == "cpu",
        mixed_precision="no",  # autocast is that of the training
        kwargs_handlers=[options],
    )


def _split_model(model: nn.Module, processes: ProcessGroup) -> None:
    """Split the weights of ``model``, layer by layer, then those outside the layers."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(processes.device.type, (processes.world,))
    for layer in _find_layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _find_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model: the modules of its list with the most parameters."""
    lists: list[nn.Module] = [one for one in model.modules() if isinstance(one, nn.ModuleList)]
    return list(max(lists, key=_count_parameters).children()) if lists else []


def _count_parameters(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
