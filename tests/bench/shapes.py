"""Shapes small enough for tests."""

from whorl.bench import Shape

PREFILL = Shape("prefill", 1, 4, 2, 70, 16)
DECODE = Shape("decode", 3, 4, 2, 1, 16)
TRAINING = Shape("training", 2, 3, 3, 5, 16)
