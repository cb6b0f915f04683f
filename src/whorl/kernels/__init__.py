"""How a rotation is computed: the oracle, the native library, the torch operator.

Importing it registers the operators; do so before ``torch.export.load`` reads a program.
"""

from . import ops

__all__ = ["ops"]
