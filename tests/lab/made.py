"""Results of a comparison that was never run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whorl.lab.compare.curves import LearningCurve
from whorl.lab.compare.gather import EncodingResults

__all__ = ["CURVE", "STEPS", "add_thirds", "made", "make_curve"]

STEPS = (25, 50, 75, 90, 100)
CURVE = (3.0, 2.5, 2.2, 2.0, 1.998)


def make_curve(losses: Sequence[float] = CURVE) -> LearningCurve:
    return LearningCurve(STEPS, tuple(losses))


def made(
    curves: dict[str, list[Sequence[float]]] | None = None,
    **losses: dict[int, list[list[float]]],
) -> list[EncodingResults]:
    """Entries whose windows have the given losses by length and seed.

    By default those at 256 are as at 128, and those at 2048 as at 512. curves: validation losses
    of an encoding in each seed. With a third of the steps the results are the same.
    """
    entries = []
    for key, given in losses.items():
        name = _get_row_name(key)
        by_length = {256: given[128], 2048: given.get(512, given[128]), **given}
        seeds = len(given[128])
        drawn = (curves or {}).get(name) or [CURVE] * seeds
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
        entry = EncodingResults(name, name, None, {}, found, evaluations)
        entries.append(replace(entry, third=entry))
    return entries


def add_thirds(
    entries: Sequence[EncodingResults], thirds: Sequence[EncodingResults]
) -> list[EncodingResults]:
    """``entries`` whose runs with a third of the steps are those in ``thirds`` of the same name."""
    known: Mapping[str, EncodingResults] = {entry.name: entry for entry in thirds}
    return [replace(entry, third=known.get(entry.name)) for entry in entries]


def _get_row_name(key: str) -> str:
    """Python names have no plus: rope_yarn is rope+yarn."""
    return key.replace("rope_", "rope+", 1)
