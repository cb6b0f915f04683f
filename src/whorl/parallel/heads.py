"""Tensor parallel: each process has some of the heads of an attention layer.

The parameters of the layer become DTensors under the names that they had: projections of queries,
keys and values split by rows, that of the output by columns, and those of an encoding along the
axis of its heads (``Encoding.head_axes``). A call computes with the local part of each, because C
kernels read the memory of one process; torch's DTensor adds up the outputs, and the gradients.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor import distribute_tensor as distribute
from torch.distributed.tensor.parallel import ParallelStyle
from torch.func import functional_call

from whorl._support.words import quote
from whorl.attention import KVCache, MultiheadAttention
from whorl.encodings import Encoding, from_dict

__all__ = ["HeadParallel", "ShardedHeads"]

#: The axis of the heads, or of several channels of each, in the parameters of a layer.
_AXES = {
    "q_proj.weight": 0,
    "q_proj.bias": 0,
    "k_proj.weight": 0,
    "k_proj.bias": 0,
    "v_proj.weight": 0,
    "v_proj.bias": 0,
    "out_proj.weight": 1,
}


class ShardedHeads(MultiheadAttention):
    """A ``MultiheadAttention`` of which each process has some of the heads.

    ``HeadParallel`` makes it of a layer that exists. Inputs and outputs are the whole ones, the
    same in every process of the mesh. ``local_layer`` is the layer of this process's heads, without
    numbers of its own: build a cache with ``KVCache(layer.local_layer.encoding)``.
    """

    _mesh: DeviceMesh
    _local: tuple[MultiheadAttention]  # in a tuple, so that it does not become a submodule

    @property
    def local_layer(self) -> MultiheadAttention:
        return self._local[0]

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **options: Any
    ) -> Tensor:
        """As ``MultiheadAttention.forward``, over the heads of all processes."""
        mesh, rank = self._mesh, self._mesh.get_local_rank()
        given = (query, key, value)
        inputs = [None if x is None else _copy_to_all(x, mesh) for x in given]
        local = {name: _take_local(p) for name, p in self.named_parameters()}
        if "out_proj.bias" in local and rank:  # it is added once
            local["out_proj.bias"] = local["out_proj.bias"] * 0
        for name, axis in (("mask", 1), ("sink_logits", 0)):
            options[name] = self._take_heads(options.get(name), axis, rank)
        if isinstance(options.get("cache"), KVCache):
            self._check_cache(options["cache"])
        self.local_layer.train(self.training)
        out = functional_call(self.local_layer, local, tuple(inputs), options)
        return _add_all(out, mesh)

    def _take_heads(self, x: Any, axis: int, rank: int) -> Any:
        """This process's share of a tensor that has an entry for each head."""
        if not isinstance(x, Tensor) or x.dim() <= 2 * axis or x.shape[axis] != self.num_heads:
            return x
        whole = _copy_to_all(x, self._mesh) if x.requires_grad else x
        return whole.chunk(self._mesh.size(), axis)[rank]

    def _check_cache(self, cache: KVCache) -> None:
        if cache.encoding is not self.local_layer.encoding and cache.encoding is not None:
            raise ValueError(
                "ShardedHeads: cache must be built with the encoding of this process's heads; got"
                f" one with {quote(cache.encoding)}. Build it with"
                " KVCache(layer.local_layer.encoding)."
            )


