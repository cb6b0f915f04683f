"""Results of a comparison that was never run."""

from collections.abc import Sequence

from whorl.lab.compare.curves import LearningCurve
from whorl.lab.compare.gather import EncodingResults

__all__ = ["FLAT_CURVE", "STEPS", "made", "make_curve"]

STEPS = (25, 50, 75, 90, 100)
#: The last tenth of the steps takes away a thousandth.
FLAT_CURVE = (3.0, 2.5, 2.2, 2.0, 1.998)


def make_curve(losses: Sequence[float] = FLAT_CURVE) -> LearningCurve:
    return LearningCurve(STEPS, tuple(losses))


def made(
    curves: dict[str, list[Sequence[float]]] | None = None,
    **losses: dict[int, list[list[float]]],
) -> list[EncodingResults]:
    """Entries whose windows have the given losses by length and seed; at 256 as at 128 by default.

    curves: validation losses of an encoding in each seed; flat ones by default.
    """
    entries = []
    for key, given in losses.items():
        name, by_length = _get_row_name(key), {256: given[128], **given}
        seeds = len(given[128])
        drawn = (curves or {}).get(name) or [FLAT_CURVE] * seeds
        evaluations = {
            seed: {
                "frequencies_loss": 9.0,
                "by_length": {
                    str(length): {
                        "windows": rows[seed],
                        "loss": sum(rows[seed]) / len(rows[seed]),
                    }
                    for length, rows in by_length.items()
                },
            }
            for seed in range(seeds)
        }
        found = {seed: make_curve(one) for seed, one in enumerate(drawn)}
        entries.append(EncodingResults(name, name, None, {}, found, evaluations))
    return entries


def _get_row_name(key: str) -> str:
    """Python names have no plus: rope_yarn is rope+yarn."""
    return key.replace("rope_", "rope+", 1)
