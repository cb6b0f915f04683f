"""The second page: biases by distance, the report card, and what the lab measured."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from whorl import analysis
from whorl._support.extras import import_extra
from whorl.encodings import Encoding, names
from whorl.encodings.base import get_classes
from whorl.plots import catalogue

__all__ = ["LONGEST", "biases", "card", "kinds", "lab", "read_runs"]

LONGEST = 65_536
_PLACES = 400
_HEADS = 8


def kinds() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Encodings with a bias by distance, and those without."""
    acting = {
        n for n, one in get_classes().items() if one.distance_bias is not Encoding.distance_bias
    }
    found = tuple(name for name in names() if name in acting)
    return found, tuple(name for name in names() if name not in acting)


def biases(chosen: list[str], length: int) -> dict[str, Any]:
    """Bias of each head by distance, at up to some hundred distances."""
    curves, step = [], max(1, -(-length // _PLACES))
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
def card(name: str) -> dict[str, Any]:
    """The report card of one encoding, with what its verdicts take and its words mean."""
    found = analysis.properties([name], lengths=())
    (row,) = found.rows
    return {**row.to_dict(), "rules": found.rules, "words": list(found.words)}


def read_runs(folder: Path) -> dict[str, Any]:
    """The comparison in a folder of ``whorl compare``, from its report or from its runs."""
    import_extra("tomli_w", by="whorl explore --runs", extra="lab")
    from whorl.lab import compare
    from whorl.lab.compare.gather import find

    kept = folder / "comparison.json"
    if not kept.is_file():
        return compare.document(find(folder))
    found = compare.load(kept)
    try:
        lab(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{str(kept)!r} is no comparison of whorl compare: {error!r}.") from None
    return found


def lab(comparison: Mapping[str, Any] | None) -> dict[str, Any]:
    """Results by length; nothing of the comparison but what the page shows."""
    if comparison is None:
        return {"rows": [], "why": "no results were given; start with: whorl explore --runs FOLDER"}
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
