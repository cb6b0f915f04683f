"""Results of a comparison that was never run."""

from whorl.lab.compare.gather import EncodingResults

__all__ = ["made"]


def made(**losses: dict[int, list[list[float]]]) -> list[EncodingResults]:
    """Entries whose windows have the given losses by length and seed."""
    entries = []
    for name, by_length in losses.items():
        seeds = len(next(iter(by_length.values())))
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
        entries.append(EncodingResults(name.replace("_", "+"), name, None, 0.0, {}, evaluations))
    return entries
