"""What each of two processes does for ``test_processes``: parts and the whole, compared.

Every comparison gives the largest difference of outputs and of gradients, over all processes and
relative to the largest number; a refusal gives the message.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module

import whorl
from whorl.parallel import HeadParallel, sharded_attention

PAGE = Path(__file__).parents[2] / "docs" / "parallel.md"
B, H, G, T, D = 2, 4, 2, 24, 8
WIDTH = H * D

#: A rotation, one that follows the length, a fixed and a trained bias, scores by content, values.
ENCODINGS: dict[str, Callable[[], whorl.Encoding]] = {
    "rope": lambda: whorl.RoPE(D),
    "dynamic": lambda: whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=8)),
    "alibi": lambda: whorl.ALiBi(H),
    "t5": lambda: whorl.T5Bias(H, num_buckets=8, max_distance=16),
    "transformer_xl": lambda: whorl.TransformerXL(H, D),
    "deberta": lambda: whorl.DeBERTa(H, D, max_distance=8),
    "shaw": lambda: whorl.Shaw(H, D, left=5, values="trained", heads="own"),
}
FSDP = ("rope", "alibi", "t5", "deberta", "mixed")
PIPELINE = ("rope", "alibi", "t5", "transformer_xl")


def compare(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The largest difference of pairs, relative to the second where that is above 1."""
    with torch.no_grad():
        worst = max(float((a - b).abs().max() / (1 + b.abs().max())) for a, b in pairs)
    found = torch.tensor(worst)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def make(name: str) -> whorl.Encoding:
    torch.manual_seed(1)
    if name == "mixed":
        return whorl.AxialRoPE(D, axes=2, frequencies="mixed", num_kv_heads=H)
    return ENCODINGS[name]()


def split_sequence(mesh: DeviceMesh, name: str, exchange: Any, order: Any) -> float:
    """Outputs and gradients of a sequence whose tokens two processes have."""
    encoding = make(name)
    q, k, v = (torch.randn(B, heads, T, D, requires_grad=True) for heads in (H, G, G))
    gradient, mask = torch.randn(B, H, T, D), torch.ones(B, T).bool()
    mask[0, :3] = False
    own = list(encoding.parameters())
    options: dict[str, Any] = {"causal": True, "window": 17, "sinks": 1, "block": 8}
    whole = whorl.attention(q, k, v, encoding, mask=mask, **options)
    wanted = torch.autograd.grad(whole, [q, k, v, *own], gradient)
    at = whorl.positions.shard(T, mesh.get_local_rank(), mesh.size(), order)
    mine: Any = [x[:, :, at].detach().requires_grad_() for x in (q, k, v)]
    given: dict[str, Any] = {} if order == "contiguous" else {"positions": at}
    call: Any = sharded_attention
    out = call(*mine, encoding, mesh=mesh, exchange=exchange, mask=mask[:, at], **given, **options)
    found = torch.autograd.grad(out, [*mine, *own], gradient[:, :, at])
    for x in found[3:]:
        dist.all_reduce(x)
    pairs = [(out, whole[:, :, at])]
    pairs += [(a, b[:, :, at]) for a, b in zip(found[:3], wanted[:3], strict=True)]
    return compare([*pairs, *zip(found[3:], wanted[3:], strict=True)])


