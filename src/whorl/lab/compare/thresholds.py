"""Limits of the verdicts, the same in tables, page and claims.

A row *keeps its loss* if its loss at some length is nearly that at the trained length.
"""

__all__ = ["HOLDS", "SEED_NOISE"]

#: Largest rise of the loss, or fall of the accuracy, of a row that keeps it.
HOLDS = {"loss": 0.1, "accuracy": 0.05}
#: Difference that another seed may reverse: two standard deviations of the difference from RoPE at
#: the trained length, which is 0.050 nats over 14 encodings and three seeds of a shorter training
#: (benchmarks/seed-noise.json). For accuracies it is an assumption.
SEED_NOISE = 0.1
