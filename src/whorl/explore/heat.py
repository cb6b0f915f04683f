"""The heat map of scores: what each pair adds to a score, by distance.

A query and a key whose channels are equal and of norm 1 in each pair have the score
sum_i cos(m theta_i) at distance m. A row of the map is one term: bands of a fast pair are narrow, a
slow pair does not change. Bytes hold -1 .. 1, because a page has many maps.
"""

import base64
import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["build_heat_map"]

_COLUMNS = 72
#: Pairs are left out evenly, if there are more.
_MOST_ROWS = 64


def build_heat_map(inv_freq: Tensor, far: int) -> dict[str, Any]:
    """cos(m theta_i) by pair and distance m from 1 to ``far``, as bytes 0 .. 254 in base64.

    Shapes: inv_freq [P].
    """
    distances = torch.logspace(0, math.log10(max(far, 2)), _COLUMNS, dtype=torch.float64).round()
    step = math.ceil(len(inv_freq) / _MOST_ROWS)
    values = (distances * inv_freq[::step, None].double()).cos()  # [pairs, distances]
    data = (127 + 127 * values).round().to(torch.uint8).flatten().tolist()
    return {
        "pairs": list(range(0, len(inv_freq), step)),
        "distances": [int(distance) for distance in distances.tolist()],
        "values": base64.b64encode(bytes(data)).decode("ascii"),
    }
