"""Configs of transformers, in the schemas of version 4 and 5.

read         a config and its parts
groups       groups of layers that treat positions alike
families     how each family differs from the usual one
schema       old and new keys -> one dictionary of rope parameters per layer type
parity       the same, exactly as transformers does it
scalings     such a dictionary -> a frequency scaling
rotations    a scaling and the sizes -> a rotation
defaults     values of keys that a config leaves out
"""

from .read import read

__all__ = ["read"]
