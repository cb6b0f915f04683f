"""The conformance suite for encodings, and the inputs and tolerances that it uses.

Every encoding of whorl passes it, and so should yours:

>>> import whorl
>>> results = whorl.testing.check_encoding(whorl.RoPE(16), only=("dtype_kept", "empty"))
>>> [(result.check, result.passed) for result in results]
[('dtype_kept', True), ('empty', True)]
"""

from .conformance import CheckResult, check_encoding, list_checks
from .inputs import EncodingInputs, compute_rounding_tolerance, run_hooks

__all__ = [
    "CheckResult",
    "EncodingInputs",
    "check_encoding",
    "compute_rounding_tolerance",
    "list_checks",
    "run_hooks",
]
