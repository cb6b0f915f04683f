"""The checks of the conformance suite by name: functions that raise if an encoding fails.

A check must fail only for its own reason. So each uses fresh contiguous inputs unless it is about
strides, keeps the batch size unless it is about rows, and calls shorter lengths before longer ones
unless it is about earlier calls. All compare every result of ``run_hooks``, whichever hooks the
encoding has. ``tests/testing`` contains a broken encoding for each check.
"""

from collections.abc import Callable

from whorl.encodings import Encoding

from .checks_config import (
    check_config_round_trip,
    check_constants,
    check_pickle_round_trip,
    check_repr_round_trip,
    check_state_dict,
)
from .checks_positions import (
    check_batch_rows,
    check_chunks,
    check_permutation,
    check_positions,
    check_precision,
)
from .checks_results import (
    check_compiles,
    check_dtypes,
    check_empty,
    check_gradients,
    check_history,
    check_scorer,
    check_strides,
)

__all__ = ["CHECKS"]

CHECKS: dict[str, Callable[[Encoding], None]] = {
    "config_round_trip": check_config_round_trip,
    "repr_round_trip": check_repr_round_trip,
    "pickle_round_trip": check_pickle_round_trip,
    "state_dict": check_state_dict,
    "dtype_kept": check_dtypes,
    "strides": check_strides,
    "empty": check_empty,
    "batch_rows": check_batch_rows,
    "positions_agree": check_positions,
    "chunks": check_chunks,
    "history": check_history,
    "scorer": check_scorer,
    "constants": check_constants,
    "precision": check_precision,
    "compiles": check_compiles,
    "gradients": check_gradients,
    "permutation": check_permutation,
}
