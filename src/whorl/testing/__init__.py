"""The exam that every encoding sits, ours or yours, and the inputs and tolerances it uses.

>>> import whorl
>>> results = whorl.testing.check_encoding(whorl.RoPE(16), only=("dtype_kept", "empty"))
>>> [(result.check, result.passed) for result in results]
[('dtype_kept', True), ('empty', True)]
"""

from .exam import CheckResult, check_encoding, checks
from .probe import Probe, observe, rounding_tolerance

__all__ = ["CheckResult", "Probe", "check_encoding", "checks", "observe", "rounding_tolerance"]