class HeadParallel(ParallelStyle):
    """A parallel style for ``parallelize_module``: splits the heads of a ``MultiheadAttention``.

    With any encoding; layers may share one. The numbers of query heads and of key heads must be
    divisible by the size of the mesh. Dropout draws other numbers on each process only if their
    generators differ: seed them apart.

    >>> from torch.distributed.tensor.parallel import parallelize_module
    >>> # model = parallelize_module(model, mesh, {"blocks.*.attention": HeadParallel()})
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _check_layer(module, device_mesh)
        assert isinstance(module, MultiheadAttention)
        rank, world = device_mesh.get_local_rank(), device_mesh.size()
        local = _build_local_layer(module, rank, world)
        axes = dict(_AXES)
        if module.encoding is not None:
            own = module.encoding.head_axes or {}
            axes |= {f"encoding.{name}": axis for name, axis in own.items()}
        _split_parameters(module, device_mesh, axes)
        module.__class__ = ShardedHeads
        assert isinstance(module, ShardedHeads)
        module._mesh, module._local = device_mesh, (local,)
        return module


def _check_layer(module: nn.Module, mesh: DeviceMesh) -> None:
    """Refuse what is no layer, or whose heads do not divide."""
    where = "HeadParallel"
    if not isinstance(module, MultiheadAttention) or isinstance(module, ShardedHeads):
        raise TypeError(
            f"{where}: the module must be a whorl.MultiheadAttention that is not split yet; got"
            f" {type(module).__name__}. For a layer of your own, split its projections with torch's"
            " ColwiseParallel and RowwiseParallel and call whorl.attention with"
            " encoding.shard_heads(rank, world)."
        )
    if mesh.ndim != 1:
        raise ValueError(
            f"{where}: the mesh must have one dimension; got {mesh.ndim}. Pass one of its own, such"
            " as mesh['tensor']."
        )
    for name in ("num_heads", "num_kv_heads"):
        if getattr(module, name) % mesh.size():
            raise ValueError(
                f"{where}: {name} must be divisible by the size of the mesh, {mesh.size()}, because"
                f" all processes have equally many heads; got {getattr(module, name)}."
            )
    outer = [] if module.encoding is None else module.encoding.list_outer_parameters()
    if outer:
        raise ValueError(
            f"{where}: the encoding must have projections of its own, because those of the layer"
            f" are split; got {quote(module.encoding)}, which shares them. Build it with"
            " projections='own'."
        )


def _build_local_layer(layer: MultiheadAttention, rank: int, world: int) -> MultiheadAttention:
    """A layer for this process's heads whose parameters have no memory."""
    encoding: Encoding | None = None
    with torch.device("meta"):
        if layer.encoding is not None:
            encoding = from_dict(layer.encoding.to_dict()).shard_heads(rank, world)
        return MultiheadAttention(
            layer.d_model,
            layer.num_heads // world,
            num_kv_heads=layer.num_kv_heads // world,
            head_dim=layer.head_dim,
            encoding=encoding,
            bias=layer.q_proj.bias is not None,
            dropout=layer.dropout,
            causal=layer.causal,
            qk_norm=layer.qk_norm,
        )


def _split_parameters(layer: nn.Module, mesh: DeviceMesh, axes: Mapping[str, int]) -> None:
    """Replace parameters by DTensors: split along their axis of heads, or the same everywhere."""
    for name, parameter in list(layer.named_parameters()):
        if isinstance(parameter, DTensor):
            continue  # of an encoding that another layer has too
        placement = Shard(axes[name]) if name in axes else Replicate()
        split = distribute(parameter.data, mesh, [placement])
        path, _, last = name.rpartition(".")
        new = nn.Parameter(split, requires_grad=parameter.requires_grad)
        layer.get_submodule(path).register_parameter(last, new)


def _take_local(parameter: Tensor) -> Tensor:
    """The part of a parameter on this process; gradients of one that all share are added up."""
    assert isinstance(parameter, DTensor)
    gradients: list[Placement] = [
        Partial() if isinstance(placement, Replicate) else placement
        for placement in parameter.placements
    ]
    local: Tensor = parameter.to_local(grad_placements=gradients)
    return local


def _copy_to_all(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """``x``, which is the same on every process, with a gradient that is added up over all."""
    whole = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    copy: Tensor = whole.to_local(grad_placements=[Partial()])
    return copy


def _add_all(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum of ``x`` over all processes."""
    parts = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    total: Tensor = parts.redistribute(placements=[Replicate()]).to_local()
    return total
