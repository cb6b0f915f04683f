"""``check`` and ``identify``: tests of anybody's rotary function, by calling it.

probe, table_forms     the form of call that the function accepts, and every call of it
pairs                  which channels form a pair, from matrices of basis vectors
pair_rotations         the frequency, phase and size of each pair
length_dependence      whether frequencies depend on the length of the context
measured_function      all of this, for x, queries or keys

identify               the config of a measured function, and where the function differs from it
  rotation_parts               scale, direction, offset, and the rule of the frequencies
  frequency_rules, by_parts,   rules: a base, a factor, scalings by parts,
  dynamic_scalings, xpos       scalings that depend on the length, XPos
  rounding, options            numbers in few digits, as options of whorl and transformers
  identification               the result

check                  all properties, and mistakes by name
  properties, roles            what matrices show: of one function, of queries and keys together
  calls, call_lengths          what shows when calls are compared
  far_positions                results at far positions, in every dtype
  constant_length              the same measurements in calls of one length
  allocations                  memory that a call takes
  results, call_results, evidence   where measurements are collected
  mistakes, mistakes_in_*      the rules about mistakes
  report, text                 the result, and both results as text
"""

from .check import check
from .identification import Identification
from .identify import identify
from .report import CheckReport, Measured, Mistake

__all__ = ["CheckReport", "Identification", "Measured", "Mistake", "check", "identify"]
