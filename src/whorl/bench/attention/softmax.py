"""Contestants of causal softmax attention: whorl with biases, and what PyTorch offers.

A function here takes q, k and v and returns the call that is timed. Work that many calls can share
is done before that: compiling, and for "matrix-ready" building the matrix of biases. "matrix"
builds it in each call, as every layer must whose bias is its own or is trained.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl import ALiBi, Kerple, Shaw, T5Bias, attention
from whorl._support import memory
from whorl.bench.contestants import Contestant, ContestantMakers
from whorl.encodings import Encoding

from . import oracle
from .plan import HEAD_DIM, HEADS, Cell, Plan

__all__ = [
    "FORWARD",
    "MEMORY",
    "build_causal",
    "build_training",
    "check_memory",
    "count_matrix_bytes",
]

ForwardCall = Callable[[], Tensor]
ForwardMaker = Callable[[Tensor, Tensor, Tensor], ForwardCall]

SCALE = HEAD_DIM**-0.5


def build_t5_bias() -> T5Bias:
    """A causal T5 bias with weights as large as after training, and the usual scale."""
    torch.manual_seed(0)
    return T5Bias(HEADS, direction="causal", scale=None, std=1.0)


def _prepare_sdpa(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _make_whorl(encoding: Callable[[], Encoding], padded: bool = False) -> ForwardMaker:
    """A maker of ``whorl.attention`` calls; padded: with a padding mask that hides no key."""

    def make(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
        built = encoding()
        mask = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool) if padded else None
        return lambda: attention(q, k, v, built, causal=True, mask=mask)

    return make


def _prepare_matrix(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
    def call() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=build_alibi_matrix(q.shape[2]))

    return call


def _prepare_ready_matrix(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
    bias = build_alibi_matrix(q.shape[2])
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def _prepare_naive(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
    bias = build_alibi_matrix(q.shape[2])
    return lambda: (q @ k.mT * SCALE + bias).softmax(-1) @ v


def _prepare_flex(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slopes, length = _compute_slopes(), q.shape[2]

    def bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h] * (i - j)

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    torch.compiler.reset()  # compiled code is bound to the thread count it was compiled for
    mask = create_block_mask(seen, None, None, length, length, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    call: ForwardCall = lambda: compiled(q, k, v, score_mod=bias, block_mask=mask)  # noqa: E731
    call()
    return call


FORWARD: dict[str, ForwardMaker] = {
    "sdpa": _prepare_sdpa,
    "alibi": _make_whorl(lambda: ALiBi(HEADS)),
    "alibi-padded": _make_whorl(lambda: ALiBi(HEADS), padded=True),
    "t5": _make_whorl(build_t5_bias),
    "matrix": _prepare_matrix,
    "matrix-ready": _prepare_ready_matrix,
    "flex": _prepare_flex,
    "naive": _prepare_naive,
}


def _make_forward_and_backward(encoding: Encoding | None) -> ForwardMaker:
    def make(q: Tensor, k: Tensor, v: Tensor) -> ForwardCall:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        forward = _prepare_trained("sdpa" if encoding is None else "whorl", leaves, encoding)
        weights = [] if encoding is None else list(encoding.parameters())

        def call() -> Tensor:
            with torch.enable_grad():
                out = forward()
            return torch.autograd.grad(out, [*leaves, *weights], torch.ones_like(out))[0]

        return call

    return make


# Contestants whose memory is measured; Shaw depends on content and so is computed in blocks.
MEMORY: dict[str, ForwardMaker] = {
    **{name: FORWARD[name] for name in ("sdpa", "alibi", "t5", "matrix")},
    "shaw": _make_whorl(lambda: Shaw(HEADS, HEAD_DIM)),
    "sdpa-trained": _make_forward_and_backward(None),
    "t5-trained": _make_forward_and_backward(build_t5_bias()),
}


def build_causal(cell: Cell, plan: Plan) -> ContestantMakers:
    """Contestants of a forward call."""
    q, k, v = oracle.make_inputs(cell.length)
    most = {"naive": plan.most_naive, "matrix-ready": plan.most_naive}
    most["matrix"] = plan.most_quadratic
    names = [n for n in FORWARD if cell.length <= most.get(n, cell.length)]
    names = [n for n in names if n != "flex" or cell.length in plan.compiled]
    rows = oracle.choose_rows(cell.length)

    def make(name: str) -> Contestant:
        if name in most:
            check_memory(cell.length, copies=4 if name == "naive" else 1)
        call = FORWARD[name](q, k, v)
        encoding = {"sdpa": None, "t5": build_t5_bias()}.get(name, ALiBi(HEADS))
        return oracle.make_contestant(
            name, call, rows, lambda: oracle.compute_softmax(q, k, v, rows, encoding)
        )

    return [(name, partial(make, name)) for name in names]


def build_training(cell: Cell, plan: Plan) -> ContestantMakers:
    """Contestants of forward and backward, with gradients of q, k, v and the bias."""
    tensors = [x.requires_grad_() for x in oracle.make_inputs(cell.length)]
    dense = oracle.make_inputs(cell.length, seed=1)[0]
    rows = oracle.choose_rows(cell.length)
    sparse = torch.zeros_like(dense)
    sparse[:, :, rows] = dense[:, :, rows]
    encodings: dict[str, Encoding | None] = {
        "sdpa": None,
        "t5": build_t5_bias(),
        "kerple": Kerple(HEADS),
    }
    if cell.length <= plan.most_quadratic:
        encodings["matrix"] = build_t5_bias()

    def make(name: str) -> Contestant:
        encoding = encodings[name]
        forward = _prepare_trained(name, tensors, encoding)
        weights = [] if encoding is None else list(encoding.parameters())

        def call(cotangent: Tensor = dense) -> tuple[Tensor, ...]:
            return torch.autograd.grad(forward(), [*tensors, *weights], cotangent)

        def find_problem() -> str | None:
            # The cotangent is 0 outside these rows, so that their gradients are all there is.
            out = oracle.compute_softmax(tensors[0], tensors[1], tensors[2], rows, encoding)
            wanted = torch.autograd.grad(out, [*tensors, *weights], dense[:, :, rows].double())
            for n, (found, right) in enumerate(zip(call(sparse), wanted, strict=True)):
                # A score's gradient is a difference of larger numbers: SDPA's is off by 43 eps.
                if wrong := oracle.describe_difference(
                    found, right.double(), f"gradient {n}", slack=256
                ):
                    return wrong
            return None

        return Contestant(name, call, find_problem)

    return [(name, partial(make, name)) for name in encodings]


def build_alibi_matrix(length: int) -> Tensor:
    """ALiBi with the causal mask as [1, H, T, T], built in blocks to save memory."""
    bias = torch.empty(1, HEADS, length, length)
    at, slopes = torch.arange(length, dtype=torch.float32), _compute_slopes()[:, None, None]
    for first in range(0, length, 256):
        rows = slice(first, first + 256)
        distance = at[rows, None] - at
        bias[0, :, rows] = (-slopes * distance).masked_fill(distance < 0, -math.inf)
    return bias


def count_matrix_bytes(length: int) -> int:
    """Bytes of a matrix with a bias for every head, query and key."""
    return HEADS * length**2 * 4


def check_memory(length: int, copies: int = 1) -> None:
    """Raise MemoryError if ``copies`` matrices do not fit into the free memory."""
    needed, free = count_matrix_bytes(length) * copies * 5 // 4, memory.read_available()
    if free is not None and free < needed:
        raise MemoryError(f"needs {needed / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free")


def _prepare_trained(
    name: str, tensors: Sequence[Tensor], encoding: Encoding | None
) -> ForwardCall:
    q, k, v = tensors
    if name == "sdpa":
        return _prepare_sdpa(q, k, v)
    assert encoding is not None
    if name != "matrix":
        return lambda: attention(q, k, v, encoding, causal=True)
    at = torch.arange(q.shape[2])
    distance = at[:, None] - at
    hidden = distance < 0

    def call() -> Tensor:
        bias = encoding.distance_bias(distance)
        assert bias is not None
        mask = bias.masked_fill(hidden, -math.inf).unsqueeze(0)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return call


def _compute_slopes() -> Tensor:
    return 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS)
