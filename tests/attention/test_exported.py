"""torch.export takes attention with any batch and any length, and gives what eager code gives."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl.attention import attention
from whorl.scaling import DynamicLinear, DynamicNTK, DynamicYaRN, LongRoPE

from .test_softmax import randn

pytestmark = pytest.mark.slow

H, G, D = 4, 2, 8
BATCH, LENGTH = (torch.export.Dim(name, max=512) for name in ("batch", "length"))
TRACED = (3, 13)
# One block and two, as many rows as tokens, one row, two tokens.
OTHERS = [(2, 5), (5, 5), (1, 300), (2, 2)]
FACTORS = {"short_factors": [1.0] * 4, "long_factors": [2.0] * 4, "original_context": 32}
LONG = LongRoPE(**FACTORS, factor=4.0, long_attention_factor=1.5)  # type: ignore[arg-type]


class Attention(nn.Module):
    """``attention`` with options that are no tensors."""

    def __init__(self, encoding: whorl.Encoding | None, **options: Any) -> None:
        super().__init__()
        self.encoding, self.options = encoding, options

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        given: dict[str, Any] = {"mask": mask, "documents": documents, "positions": positions}
        return attention(q, k, v, self.encoding, **given, **self.options)


AXES: dict[str, dict[int, Any]] = {
    "padding": {0: BATCH, 1: LENGTH},
    "mask": {0: BATCH, 2: LENGTH, 3: LENGTH},
    "documents": {0: BATCH, 1: LENGTH},
    "positions": {0: BATCH, 1: LENGTH},
    "two axes": {1: LENGTH},
    "three axes": {1: BATCH, 2: LENGTH},
}


def option(name: str, B: int, T: int) -> dict[str, Tensor]:
    """A tensor that says who sees whom, or where tokens are."""
    index = torch.arange(T).expand(B, T).contiguous()
    if name == "padding":
        return {"mask": index >= torch.arange(B).unsqueeze(-1).clamp(max=T - 1)}
    if name == "mask":
        kept = torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(T)) > 0.3
        return {"mask": kept}
    if name == "documents":
        return {"documents": index // 7}
    if name == "positions":
        return {"positions": 2 * index}
    if name == "two axes":
        return {"positions": torch.stack((index[0] // 4, index[0] % 4))}
    return {"positions": torch.stack((index, index // 2, index % 5))}


def inputs(name: str | None, B: int, T: int, dtype: torch.dtype) -> dict[str, Tensor]:
    heads = {"q": H, "k": G, "v": G}
    made = {x: randn(B, n, T, D, seed=i).to(dtype) for i, (x, n) in enumerate(heads.items())}
    return made if name is None else {**made, **option(name, B, T)}


def exported(module: nn.Module, name: str | None, given: dict[str, Tensor], **how: Any) -> Any:
    axes = {x: {0: BATCH, 2: LENGTH} for x in "qkv"}
    axes |= {x: AXES[name] for x in given if x not in axes and name is not None}
    return torch.export.export(module, (), given, dynamic_shapes=axes, **how)


CASES: list[tuple[whorl.Encoding | None, str | None, dict[str, Any]]] = [
    (None, "padding", {}),
    (whorl.RoPE(D, table_length=64), "documents", {"causal": True}),
    (whorl.RoPE(D, frequencies="trained"), "mask", {}),
    (whorl.XPos(D), "padding", {"causal": True}),
    (whorl.AxialRoPE(D, axes=2), "two axes", {}),
    (whorl.MRoPE(D, sections=(2, 1, 1)), "three axes", {"causal": True}),
    (whorl.ALiBi(H), None, {"causal": True}),
    (whorl.RoPE(D) + whorl.ALiBi(H), "padding", {"causal": True}),
    (whorl.Kerple(H), "mask", {"causal": True}),
    (whorl.T5Bias(H), None, {"causal": True}),
    (whorl.RelativeBias(H, max_distance=6), "positions", {"causal": True}),
    (whorl.Shaw(H, D, left=4, values="trained"), "padding", {}),
    (whorl.TransformerXL(H, D), None, {"causal": True, "window": 5, "sinks": 2}),
    (whorl.DeBERTa(H, D, max_distance=6), "documents", {}),
    (whorl.RoPE(D, scaling=DynamicNTK(2.0, 32)), "padding", {"causal": True}),
    (whorl.RoPE(D, scaling=DynamicNTK(2.0, 32), lengths="batch"), "positions", {}),
    (whorl.RoPE(D, scaling=LONG), None, {"causal": True}),
    (whorl.RoPE(D, scaling=DynamicYaRN(32)), None, {}),
    (whorl.RoPE(D, scaling=DynamicLinear(32)), "positions", {"causal": True}),
]


@pytest.mark.parametrize(("encoding", "name", "options"), CASES, ids=map(str, CASES))
def test_any_batch_and_length(
    encoding: whorl.Encoding | None, name: str | None, options: dict[str, Any]
) -> None:
    module = Attention(encoding, **options).double()
    program = exported(module, name, inputs(name, *TRACED, torch.float64)).module()
    for B, T in OTHERS:
        given = inputs(name, B, T, torch.float64)
        torch.testing.assert_close(program(**given), module(**given), rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize(
    ("encoding", "name"),
    [(whorl.RoPE(D, table_length=64), "padding"), (whorl.DeBERTa(H, D), None)],
    ids=str,
)
def test_strict_without_gradients_in_float32(encoding: whorl.Encoding, name: str | None) -> None:
    module = Attention(encoding, causal=True)
    given = inputs(name, *TRACED, torch.float32)
    program = exported(module, name, given, strict=True).module()
    for B, T in OTHERS:  # 300: past the rows of the table
        given = inputs(name, B, T, torch.float32)
        torch.testing.assert_close(program(**given), module(**given), rtol=1e-5, atol=3e-6)


def test_a_program_trains() -> None:
    module = Attention(whorl.T5Bias(H), causal=True).double()
    program = exported(module, None, inputs(None, *TRACED, torch.float64)).module()
    given = inputs(None, 2, 300, torch.float64)
    grads = []
    for call in (module, program):
        q = given["q"].requires_grad_()
        out = call(**{**given, "q": q})
        grads.append(torch.autograd.grad(out.square().sum(), (q, *call.parameters())))
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def layer(encoding: whorl.Encoding) -> whorl.MultiheadAttention:
    torch.manual_seed(0)
    made = whorl.MultiheadAttention(H * D, H, num_kv_heads=G, encoding=encoding, causal=True)
    return made.eval()


def test_a_layer_with_padding_and_as_many_rows_as_tokens() -> None:
    module, names = layer(whorl.RoPE(D) + whorl.T5Bias(H)), ("query", "mask")
    auto = torch.export.Dim.DYNAMIC
    axes = {name: {0: auto, 1: auto} for name in names}
    given = {"query": randn(3, 13, H * D).float(), "mask": option("padding", 3, 13)["mask"]}
    program = torch.export.export(module, (), given, dynamic_shapes=axes).module()
    for B, T in OTHERS:
        query, mask = randn(B, T, H * D).float(), option("padding", B, T)["mask"]
        want = module(query, mask=mask[:, None, None])
        torch.testing.assert_close(program(query=query, mask=mask), want, rtol=1e-5, atol=1e-6)


class Packed(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor) -> Tensor:
        return attention(q, k, v, whorl.ALiBi(H), causal=True, cu_seqlens=ends)


def test_any_number_of_packed_documents() -> None:
    def given(*ends: int) -> tuple[Tensor, ...]:
        return (*(randn(1, H, ends[-1], D, seed=n) for n in range(3)), torch.tensor(ends))

    axes = ({2: LENGTH}, {2: LENGTH}, {2: LENGTH}, {0: torch.export.Dim("ends", max=64)})
    program = torch.export.export(Packed(), given(0, 4, 9, 13), dynamic_shapes=axes).module()
    for example in (given(0, 20), given(0, 10, 20, 290, 300)):
        torch.testing.assert_close(program(*example), Packed()(*example), rtol=1e-10, atol=1e-10)


def test_blocks_of_a_fixed_length_stay() -> None:
    """A length that is known when the program is written needs no matrix of all pairs."""
    module = Attention(whorl.T5Bias(H), causal=True, block=4)
    given = inputs(None, 2, 11, torch.float32)
    with torch.no_grad():
        program = torch.export.export(module, (), given)
        torch.testing.assert_close(program.module()(**given), module(**given))
    calls = [node for node in program.graph.nodes if "scaled_dot_product" in str(node.target)]
    assert len(calls) == 3


READER = """
import sys
import torch
import whorl.kernels
program = torch.export.load(sys.argv[1]).module()
want = torch.load(sys.argv[2], weights_only=True)
torch.testing.assert_close(program(query=want["query"]), want["out"], rtol=1e-5, atol=1e-6)
print("equal")
"""


def test_saved_and_read_by_another_process(tmp_path: Path) -> None:
    module = layer(whorl.RoPE(D, scaling=LONG))
    axes = {"query": {0: BATCH, 1: LENGTH}}
    example = {"query": randn(3, 13, H * D).float()}
    with torch.no_grad():
        program = torch.export.export(module, (), example, dynamic_shapes=axes)
    torch.export.save(program, tmp_path / "layer.pt2")
    query = randn(2, 300, H * D).float()
    torch.save({"query": query, "out": module(query).detach()}, tmp_path / "want.pt")
    files = [str(tmp_path / "layer.pt2"), str(tmp_path / "want.pt")]
    done = subprocess.run([sys.executable, "-c", READER, *files], capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr


def test_a_cache_is_refused() -> None:
    module = Attention(whorl.RoPE(D), causal=True, cache=whorl.KVCache(whorl.RoPE(D)))
    with pytest.raises(ValueError, match=r"cache must be None in an exported program, because"):
        exported(module, None, inputs(None, *TRACED, torch.float32))


def test_a_mask_of_two_axes_is_padding() -> None:
    module, query = layer(whorl.RoPE(D)), randn(3, 13, H * D).float()
    given = {"query": query, "mask": torch.ones(13, 13).bool()}
    with pytest.raises(ValueError, match=r"mask must be \[B, S\] for padding"):
        torch.export.export(module, (), given)