def split_heads(mesh: DeviceMesh, name: str) -> float:
    """Outputs and gradients of two layers with one encoding, whose heads two processes have."""
    encoding = make(name)
    layers: Any = nn.ModuleList(
        whorl.MultiheadAttention(
            WIDTH, H, num_kv_heads=G, encoding=encoding, causal=True, qk_norm=norm
        )
        for norm in ("before", "none")
    )
    nn.init.normal_(layers[0].out_proj.bias)
    x, gradient = torch.randn(B, T, WIDTH, requires_grad=True), torch.randn(B, T, WIDTH)
    names = [n for n, _ in layers.named_parameters()]
    whole = layers[1](layers[0](x))
    wanted = torch.autograd.grad(whole, [x, *layers.parameters()], gradient)
    parallelize_module(layers, mesh, {"0": HeadParallel(), "1": HeadParallel()})
    assert names == [n for n, _ in layers.named_parameters()]
    assert layers[0].q_proj.weight.to_local().shape[0] == WIDTH // mesh.size()
    out = layers[1](layers[0](x))
    found = torch.autograd.grad(out, [x, *layers.parameters()], gradient)
    full = [g.full_tensor() if isinstance(g, DTensor) else g for g in found]
    return compare([(out, whole), *zip(full, wanted, strict=True)])


def decode_heads(mesh: DeviceMesh) -> float:
    """Tokens one by one with a cache, on the heads of each process; one mask for every head."""
    both = make("rope") + make("alibi")
    layer: Any = whorl.MultiheadAttention(WIDTH, H, encoding=both, causal=True)
    x, mask = torch.randn(B, 6, WIDTH), torch.rand(1, H, 6, 6) > 0.2
    with torch.no_grad():
        whole, masked = layer(x), layer(x, mask=mask)
        parallelize_module(layer, mesh, HeadParallel())
        cache = whorl.KVCache(layer.local_layer.encoding)
        steps = [layer(x[:, n : n + 1], cache=cache) for n in range(6)]
        return compare([(torch.cat(steps, 1), whole), (layer(x, mask=mask), masked)])


class Block(nn.Module):
    """A layer of a model: attention on a normalized input, added to it."""

    def __init__(self, encoding: whorl.Encoding) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = whorl.MultiheadAttention(WIDTH, H, encoding=encoding, causal=True)

    def forward(self, x: Tensor) -> Tensor:
        encoding = self.attention.encoding
        options: dict[str, Any] = {}
        if encoding is not None and encoding.needs_positions:
            options = {"positions": torch.arange(x.shape[1]).expand(2, -1)}
        out: Tensor = x + self.attention(self.norm(x), **options)
        return out


def wrap_in_fsdp(mesh: DeviceMesh, name: str) -> float:
    """Outputs and gradients of a model that was made without memory and wrapped by FSDP2."""
    whole: Any = nn.Sequential(Block(make(name)), Block(make(name)))
    with torch.device("meta"):
        model: Any = nn.Sequential(Block(make(name)), Block(make(name)))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    started = [p.full_tensor() for p in model.parameters()]
    assert all(bool(p.isfinite().all()) and bool((p.abs() < 10).all()) for p in started)
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, whole.state_dict(), options=options)
    x, gradient = torch.randn(4, T, WIDTH), torch.randn(4, T, WIDTH)
    own = slice(mesh.get_local_rank(), None, mesh.size())
    expected, out = whole(x), model(x[own])
    expected.backward(gradient)
    out.backward(gradient[own] * mesh.size())  # FSDP takes the mean
    both = zip(model.parameters(), whole.parameters(), strict=True)
    pairs = [(a.grad.full_tensor(), b.grad) for a, b in both]
    return compare([(out, expected[own]), *pairs])


def run_pipeline(mesh: DeviceMesh, name: str) -> float:
    """Outputs and gradients of a model whose two layers are stages on two processes.

    Both layers have one encoding; each stage has its own copy, whose gradients are added up.
    """
    encoding, rank = make(name), mesh.get_local_rank()
    whole: Any = nn.Sequential(Block(encoding), Block(encoding))
    x, target = torch.randn(4, T, WIDTH), torch.randn(4, T, WIDTH)
    expected = whole(x)
    nn.functional.mse_loss(expected, target).backward()
    stage_module: Any = Block(make(name))
    stage_module.load_state_dict(whole[rank].state_dict())
    stage = PipelineStage(stage_module, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.MSELoss())
    out = schedule.step(x) if rank == 0 else schedule.step(target=target)
    shared = list(stage_module.attention.encoding.parameters())
    for parameter in shared:
        dist.all_reduce(parameter.grad)
    both = zip(stage_module.parameters(), whole[rank].parameters(), strict=True)
    pairs = [(a.grad, b.grad) for a, b in both]
    return compare([*pairs, *([] if out is None else [(out, expected)])])


