"""The largest sizes that are read: more than any model has, and few enough to build tables of."""

__all__ = ["MOST_CHANNELS", "MOST_LAYERS", "MOST_TOKENS"]

MOST_CHANNELS = 8_192
MOST_LAYERS = 2_000
MOST_TOKENS = 2**40
