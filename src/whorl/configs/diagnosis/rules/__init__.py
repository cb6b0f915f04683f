"""The rules, a file for each subject; importing a file registers its rules."""

from . import (
    attention_scale,
    bases,
    families,
    heads,
    keys,
    layouts,
    lengths,
    loading,
    nested,
    parity,
    scalings,
    shares,
    spelling,
    stored,
    target_length,
    values,
)

__all__ = ["SUBJECTS"]

#: The files of rules, in the order of docs/doctor.md.
SUBJECTS = (
    *(families, keys, spelling, values, nested, loading, parity, bases, lengths, scalings),
    *(attention_scale, heads, shares, target_length, stored, layouts),
)
