"""The largest sizes that are accepted: above those of any model, and small enough for tables."""

__all__ = ["MOST_CHANNELS", "MOST_LAYERS", "MOST_TOKENS"]

MOST_CHANNELS = 8_192
MOST_LAYERS = 2_000
MOST_TOKENS = 2**40
