"""A key that stands beside the rope parameters and inside them, with two values."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem
from whorl.configs.diagnosis.parts import ConfigPart, format_value

__all__ = ["find_disagreements"]


def find_disagreements(part: ConfigPart, name: str) -> Iterator[Problem]:
    """One for each block whose ``name`` is another number than the tower's own."""
    beside = part.get_number(name)
    for rope in () if beside is None or part.has_layer_types else part.used_parameters:
        inside = rope.get_number(name)
        if inside is not None and inside != beside:
            yield Problem(
                rope.path(name),
                f"{name} is {format_value(inside)} here and {format_value(beside)} at {part.path(name)}.",
            )
