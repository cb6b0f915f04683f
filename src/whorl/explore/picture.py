"""The wavelengths of one model before and after an extension, or of two models, as a picture.

The charts are those of ``whorl inspect --plot``: they need altair and vl-convert, and no browser.
"""

from collections.abc import Sequence
from typing import Any

from whorl import plots
from whorl._support.extras import import_extra
from whorl.configs.inspection import inspect

from .state import ExploredConfig

__all__ = ["draw_picture"]


def draw_picture(
    models: Sequence[ExploredConfig], method: str | None = None, factor: float | None = None
) -> Any:
    """An Altair chart; one model is extended by ``method`` (YaRN by 4), two are as published."""
    if len(models) == 1:
        found = inspect(models[0].source, extend=method or "yarn", factor=factor or 4.0)
        return plots.inspection(_name(found.to_dict(), models[0]))
    if method is not None or factor is not None:
        raise ValueError(
            "--method and --factor extend one model, and two are drawn as published; leave them"
            " out."
        )
    altair = import_extra("altair", by="whorl explore --picture", extra="plots")
    charts = [plots.inspection(_name(inspect(each.source).to_dict(), each)) for each in models]
    apart = {"x": "independent", "y": "independent", "color": "independent"}
    return altair.hconcat(*charts, spacing=36).resolve_scale(**apart)


def _name(document: dict[str, Any], explored: ExploredConfig) -> dict[str, Any]:
    """A document whose charts are named by the model, not by its type, which two may share."""
    return {**document, "model_type": explored.name}
