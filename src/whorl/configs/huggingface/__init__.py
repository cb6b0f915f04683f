"""Configs of transformers, in the schemas of version 4 and 5.

read         a config and its parts
groups       its layers, in groups that treat positions alike
families     what each family does otherwise, a line for each
schema       old and new keys -> one dictionary of rope parameters per type of layer
scalings     such a dictionary -> a frequency scaling
rotations    that, and the sizes -> a rotation
defaults     what a config leaves out because the class knows it
"""

from .read import read

__all__ = ["read"]
