"""What ``whorl extend --search`` adds: factors found on a part of the text, and what to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from whorl._support.files import write_file_atomically

from ._output import open_progress_bar
from ._training import format_seconds

if TYPE_CHECKING:
    from whorl.extend import ExtensionPlan, MethodReport
    from whorl.extend.evaluation import LoadedModel
    from whorl.extend.search import FactorSearch, FactorSearchResult

__all__ = ["SearchedMethods", "search_on_text"]


@dataclass(frozen=True)
class SearchedMethods:
    """What a search found, with what to write for it."""

    settings: FactorSearch
    found: FactorSearchResult
    plans: Mapping[str, ExtensionPlan]

    @property
    def methods(self) -> list[MethodReport]:
        """The methods to evaluate beside the others."""
        return [plan.methods[0] for plan in self.plans.values()]

    def write_verdict(self, document: Mapping[str, Any]) -> str:
        from whorl.extend.search import write_search_verdict

        words = write_search_verdict(document, self.settings.evaluations)
        pair = self.found.searched.critical_pair
        return words if pair is None else f"{words} The critical pair is number {pair} from 0."

    def describe(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """All of it for ``--json``."""
        plan = self.plans["searched"]
        return {
            "settings": self.settings.to_dict(),
            **self.found.to_dict(),
            "verdict": self.write_verdict(document),
            "recipes": [recipe.to_dict() for recipe in plan.recipes],
        }

    def render(self, document: Mapping[str, Any]) -> list[RenderableType]:
        """The verdict, and what to write for the factors."""
        from whorl.extend.tables import render_recipes

        plan = self.plans["searched"]
        return ["", Text(self.write_verdict(document), "bold"), *render_recipes(plan)]

    def write_config(self, model: str, folder: Path) -> Path | None:
        """Write the config with the factors; None if no config.json can ask for them."""
        from whorl.configs.diagnosis.fix import format_config
        from whorl.configs.names import resolve_model
        from whorl.extend.writing import get_extended_config

        plan = self.plans["searched"]
        if plan.dialect not in plan.configs or not (resolve_model(model) / "config.json").is_file():
            return None
        path = folder / "config.searched.json"
        write_file_atomically(path, format_config(get_extended_config(plan)).encode())
        return path


def search_on_text(
    loaded: LoadedModel,
    text: str,
    settings: Mapping[str, Any],
    *,
    folder: Path,
    force: bool,
    to: str,
    trained: int | None,
) -> tuple[SearchedMethods, str]:
    """What a search on a part of the text finds, and the other part, which is held out."""
    from whorl.extend import search

    chosen = search.FactorSearch(**settings)
    searched, held_out = search.split_text(text)
    with open_progress_bar() as show:

        def report(moment: search.SearchProgress) -> None:
            left = f", {format_seconds(moment.seconds_left or 0.0)} left"
            show(moment.done, moment.total, f"{moment.label}: loss {moment.loss:.4f}{left}")

        found = search.search_factors(
            loaded,
            searched,
            to=to,
            settings=chosen,
            trained=trained,
            folder=folder / "search",
            force=force,
            progress=report,
        )
    plans = search.plan_outcomes(loaded.config, found, trained)
    return SearchedMethods(chosen, found, plans), held_out
