"""bind: a call prepared for tensors that stay, and right when they do not."""

import pytest
import torch
from torch import Tensor

import whorl
from whorl.kernels import native

needs_native = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")


def pair(dtype: torch.dtype = torch.float32, length: int = 1) -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4, length, 16).to(dtype), torch.randn(3, 2, length, 16).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "rope",
    [
        whorl.RoPE(16),
        whorl.RoPE(16, impl="reference"),
        whorl.RoPE(16, layout="interleaved", rotary_dim=6, rotary_start=4),
        whorl.RoPE(16, out_layout="interleaved"),
        whorl.RoPE(16, scaling=whorl.YaRN(factor=4.0, original_context=64)),
        whorl.RoPE(16, scaling=whorl.DynamicNTK(factor=2.0, original_context=8)),
        whorl.RoPE(16, frequencies="trained").requires_grad_(False),
        whorl.MRoPE(16, sections=(2, 3, 3)),
        whorl.XPos(16),
    ],
    ids=repr,
)
def test_steps_are_those_of_forward(rope: whorl.RoPE | whorl.XPos, dtype: torch.dtype) -> None:
    q, k = pair(dtype, 2)
    out = torch.empty_like(q), torch.empty_like(k)
    own = q.clone(), k.clone()
    step, step_ = rope.bind(q, k, out=out), rope.bind(*own)
    far = (3000,) if isinstance(rope, whorl.XPos) else (4094, 4095, 5000)  # the table holds 4096
    for offset in (0, 7, *far, 3):
        want = rope(q, k, offset=offset)
        got = step(offset)
        assert got[0] is out[0]
        assert got[1] is out[1]
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])
        own[0].copy_(q)
        own[1].copy_(k)
        assert torch.equal(step_(offset)[1], want[1])
        assert torch.equal(own[0], want[0])


@needs_native
def test_the_kernel_is_called_at_once_where_it_can_be() -> None:
    rope = whorl.RoPE(16)
    q, k = pair()
    assert rope.bind(q, k)._prepared is not None
    cache = torch.zeros(3, 2, 9, 16)  # keys go straight into a cache
    assert rope.bind(q, k, out=(q, cache[:, :, 4:5]))._prepared is not None
    turned = torch.randn(3, 4, 16, 2).transpose(2, 3)  # channels are not contiguous
    assert rope.bind(turned, pair(length=2)[1])._prepared is None
    assert whorl.RoPE(16, table="on_the_fly").bind(q, k)._prepared is not None
    no_rows = whorl.RoPE(16, table="on_the_fly", precision="float32")  # the kernel builds none such
    assert no_rows.bind(q, k)._prepared is None


def test_tensors_that_move_are_noticed() -> None:
    rope = whorl.RoPE(16)
    q, k = pair()
    step = rope.bind(q, k)
    fresh = torch.randn_like(q)
    q.set_(fresh)  # type: ignore[call-overload]  # other memory under the same tensor
    kept, keys = q.clone(), k.clone()
    step(5)
    assert torch.equal(q, rope.rotate(kept, offset=5))
    assert torch.equal(k, rope.rotate(keys, offset=5))
    step(0)
    step(1)
    assert torch.equal(k, rope.rotate(rope.rotate(keys, offset=5), offset=1))


def test_autograd_notices_the_write() -> None:
    q, k = pair()
    before = q._version, k._version
    whorl.RoPE(16).bind(q, k)(3)
    assert (q._version, k._version) > before


def test_errors_come_when_binding_or_calling() -> None:
    rope = whorl.RoPE(16)
    q, k = pair()
    with pytest.raises(ValueError, match=r"RoPE: k must be \[B, H, T, D\] with D = head_dim = 16"):
        rope.bind(q, k[..., :8])
    with pytest.raises(ValueError, match=r"RoPE: out must have the shape and dtype of x"):
        rope.bind(q, k, out=(q, k.half()))
    step = rope.bind(q, k)
    with pytest.raises(TypeError, match=r"offset must be an int or one int per batch row"):
        step(0.5)  # type: ignore[arg-type]
    q.requires_grad_()
    with pytest.raises(ValueError, match=r"cannot write into a tensor where a gradient is needed"):
        step(1)
    with pytest.raises(ValueError, match=r"cannot write into a tensor where a gradient is needed"):
        rope.bind(q, k)
    with pytest.raises(ValueError, match=r"AxialRoPE: positions must be \[n, T\]"):
        whorl.AxialRoPE(16).bind(*pair())
