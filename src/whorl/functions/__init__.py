"""``check`` and ``identify``: tests of anybody's rotary function, by calling it.

probe                  the form of call that the function accepts, and every call of it
pairs                  which channels form a pair; the frequency, phase and size of each pair
measured_function      both, and whether frequencies depend on the length of the context

identify               the config of a measured function, and where the function differs from it
  rotation_parts               scale, direction, offset, and the rule of the frequencies
  frequency_rules, by_parts    rules: a base, a factor, scalings by parts
  rounding, options            numbers in few digits, as options of whorl and transformers
  identification               the result

check                  all properties, and mistakes by name
  evidence                     where all measurements of a function are collected
  properties, roles            what matrices show: of one function, of queries and keys together
  calls, far_positions         what shows when calls are compared, and at far positions
  mistakes, mistakes_in_*      the rules about mistakes
  report, text                 the result, and both results as text
"""

from .check import check
from .identification import Identification
from .identify import identify
from .report import CheckReport, Measured, Mistake

__all__ = ["CheckReport", "Identification", "Measured", "Mistake", "check", "identify"]
