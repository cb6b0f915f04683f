"""Where words for numbers begin, the same in the tables, the page and the claims.

A row *holds* if its value at some length is nearly that at the training length, *degrades* if it is
worse than that, and *breaks* if it is far worse: half a nat is a perplexity 1.65 times as high.
"""

__all__ = ["BREAKS", "HOLDS", "SEED_NOISE"]

HOLDS = {"loss": 0.1, "accuracy": 0.05}
BREAKS = {"loss": 0.5, "accuracy": 0.25}
#: Differences that another seed may turn round, where one seed is all there is: two standard
#: deviations of the difference from RoPE at the training length, 0.050 nats over 14 encodings and
#: three seeds (benchmarks/2026-11-16-amd-epyc-standard-compare.json). Of accuracies it is assumed.
SEED_NOISE = 0.1
