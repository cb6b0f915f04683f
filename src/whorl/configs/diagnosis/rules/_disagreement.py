"""A key that stands beside the rope parameters and inside them, with two values."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Symptom
from whorl.configs.diagnosis.parts import Tower, shown

__all__ = ["disagreements"]


def disagreements(tower: Tower, name: str) -> Iterator[Symptom]:
    """One for each block whose ``name`` is another number than the tower's own."""
    beside = tower.number(name)
    for block in () if beside is None or tower.nested else tower.blocks:
        inside = block.number(name)
        if inside is not None and inside != beside:
            yield Symptom(
                block.path(name),
                f"{name} is {shown(inside)} here and {shown(beside)} at {tower.path(name)}.",
            )
