"""Encodings as a ``score_mod`` of torch's flex_attention: scores plus a bias read by distance.

Forward only on a CPU, as flex_attention itself; there ``whorl.attention`` is faster, and trains.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding

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

    Rotate q and k by the encoding first, and pass ``scale=encoding.softmax_scale(head_dim)`` where
    it has one. offset: position of the first query less that of the first key; the queries are the
    last ones by default. Scores by content cannot be written this way and are refused.

    >>> import torch, whorl
    >>> from torch.nn.attention.flex_attention import flex_attention
    >>> mod = whorl.score_mod(whorl.ALiBi(2), 4, 4)
    >>> float(mod(torch.zeros(()), *(torch.tensor(n) for n in (0, 0, 3, 1))))
    -0.125
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            "score_mod: encoding must be a whorl.Encoding such as whorl.ALiBi(8); got"
            f" {encoding!r}."
        )
    for method in ("content_score", "value_term", "query_scale"):
        if encoding.acts(method):
            raise ValueError(
                f"score_mod: {encoding!r} needs more than the distance of a query and a key, which"
                " a score_mod does not get; use whorl.attention."
            )
    for name, value in (("queries", queries), ("keys", keys)):
        if type(value) is not int or value < 1:
            raise ValueError(f"score_mod: {name} must be a positive int; got {quote(value)}.")
    if offset is not None and type(offset) is not int:
        raise ValueError(
            "score_mod: offset must be an int, how far the first query is from the first key, or"
            f" None; got {quote(offset)}."
        )
    start = keys - queries if offset is None else offset
    distance = torch.arange(start - keys + 1, start + queries, device=device)
    bias = encoding.distance_bias(distance)  # [H, T + S - 1]
    if bias is None:
        return _unchanged
    line = bias.detach()

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + line[h, i - j + keys - 1]

    return add


def _unchanged(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score