def refuse(call: Callable[[], object]) -> str:
    try:
        call()
    except (TypeError, ValueError) as error:
        return str(error)
    return "not refused"


def collect_refusals(mesh: DeviceMesh) -> dict[str, str]:
    """The messages of calls that would be wrong."""
    rank, x = mesh.get_local_rank(), torch.randn(1, H, 4, D)
    split = DTensor.from_local(x, mesh, [Shard(1)])
    wrapped = whorl.T5Bias(H)
    fully_shard(wrapped, mesh=mesh)
    odd = whorl.MultiheadAttention(3 * D, 3, encoding=whorl.RoPE(D))
    shared = whorl.DeBERTa(H, D, projections="shared", max_distance=8)
    tied = whorl.MultiheadAttention(WIDTH, H, encoding=shared)
    shared.share(tied.q_proj, tied.k_proj)
    layer = whorl.MultiheadAttention(WIDTH, H, encoding=whorl.ALiBi(H), causal=True)
    parallelize_module(layer, mesh, HeadParallel())
    cache = whorl.KVCache(whorl.ALiBi(H))
    longer = x[:, :, : 4 - rank]
    style = HeadParallel()
    return {
        "dtensor": refuse(lambda: whorl.attention(split, split, split, whorl.RoPE(D))),
        "rotated": refuse(lambda: whorl.RoPE(D)(split, split)),
        "shards": refuse(lambda: sharded_attention(split, split, split, mesh=mesh)),
        "wrapped": refuse(lambda: whorl.attention(x, x, x, wrapped)),
        "lengths": refuse(lambda: sharded_attention(longer, longer, longer, mesh=mesh)),
        "options": refuse(lambda: sharded_attention(x, x, x, mesh=mesh, softcap=1.0 + rank)),
        "heads": refuse(lambda: parallelize_module(odd, mesh, style)),
        "again": refuse(lambda: parallelize_module(layer, mesh, style)),
        "tied": refuse(lambda: parallelize_module(tied, mesh, style)),
        "cache": refuse(lambda: layer(torch.randn(1, 1, WIDTH), cache=cache)),
    }


def run_page(mesh: DeviceMesh) -> int:
    """How many examples of the page ran; all but the first, which connects the processes."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1:]
    names = {"torch": torch, "whorl": whorl, "dist": dist, "mesh": mesh}
    names |= {"rank": mesh.get_local_rank(), "world": mesh.size()}
    for block in blocks:
        exec(block, names)
    return len(blocks)


def run(rank: int, world: int, folder: str) -> None:
    """All comparisons on one process; the first one writes what was found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    torch.manual_seed(0)
    mesh, found = init_device_mesh("cpu", (world,)), {}
    for name in ENCODINGS:
        found[f"gather {name}"] = split_sequence(mesh, name, "gather", "contiguous")
        found[f"ring {name}"] = split_sequence(mesh, name, "ring", "zigzag")
        found[f"heads {name}"] = split_heads(mesh, name)
    for name in FSDP:
        found[f"fsdp {name}"] = wrap_in_fsdp(mesh, name)
    for name in PIPELINE:
        found[f"pipeline {name}"] = run_pipeline(mesh, name)
    found["decode"] = decode_heads(mesh)
    refusals = collect_refusals(mesh)
    examples = run_page(mesh)
    dist.destroy_process_group()
    if rank == 0:
        text = json.dumps({"differences": found, "refusals": refusals, "examples": examples})
        Path(folder, "found.json").write_text(text, encoding="utf-8")
