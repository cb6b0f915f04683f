"""Context parallel: each process has some of the tokens of a sequence, and attends to all of it.

"gather" collects the keys and values of all processes before it computes. "ring" passes them on
from process to process, so that each holds its own and those of one other, in both passes.
"""

import zlib
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard

from whorl._support.options import check_choice
from whorl._support.storage import refuse_sharded
from whorl.attention import attention
from whorl.attention.softmax.attention import BLOCK
from whorl.attention.softmax.partial import check_part_positions
from whorl.encodings import Encoding, NoPE

from .ring import RingCall

__all__ = ["sharded_attention"]


def sharded_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    mesh: DeviceMesh | None = None,
    exchange: Literal["gather", "ring"] = "gather",
    causal: bool = False,
    window: int | None = None,
    sinks: int = 0,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    context_length: int | Tensor | None = None,
    softcap: float | None = None,
    block: int = BLOCK,
) -> Tensor:
    """Attention over a sequence whose tokens are split over processes; each gets its own tokens'.

    Every process of the mesh calls it with q [B, H, T, D], k [B, G, T, D] and v [B, G, T, Dv] of
    its own tokens, as many as each of the others, and gets [B, H, T, Dv].

    Args:
        mesh: the processes, in one dimension; all of them by default.
        exchange: "gather" holds the keys and values of all tokens, "ring" those of two processes;
            it computes the scores of each pair of processes a second time for gradients.
        positions: of this process's tokens, as ``whorl.positions.shard`` gives them, in any order;
            by default rank r has the tokens r T .. (r + 1) T - 1.
        mask: [B, T], 0 for this process's padding and 1 for its other tokens.

    The other arguments are those of ``whorl.attention``. Gradients of the encoding's parameters are
    those of this process's queries: add them up over the mesh, as data parallel training does.
    """
    check_choice(exchange, ("gather", "ring"), "exchange", "sharded_attention")
    encoding = NoPE() if encoding is None else encoding
    mesh = _get_mesh(mesh, q)
    _check_tokens(q, k, v, mask)
    options: dict[str, Any] = {"causal": causal, "window": window, "sinks": sinks, "scale": scale}
    options |= {"softcap": softcap, "block": block}
    if positions is None:
        first = mesh.get_local_rank() * q.shape[2]
        positions = torch.arange(first, first + q.shape[2], device=q.device)
    _check_agreement(mesh, q, k, v, encoding, positions, mask, exchange, options)
    masked = causal or window is not None
    check_part_positions(positions, encoding, masked, "sharded_attention")
    all_positions = _collect_shards(positions, mesh, positions.dim() - 1)
    all_masks = None if mask is None else _collect_shards(mask.to(torch.uint8), mesh, 1)
    if context_length is None and encoding.acts("forward"):
        context_length = _find_context_length(all_positions, encoding.position_axes)
    options["context_length"] = context_length
    device = q.device.type
    if torch.is_autocast_enabled(device) and q.dtype != torch.float64:
        q, k, v = (x.to(torch.get_autocast_dtype(device)) for x in (q, k, v))
    with torch.autocast(device, enabled=False):  # as the backward pass will be
        if exchange == "ring":
            world = mesh.size()
            masks = [None] * world if all_masks is None else list(all_masks.chunk(world, 1))
            parts = all_positions.chunk(world, -1)
            group, rank = mesh.get_group(), mesh.get_local_rank()
            return RingCall(group, rank, encoding, parts, masks, options).attend(q, k, v)
        keys, values = (_collect_shards(x, mesh, 2) for x in (k, v))
        options |= {"positions": positions, "key_positions": all_positions, "mask": all_masks}
        return attention(q, keys, values, encoding, **options)


def _get_mesh(mesh: DeviceMesh | None, q: Tensor) -> DeviceMesh:
    """The mesh, or one of all processes; refuse what is none."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "sharded_attention: the processes must be connected; got no process group. Start them"
            " with torchrun and call torch.distributed.init_process_group first."
        )
    if mesh is None:
        assert dist.group.WORLD is not None
        return DeviceMesh.from_group(dist.group.WORLD, q.device.type)
    if not isinstance(mesh, DeviceMesh) or mesh.ndim != 1:
        came = f"{mesh.ndim} dimensions" if isinstance(mesh, DeviceMesh) else type(mesh).__name__
        raise TypeError(
            "sharded_attention: mesh must be a DeviceMesh with one dimension, the processes that"
            f" share the sequence; got {came}. Pass one of its own, such as mesh['context']."
        )
    return mesh


def _check_tokens(q: Any, k: Any, v: Any, mask: Any) -> None:
    """Refuse all but equally many queries and keys; attention checks everything else."""
    tensors = (q, k, v)
    refuse_sharded(tensors, "sharded_attention", "q, k and v")
    right = all(isinstance(x, Tensor) and x.dim() == 4 for x in tensors)
    if not right or not q.shape[2] == k.shape[2] == v.shape[2] or not q.shape[2]:
        shapes = [list(x.shape) if isinstance(x, Tensor) else type(x) for x in tensors]
        raise ValueError(
            "sharded_attention: q [B, H, T, D], k [B, G, T, D] and v [B, G, T, Dv] must be of the"
            f" same tokens, at least one; got {shapes}."
        )
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != (len(q), q.shape[2])):
        came = f"{list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            "sharded_attention: mask must be [B, T], 1 for tokens and 0 for padding of this"
            f" process, here {[len(q), q.shape[2]]}; got {came}."
        )


def _check_agreement(
    mesh: DeviceMesh,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding,
    positions: Tensor,
    mask: Tensor | None,
    *options: Any,
) -> None:
    """Refuse a call that is not the same on every process: they would wait for ever, or mix up."""
    shapes = [list(x.shape) for x in (q, k, v, positions)]
    grads = torch.is_grad_enabled() and [x.requires_grad for x in (q, k, v)]
    call = f"{shapes}, {q.dtype}, {encoding!r}, mask {mask is not None}, {grads}, {options}"
    number = torch.tensor([zlib.crc32(call.encode())], device=q.device)
    if len(set(_collect_shards(number, mesh, 0).tolist())) > 1:
        raise ValueError(
            "sharded_attention: all processes must call it alike, with tensors of the same shapes"
            f" and types and the same options; got others than on rank {mesh.get_local_rank()},"
            f" which has {call}. Pad the sequence until all have equally many tokens."
        )


def _collect_shards(x: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """The tensors of all processes, joined along an axis in the order of their ranks."""
    shards = DTensor.from_local(x.contiguous(), mesh, [Shard(axis)], run_check=False)
    whole: Tensor = shards.full_tensor(grad_placements=[Partial()])
    return whole


def _find_context_length(positions: Tensor, axes: int) -> int | Tensor:
    """The largest position + 1: one per row, [B], where rows have their own positions."""
    if positions.dim() == 1:
        return int(positions.max()) + 1
    last = positions.amax(-1) if axes == 1 else positions.amax((0, -1))
    return last.to(torch.int64) + 1
