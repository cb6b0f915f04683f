"""Whether found factors are better than YaRN on held-out text, in words."""

import math
from collections.abc import Mapping
from typing import Any

from whorl.extend.evaluation.ranking import is_clear

__all__ = ["write_search_verdict"]


def write_search_verdict(document: Mapping[str, Any], evaluations: int) -> str:
    """A sentence about the rows "searched" and "tuned_yarn" of ``evaluate_methods``.

    evaluations: how many losses each of the two was chosen by.
    """
    target = document["target"]
    cells = {row["name"]: row["by_length"].get(str(target)) for row in document["rows"]}
    searched, rival = cells["searched"], cells["tuned_yarn"]
    if searched is None or rival is None:
        return "The searched factors were not measured at the target yet."
    values = f"perplexity {_format(searched)} against {_format(rival)}"
    where = f"at {target:,} tokens of held-out text"
    as_long = f"YaRN tuned by as many evaluations ({evaluations})"
    if is_clear(searched["blocks"], rival["blocks"]):
        said = f"The searched factors beat {as_long} {where}: {values}"
    elif is_clear(rival["blocks"], searched["blocks"]):
        said = f"The searched factors are worse than {as_long} {where}: {values}"
    else:
        said = f"The searched factors did not clearly beat {as_long} {where}: {values}"
    plain = cells.get("yarn")
    return f"{said}." if plain is None else f"{said}; YaRN untuned has {_format(plain)}."


def _format(cell: Mapping[str, Any]) -> str:
    loss = float(cell["loss"])
    return f"{math.exp(loss):,.2f}" if loss < 20 else f"e^{loss:.0f}"
