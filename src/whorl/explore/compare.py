"""The page of encodings: biases by distance, the report card, and results of the lab."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from whorl import analysis
from whorl._support.extras import import_extra
from whorl.encodings import Encoding, names
from whorl.encodings.base import get_classes
from whorl.plots import catalogue

__all__ = [
    "LENGTH_LIMIT",
    "build_card",
    "build_lab_results",
    "compute_biases",
    "read_runs",
    "split_by_bias",
]

LENGTH_LIMIT = 65_536
_DISTANCE_COUNT = 400
_HEADS = 8


def split_by_bias() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Encodings with a bias by distance, and those without."""
    biased = {
        n for n, one in get_classes().items() if one.distance_bias is not Encoding.distance_bias
    }
    found = tuple(name for name in names() if name in biased)
    return found, tuple(name for name in names() if name not in biased)


def compute_biases(chosen: list[str], length: int) -> dict[str, Any]:
    """Bias of each head by distance, at up to 400 distances."""
    curves, step = [], max(1, -(-length // _DISTANCE_COUNT))
    for name in chosen:
        numbers = catalogue.numbers("bias", encoding=name, heads=_HEADS, length=length)
        found = numbers.to_dict()
        curves.append(
            {
                "name": name,
                "encoding": found["encoding"],
                "trained": found["trained_parameters"],
                "distances": found["distances"][::step],
                "heads": [[round(v, 6) for v in head[::step]] for head in found["curves"]],
            }
        )
    return {"length": length, "curves": curves}


@lru_cache(maxsize=64)
def build_card(name: str) -> dict[str, Any]:
    """The report card of one encoding, with the rules of its verdicts and explanations."""
    found = analysis.properties([name], lengths=())
    (row,) = found.rows
    return {**row.to_dict(), "rules": found.rules, "words": list(found.words)}


def read_runs(folder: Path) -> dict[str, Any]:
    """The comparison in a folder of ``whorl compare``, from its report or its runs."""
    import_extra("tomli_w", by="whorl explore --runs", extra="lab")
    from whorl.lab import compare
    from whorl.lab.compare.gather import find_runs

    stored = folder / "comparison.json"
    if not stored.is_file():
        return compare.build_comparison(find_runs(folder))
    found = compare.load_comparison(stored)
    try:
        build_lab_results(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(stored)!r} is not a comparison of whorl compare: {error!r}."
        ) from None
    return found


def build_lab_results(comparison: Mapping[str, Any] | None) -> dict[str, Any]:
    """Results of a comparison by length: the part that the page shows."""
    if comparison is None:
        return {"rows": [], "why": "no results were given; start: whorl explore --runs FOLDER"}
    from whorl.lab.compare.tables import describe_outcome

    settings = comparison["settings"]
    return {
        "measure": settings["measure"],
        "unit": (comparison.get("corpus") or {}).get("unit") or "tokens",
        "trained": settings["length"],
        "lengths": sorted(int(n) for n in settings["lengths"]),
        "rows": [
            {
                "name": row["name"],
                "by_length": {n: found["mean"] for n, found in row["by_length"].items()},
                "tokens_per_second": row["tokens_per_second"],
            }
            for row in comparison["rows"]
        ],
        "notes": list(comparison["notes"]),
        "claims": [
            {
                "claim": claim.get("claim"),
                "outcome": describe_outcome(comparison, claim),
                "evidence": claim.get("evidence"),
            }
            for claim in comparison["claims"]
        ],
    }
