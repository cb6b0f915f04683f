"""Searches learning rates and options of encodings; every encoding gets the same number of trials.

A trial is a run, in a folder of its own and trained like those of a comparison. The first trial of
an encoding has the rates that whorl would choose. Others are suggested by Optuna (the TPE sampler,
Bergstra et al. 2011), four at a time, from the trials before them. Their results and a seed decide
what is suggested, and not how many are trained at a time. The trial with the lowest loss on the
validation text wins; held-out text is not looked at.
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.lab import files
from whorl.lab.config import EvaluationConfig, RunConfig
from whorl.lab.data import open_data_source
from whorl.lab.runs import Run
from whorl.processes import open_processes

from .plan import ComparisonPlan, PlannedRun
from .pool import RunStatus, ShowStatus, run_all
from .ray_workers import check_ray
from .spaces import SearchedSpec
from .studies import TRIALS_FILE, EncodingSpace, EncodingTrials, Trial, open_studies
from .together import check_workers, run_together

__all__ = ["TRIALS_FILE", "SearchResult", "Trial", "search_rates"]

_REPORT_FILE = "search.json"


@dataclass(frozen=True)
class SearchResult:
    """All trials by encoding, as it was asked for, in the order of their numbers."""

    trials: dict[str, tuple[Trial, ...]]

    @property
    def best(self) -> dict[str, Trial]:
        """The best trial of each encoding; of equal ones the first."""
        return {name: min(found, key=lambda one: one.loss) for name, found in self.trials.items()}

    def apply(self, plan: ComparisonPlan) -> ComparisonPlan:
        """``plan`` with the best options and rates of each encoding."""
        best = self.best.values()
        rates = {trial.encoding: trial.rates for trial in best}
        return replace(plan, encodings=tuple(trial.encoding for trial in best), rates=rates)

    def to_dict(self) -> dict[str, Any]:
        """All of it as values that JSON can hold; null for the loss of a trial that diverged."""
        document = {
            "encodings": [
                {
                    "name": name,
                    "best": self.best[name].to_dict(),
                    "toml": self.best[name].to_toml(),
                    "trials": [trial.to_dict() for trial in found],
                }
                for name, found in self.trials.items()
            ]
        }
        plain: dict[str, Any] = files.replace_non_finite(document)
        return plain


def search_rates(
    encodings: Sequence[str],
    base: RunConfig,
    folder: str | Path,
    *,
    trials: int = 10,
    seed: int = 0,
    workers: int | None = None,
    show: ShowStatus | None = None,
    force: bool = False,
    command: str = "",
    ray: str | None = None,
) -> SearchResult:
    """Train every encoding with the rates of its trials below ``folder``.

    The study is stored in ``folder`` as study.sqlite3, and all trials as search.json. Trials that
    are there are not trained again, so that the same call goes on, also with more trials. Processes
    that a launcher started train one trial after the other together.

    Args:
        encodings: specs; an option may be a range, "rope(base=1e3..1e6)", or words to choose from,
            "rope(layout=half|interleaved)".
        base: the config of all trials, but for encoding and rates.
        trials: how many each encoding gets.
        seed: another one has other suggestions.
        force: replace trials that have other settings.
        workers, show, command, ray: as in ``compare``.

    Raises:
        ValueError: a trial failed, but for one that diverged, which has lost; or the folder has
            trials with other settings.
    """
    if type(trials) is not int or trials < 1:
        raise ValueError(f"search must be at least 1 trial of each encoding; got {quote(trials)}.")
    optuna = import_extra("optuna", by="--search", extra="search")
    base = replace(base, evaluation=EvaluationConfig(multiples=(1.0,), windows=8))
    options: dict[str, Any] = {"force": force, "command": command, "show": show or _show_nothing}
    with open_processes() as processes:
        check_workers(workers, ray, processes)
        if ray is not None:
            check_ray(ray)
        search = _TrialRounds(
            [EncodingSpace(SearchedSpec(text), base) for text in encodings], base, folder
        )
        with files.lock_together(processes, search.folder), ExitStack() as stack:
            processes.run_on_main(lambda: search.open(optuna, stack, force=force))
            while asked := processes.run_on_main(lambda: search.suggest(trials, seed)):
                runs = search.list_runs(asked)
                job = (runs, search.folder, search.about)
                if processes.world > 1:
                    statuses = run_together(*job, processes, **options)
                else:
                    statuses = run_all(*job, workers=workers, ray=ray, **options)
                processes.run_on_main(partial(search.record, runs, statuses))
            found = processes.run_on_main(search.write_report)
            processes.wait()
    return SearchResult({name: tuple(Trial(**one) for one in ones) for name, ones in found})


class _TrialRounds:
    """The trials of all encodings. Only the first process opens their studies and writes."""

    def __init__(
        self, spaces: Sequence[EncodingSpace], base: RunConfig, folder: str | Path
    ) -> None:
        self.spaces, self.folder = spaces, Path(folder)
        self.about = open_data_source(base).about
        self._studies: list[EncodingTrials] = []

    def open(self, optuna: Any, stack: ExitStack, *, force: bool) -> None:
        """Open the studies until the stack is closed; refuse those of other settings."""
        self._studies = stack.enter_context(open_studies(optuna, self.folder, self.spaces))
        for one in self._studies:
            settings = json.dumps(one.space.describe_settings(self.about))
            one.check_settings(json.loads(settings), force=force)

    def suggest(self, trials: int, seed: int) -> list[list[Any]]:
        """The trials so far and those of the next round: which space, number, choice.

        Empty if every encoding has so many trials.
        """
        asked = [one.suggest(trials, seed) for one in self._studies]  # every one is asked
        if not any(asked):
            return []
        pairs = enumerate(zip(self._studies, asked, strict=True))
        return [[n, *trial] for n, (own, found) in pairs for trial in found or own.list_done()]

    def list_runs(self, asked: Sequence[Sequence[Any]]) -> list[PlannedRun]:
        """Their runs; those that are done are not trained again."""
        return [self.spaces[n].plan_run(number, chosen) for n, number, chosen in asked]

    def record(self, runs: Sequence[PlannedRun], statuses: Sequence[RunStatus]) -> None:
        """Store the losses of a round."""
        losses = {
            run.name: _read_loss(self.folder / run.name, status.state, status.reason)
            for run, status in zip(runs, statuses, strict=True)
        }
        for one in self._studies:
            one.record(losses)

    def write_report(self) -> list[list[Any]]:
        """Write all trials as search.json; returns them by encoding, as values."""
        found = {one.space.spec.text: tuple(one.list_trials()) for one in self._studies}
        files.write_json(self.folder / _REPORT_FILE, SearchResult(found).to_dict())
        return [[name, [asdict(one) for one in trials]] for name, trials in found.items()]


def _read_loss(folder: Path, state: str, reason: str) -> float:
    """The last validation loss of a trial; infinite if it diverged."""
    if state == "done":
        return float(Run(folder).read_metrics()[-1]["validation_loss"])
    if "diverged" in reason:
        return float("inf")
    raise ValueError(f"{folder.name} did not finish: {(reason or state).rstrip('.')}.")


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass
