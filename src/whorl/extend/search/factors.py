"""``search_factors``: factors of LongRoPE for a model, and YaRN tuned by as many evaluations."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl.configs import read_config
from whorl.extend.evaluation import LoadedModel
from whorl.extend.evaluation.results import ResultFile
from whorl.extend.evaluation.rotations import (
    compute_frequencies,
    find_rotary_modules,
    select_group,
    use_frequencies,
)
from whorl.extend.plan import plan_extension, plan_scaling
from whorl.extend.report import ExtensionPlan
from whorl.scaling import Scaling

from .critical import CriticalFactors
from .evolution import SearchOutcome, SearchProgress, run_evolution
from .settings import FactorSearch
from .spaces import PairFactors, SearchSpace, YaRNOptions
from .texts import build_search_texts, compute_mean_loss

__all__ = ["FactorSearchResult", "plan_outcomes", "search_factors", "split_text"]

#: Methods whose factors the search starts with, the first of them first.
_KNOWN = ("yarn", "linear", "ntk", "raised_base", "llama3")
_SEARCH_SHARE = 3  # one in so many characters is for the search
_TITLES = {
    "searched": "LongRoPE, factors found by a search",
    "tuned_yarn": "YaRN, options found by as long a search",
}


@dataclass(frozen=True)
class FactorSearchResult:
    """What a search found, and what tuning YaRN by as many evaluations found."""

    searched: SearchOutcome
    tuned_yarn: SearchOutcome
    trained: int
    target: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "searched": self.searched.to_dict(),
            "tuned_yarn": self.tuned_yarn.to_dict(),
            "trained": self.trained,
            "target": self.target,
        }


def search_factors(
    loaded: LoadedModel,
    text: str,
    *,
    to: int | str,
    settings: FactorSearch | None = None,
    trained: int | None = None,
    folder: str | Path | None = None,
    force: bool = False,
    progress: Callable[[SearchProgress], None] | None = None,
) -> FactorSearchResult:
    """Factors of LongRoPE for a model by the loss of a text, and the options of YaRN as well.

    Args:
        text: at least as long as the target. It says nothing about how good the factors are: keep
            other text for that, as ``split_text`` does.
        to, trained: as in ``whorl.extend.plan_extension``.
        folder: where results.json is kept and continued; None keeps nothing.
        force: search again if the folder has a search of other settings.

    Raises:
        ValueError: the model cannot be extended, the text is too short, or it would take too long.
    """
    settings = settings or FactorSearch()
    plan = plan_extension(loaded.config, to=to, trained=trained)
    search = _Search(loaded, text, plan, settings, folder, force, progress)
    spaces = search.build_spaces()
    search.check_time(len(spaces))
    searched, tuned = (search.run(space) for space in spaces)
    return FactorSearchResult(searched, tuned, plan.trained.tokens, plan.target)


def split_text(text: str) -> tuple[str, str]:
    """The first third of a text for the search, and the rest, which is held out.

    >>> split_text("abcdef")
    ('ab', 'cdef')
    """
    end = len(text) // _SEARCH_SHARE
    return text[:end], text[end:]


def plan_outcomes(
    config: Any, found: FactorSearchResult, trained: int | None = None
) -> dict[str, ExtensionPlan]:
    """What to write for the scalings of a search, by name."""
    return {
        each.name: plan_scaling(
            config,
            each.scaling,
            name=each.name,
            title=_TITLES[each.name],
            to=found.target,
            trained=trained,
        )
        for each in (found.searched, found.tuned_yarn)
    }


class _Search:
    """The parts of one search: the model, its texts, and the losses that are known."""

    def __init__(
        self,
        loaded: LoadedModel,
        text: str,
        plan: ExtensionPlan,
        settings: FactorSearch,
        folder: str | Path | None,
        force: bool,
        progress: Callable[[SearchProgress], None] | None,
    ) -> None:
        self.loaded, self.plan, self.settings = loaded, plan, settings
        self.progress = progress
        self.group = select_group(read_config(loaded.config))
        self.published = compute_frequencies(self.group, None, plan.trained.tokens)
        self.modules = find_rotary_modules(loaded.model, len(self.published.inv_freq))
        tokens = loaded.encode(text)
        lengths = plan.trained.tokens, plan.target
        self.texts = build_search_texts(loaded, tokens, *lengths, settings)
        self.results = ResultFile(
            None if folder is None else Path(folder), self._describe(tokens), force=force
        )
        self.done, self.computed, self.began = 0, 0, time.monotonic()

    def _describe(self, tokens: list[int]) -> dict[str, Any]:
        """What the losses depend on; more evaluations continue a search, and so may minutes."""
        settings = self.settings.to_dict()
        return {
            **{name: settings[name] for name in ("objective", "population", "windows", "seed")},
            "model": self.loaded.name,
            "weights": self.loaded.digest,
            "tokens": hashlib.blake2b(repr(tokens).encode(), digest_size=16).hexdigest(),
            "trained": self.plan.trained.tokens,
            "target": self.plan.target,
        }

    def build_spaces(self) -> tuple[SearchSpace, SearchSpace]:
        """Factors by the paper of the objective, and YaRN's options."""
        trained, target = self.plan.trained.tokens, self.plan.target
        assert self.group.rotation is not None
        unscaled = self.group.rotation.build_without_tables(scaling=None).frequencies().inv_freq
        if self.settings.objective == "needles":
            critical = CriticalFactors(unscaled.tolist(), trained, target)
            return critical, YaRNOptions(trained, target)
        known = []
        for name in _KNOWN:
            method = self.plan.find_method(name)
            if method is not None and method.scaling is not None:
                scaled = compute_frequencies(self.group, method.scaling, target).inv_freq
                known.append((unscaled / scaled).tolist())
        return PairFactors(known, trained, target), YaRNOptions(trained, target)

    def check_time(self, spaces: int) -> None:
        """Refuse a search that would take too long by the time of one evaluation."""
        self.total = spaces * self.settings.evaluations
        left = self.total - min(len(self.results.cells), self.total)
        if not left:
            return
        began = time.monotonic()
        self.compute_loss(None)
        each = time.monotonic() - began
        minutes, most = left * each / 60, self.settings.minutes
        if minutes > most:
            raise ValueError(
                f"the search would take about {minutes:,.0f} minutes: {left} evaluations of"
                f" {len(self.texts)} windows of {self.plan.target:,} tokens, {each:.2g} s each, and"
                f" minutes is {most:g}. Search on a smaller model, lower evaluations or windows, or"
                " raise minutes."
            )
        self.began = time.monotonic()

    def run(self, space: SearchSpace) -> SearchOutcome:
        return run_evolution(space, self.compute_loss, self.settings, self.results, self.show)

    def compute_loss(self, scaling: Scaling | None) -> float:
        """Mean loss of the search texts with a scaling."""
        self.computed += 1
        found = compute_frequencies(self.group, scaling, self.plan.target)
        with use_frequencies(self.modules, found):
            return compute_mean_loss(self.loaded, self.texts)

    def show(self, label: str, loss: float) -> None:
        self.done += 1
        spent = time.monotonic() - self.began
        left = spent / max(1, self.computed - 1) * (self.total - self.done)
        if self.progress is not None:
            self.progress(SearchProgress(self.done, self.total, label, loss, left))
