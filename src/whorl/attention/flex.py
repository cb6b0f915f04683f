"""Encodings as a ``score_mod`` of torch's flex_attention: scores plus a bias by distance.

Forward only on a CPU, as flex_attention itself; there ``whorl.attention`` is faster, and trains.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding

from ._checks import check_positive

__all__ = ["score_mod"]

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def score_mod(
    encoding: Encoding,
    queries: int,
    keys: int,
    *,
    offset: int | None = None,
    device: torch.device | str = "cpu",
) -> ScoreMod:
    """A function (score, b, h, i, j) -> score for ``queries`` x ``keys`` consecutive positions.

    Rotate q and k by the encoding first, and pass ``scale=encoding.softmax_scale(head_dim)`` if it
    has one. offset: position of the first query minus that of the first key; by default the queries
    are the last keys. Scores by content cannot be written this way and are refused.

    >>> import torch, whorl
    >>> from torch.nn.attention.flex_attention import flex_attention
    >>> mod = whorl.score_mod(whorl.ALiBi(2), 4, 4)
    >>> float(mod(torch.zeros(()), *(torch.tensor(n) for n in (0, 0, 3, 1))))
    -0.125
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "score_mod: encoding must be a whorl.Encoding such as whorl.ALiBi(8); got"
            f" {quote(encoding)}."
        )
    for method in ("content_score", "value_term", "query_scale"):
        if encoding.acts(method):
            raise ValueError(
                "score_mod: encoding must only need the distance of a query and a key, because a"
                f" score_mod gets no more; got {quote(encoding)}. Use whorl.attention."
            )
    for name, value in (("queries", queries), ("keys", keys)):
        check_positive(value, name, "score_mod")
    if offset is not None and type(offset) is not int:
        raise ValueError(
            "score_mod: offset must be an int, the position of the first query minus that of the"
            f" first key, or None; got {quote(offset)}."
        )
    offset = keys - queries if offset is None else offset
    distance = torch.arange(offset - keys + 1, offset + queries, device=device)
    bias = encoding.distance_bias(distance)  # [H, T + S - 1]
    if bias is None:
        return _keep_score
    table = bias.detach()

    def add_bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + table[h, i - j + keys - 1]

    return add_bias


def _keep_score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score
