"""Where the angles come from: one frequency scaling per file, each a frozen dataclass."""

from .base import Frequencies, Ladder, Scaling, from_dict, names
from .linear import Linear
from .ntk import NTK, DynamicNTK

__all__ = ["NTK", "DynamicNTK", "Frequencies", "Ladder", "Linear", "Scaling", "from_dict", "names"]
