"""A key that is beside the rope parameters and inside them, with two values."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem
from whorl.configs.diagnosis.parts import ConfigPart, format_value

__all__ = ["find_disagreements"]


def find_disagreements(part: ConfigPart, name: str) -> Iterator[Problem]:
    """One problem for each dictionary in which ``name`` is another number than beside it."""
    beside = part.get_number(name)
    for rope in () if beside is None or part.has_layer_types else part.used_parameters:
        inside = rope.get_number(name)
        if inside is not None and inside != beside:
            both = f"{format_value(inside)} here and {format_value(beside)} at {part.path(name)}"
            yield Problem(rope.path(name), f"{name} is {both}.")
