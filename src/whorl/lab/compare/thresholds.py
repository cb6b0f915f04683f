"""Limits of the verdicts, the same in tables, page and claims.

A row *keeps its loss* if its loss at some length is nearly that at the trained length.
"""

__all__ = ["HOLDS"]

#: Largest rise of the loss, or fall of the accuracy, of a row that keeps it.
HOLDS = {"loss": 0.1, "accuracy": 0.05}
