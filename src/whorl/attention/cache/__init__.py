"""A cache of keys and values with their positions: memory, rotation, sinks, cropping."""
