"""The checks of the exam, one function each: they take an encoding and raise where it falls short.

A check must fail for its own reason only, so each feeds fresh contiguous inputs unless strides are
its subject, keeps the batch size unless rows are, and calls shorter lengths before longer ones
unless history is. All compare everything that ``observe`` saw, at whichever hooks the encoding
acts. ``tests/testing`` holds a broken encoding for each.
"""

from collections.abc import Callable

from whorl.encodings import Encoding

from .checks_config import (
    config_round_trip,
    constants,
    pickle_round_trip,
    repr_round_trip,
    state_dict,
)
from .checks_positions import batch_rows, chunks, permutation, positions_agree, precision
from .checks_results import compiles, dtype_kept, empty, gradients, history, scorer, strides

__all__ = ["CHECKS"]

_ALL: tuple[Callable[[Encoding], None], ...] = (
    config_round_trip,
    repr_round_trip,
    pickle_round_trip,
    state_dict,
    dtype_kept,
    strides,
    empty,
    batch_rows,
    positions_agree,
    chunks,
    history,
    scorer,
    constants,
    precision,
    compiles,
    gradients,
    permutation,
)
CHECKS = {check.__name__: check for check in _ALL}
