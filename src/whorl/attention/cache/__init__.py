"""A cache of keys and values that knows their positions: memory, rotation, sinks, cropping."""
