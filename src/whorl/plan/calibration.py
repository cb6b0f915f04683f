"""How far the formulas were from trainings that were measured: ``scripts/plan-calibration``."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CALIBRATION", "Calibration"]


@dataclass(frozen=True)
class Calibration:
    """Errors of the seconds and bytes of a training step: computed / measured - 1.

    They are those of the model that no constant was fitted on. source: the file with all that was
    measured; hardware: where.
    """

    source: str
    hardware: str
    seconds: float
    memory: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def list_sentences(self) -> list[str]:
        """The errors in words."""
        time, memory = _describe_error(self.seconds), _describe_error(self.memory)
        return [
            f"Calibrated with two small models on {self.hardware}; no GPU was measured.",
            "The one that nothing was fitted on: computed time"
            f" {time}, memory {memory} the measured.",
        ]


CALIBRATION = Calibration("benchmarks/2026-11-18-plan.json", "one thread of a CPU", 0.091, 0.034)


def _describe_error(error: float) -> str:
    """An error in words.

    >>> _describe_error(0.091), _describe_error(-0.2)
    ('9 % above', '20 % below')
    """
    side = "above" if error > 0 else "below"
    return f"{abs(error) * 100:.0f} % {side}"
