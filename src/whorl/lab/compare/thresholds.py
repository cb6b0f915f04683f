"""Limits of the verdicts, the same in tables, page and claims, and how their notes begin.

A row *keeps its loss* if its loss at some length is nearly that at the trained length. Its curve is
*flat* if the last tenth of the steps hardly changed the validation loss.
"""

__all__ = ["CLAIM_NOTE", "FLAT", "HOLDS"]

#: Largest rise of the loss, or fall of the accuracy, of a row that keeps it.
HOLDS = {"loss": 0.1, "accuracy": 0.05}

#: A curve is flat if the last tenth of the steps took less than this share of the loss away.
FLAT = 0.005

#: Notes that begin so are about claims, and are left out where no claims are shown.
CLAIM_NOTE = "Claims"
