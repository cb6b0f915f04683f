"""Results of blocks are joined, whether they need gradients or not."""

import pytest
import torch
from torch import Tensor

from whorl.attention._output import Output


@pytest.mark.parametrize("needing", [(), (0, 1, 2), (1,), (2,)])
def test_pieces_are_joined(needing: tuple[int, ...]) -> None:
    pieces = [torch.randn(2, 3, n, 5) for n in (4, 1, 2)]
    for n in needing:
        pieces[n].requires_grad_()
    output = Output(torch.empty(2, 3, 7, 8), torch.empty(2, 1, 9, 5))
    for piece in pieces:
        output.append(piece)
    whole = output.join()
    assert torch.equal(whole, torch.cat(pieces, 2))
    assert whole.requires_grad == bool(needing)
    for n in needing:
        (grad,) = torch.autograd.grad(whole.sum(), pieces[n], retain_graph=True)
        assert torch.equal(grad, torch.ones_like(pieces[n]))


def test_vmap_over_what_only_pieces_depend_on() -> None:
    q, v = torch.empty(2, 3, 7, 8), torch.randn(4, 2, 3, 7, 5)

    def joined(v: Tensor) -> Tensor:
        output = Output(q, v)
        for piece in v.split(3, 2):
            output.append(piece)
        return output.join()

    assert torch.equal(torch.func.vmap(joined)(v), v)


def test_no_queries() -> None:
    nothing = Output(torch.empty(2, 3, 0, 8), torch.empty(2, 1, 9, 5)).join()
    assert nothing.shape == (2, 3, 0, 5)
