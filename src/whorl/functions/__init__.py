"""Black-box tests of anybody's rotary function: ``check`` judges it, ``identify`` names it.

probe, tables     how the function wants to be asked, and every call of it
structure         which channels pair up, from matrices of basis vectors
measure, lengths  how fast each pair turns, and whether that follows the length of the context
study             all of that once, for x, queries or keys

identify          from rates to a config, and where the function departs from it
  ladders, by_parts, decay    the rules: a base, scalings by parts, XPos
  configs, rounding           options in as few digits as do, for whorl and transformers
  spec                        the answer

check             every property measured, every mistake named
  properties, calls, far, roles    what is measured: matrices, calls, far positions, q with k
  results, evidence                what was measured, for the rules about mistakes
  diagnoses, _mistakes_*           the rules, one function for a mistake
  report, text                     the answer, and both answers as text
"""

from .check import check
from .identification import Identification
from .identify import identify
from .report import CheckReport, Measured, Mistake

__all__ = ["CheckReport", "Identification", "Measured", "Mistake", "check", "identify"]
