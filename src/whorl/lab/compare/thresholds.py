"""Limits of the verdicts, the same in tables, page and claims.

A row *holds* if its value at some length is nearly that at the training length, *degrades* if it is
worse than that, and *breaks* if it is far worse: half a nat means a perplexity 1.65 times as high.
"""

__all__ = ["BREAKS", "HOLDS", "SEED_NOISE"]

HOLDS = {"loss": 0.1, "accuracy": 0.05}
BREAKS = {"loss": 0.5, "accuracy": 0.25}
#: Difference that another seed may reverse: two standard deviations of the difference from RoPE at
#: the training length, which is 0.050 nats over 14 encodings and three seeds
#: (benchmarks/2026-11-16-amd-epyc-standard-compare.json). For accuracies it is an assumption.
SEED_NOISE = 0.1
