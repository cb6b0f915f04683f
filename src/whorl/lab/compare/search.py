"""Searches learning rates and options of encodings; every encoding gets the same number of trials.

A trial is a run, in a folder of its own and trained like those of a comparison. The first trial of
an encoding has the rates that whorl would choose. Others are suggested by Optuna (the TPE sampler,
Bergstra et al. 2011), four at a time, from the trials before them. Their results and a seed decide
what is suggested, and not how many are trained at a time. The trial with the lowest loss on the
validation text wins; held-out text is not looked at.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.lab import files
from whorl.lab.architectures import build_model
from whorl.lab.config import EvaluationConfig, RunConfig
from whorl.lab.data import open_data_source
from whorl.lab.optimization import group_parameters
from whorl.lab.rates import set_learning_rates
from whorl.lab.runs import Run
from whorl.lab.specs import name_folder

from .plan import ComparisonPlan, PlannedRun
from .pool import ShowStatus, run_all
from .ray_workers import check_ray
from .spaces import SearchedSpec

__all__ = ["TRIALS_FILE", "SearchResult", "Trial", "search_rates"]

#: The study, an SQLite file in the folder of a search.
TRIALS_FILE = "study.sqlite3"

_REPORT_FILE = "search.json"
# Rates are searched up to this factor above and below those that whorl would choose.
_FACTOR = 8.0
# Trials of an encoding that are suggested at a time; the first ones are drawn at random.
_BATCH = 4


@dataclass(frozen=True)
class Trial:
    """One trial: the encoding and rates it was trained with, and its last validation loss."""

    number: int
    encoding: str
    rates: dict[str, float]
    loss: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "trial": self.number,
            "encoding": self.encoding,
            **self.rates,
            "loss": round(self.loss, 4),
        }

    def to_toml(self) -> str:
        """What a config of ``whorl train`` has for it."""
        rates = [f"{name} = {float(rate)}" for name, rate in self.rates.items()]
        encoding = self.encoding.replace("\\", "\\\\").replace('"', '\\"')
        return "\n".join(["[model]", f'encoding = "{encoding}"', "", "[training]", *rates])


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
    are there are not trained again, so that the same call goes on, also with more trials.

    Args:
        encodings: specs; an option may be a range, "rope(base=1e3..1e6)", or words to choose from,
            "rope(layout=half|interleaved)".
        base: the config of all trials, but for encoding and rates.
        trials: how many each encoding gets.
        seed: another one has other suggestions.
        workers, show, force, command, ray: as in ``compare``.

    Raises:
        ValueError: a trial failed, but for one that diverged, which has lost.
    """
    if type(trials) is not int or trials < 1:
        raise ValueError(f"search must be at least 1 trial of each encoding; got {quote(trials)}.")
    if ray is not None:
        check_ray(ray)
    optuna = import_extra("optuna", by="--search", extra="search")
    base = replace(base, evaluation=EvaluationConfig(multiples=(1.0,), windows=8))
    spaces = [_SearchSpace(SearchedSpec(text), base) for text in encodings]
    about = open_data_source(base).about
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"workers": workers, "force": force, "command": command, "ray": ray}
    with files.lock_folder(folder), _open_searches(optuna, folder, spaces) as searches:
        while sum(search.suggest(trials, seed) for search in searches):  # every one is asked
            runs = [run for search in searches for run in search.list_runs()]
            statuses = run_all(runs, folder, about, show=show or (lambda statuses: None), **options)
            losses = {
                run.name: _read_loss(folder / run.name, status.state, status.reason)
                for run, status in zip(runs, statuses, strict=True)
            }
            for search in searches:
                search.record(losses)
        result = SearchResult({search.space.spec.text: search.list_trials() for search in searches})
        files.write_json(folder / _REPORT_FILE, result.to_dict())
    return result


class _SearchSpace:
    """What is searched of one encoding, and the run of a choice."""

    def __init__(self, spec: SearchedSpec, base: RunConfig) -> None:
        self.spec, self._base = spec, base
        example = self._build_config(spec.fill(spec.example))
        training = set_learning_rates(base.training, example.model.encoding, base.model.width)
        model = build_model(example.model, vocab=2, longest=base.longest)
        names = ["learning_rate"]
        if group_parameters(model)["encoding"]:
            names.append("encoding_learning_rate")
        self.start = {name: float(getattr(training, name)) for name in names}

    def build_distributions(self, optuna: Any) -> dict[str, Any]:
        rates = {
            name: optuna.distributions.FloatDistribution(rate / _FACTOR, rate * _FACTOR, log=True)
            for name, rate in self.start.items()
        }
        return rates | self.spec.build_distributions(optuna)

    def build_trial(self, number: int, chosen: Mapping[str, Any], loss: float) -> Trial:
        rates = {name: float(f"{chosen[name]:.3g}") for name in self.start}
        return Trial(number, self.spec.fill(chosen), rates, loss)

    def plan_run(self, number: int, chosen: Mapping[str, Any]) -> PlannedRun:
        trial = self.build_trial(number, chosen, 0.0)
        config = self._build_config(trial.encoding)
        rates: dict[str, Any] = dict(trial.rates)
        training = set_learning_rates(config.training, trial.encoding, config.model.width)
        config = replace(config, training=replace(training, **rates))
        return PlannedRun(f"{name_folder(self.spec.text)}-trial{number}", config)

    def _build_config(self, encoding: str) -> RunConfig:
        return replace(self._base, model=replace(self._base.model, encoding=encoding))


class _EncodingSearch:
    """The study of one encoding: what Optuna suggested, and what came out."""

    def __init__(self, optuna: Any, storage: Any, space: _SearchSpace) -> None:
        self.space, self._optuna = space, optuna
        self._stored = optuna.create_study(
            storage=storage, study_name=space.spec.text, load_if_exists=True
        )
        self._distributions = space.build_distributions(optuna)
        if not self._stored.get_trials(deepcopy=False):
            self._stored.enqueue_trial(space.start)

    def suggest(self, trials: int, seed: int) -> bool:
        """Ask for more trials unless some are under way; whether any have to be trained."""
        running = self._list("RUNNING")
        for trial in running:
            if trial.params.keys() != self._distributions.keys():  # stopped while it was asked for
                self._stored.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
        if any(trial.params.keys() == self._distributions.keys() for trial in running):
            return True
        done = self._list("COMPLETE")
        count = min(_BATCH, trials - len(done))
        for n in range(len(done), len(done) + max(0, count)):
            words = f"{seed} {n} {self.space.spec.text}"
            self._stored.sampler = self._optuna.samplers.TPESampler(
                seed=zlib.crc32(words.encode()), n_startup_trials=_BATCH, constant_liar=True
            )
            self._stored.ask(self._distributions)
        return count > 0

    def list_runs(self) -> list[PlannedRun]:
        """The runs of all trials; those that are done are not trained again."""
        return [self.space.plan_run(x.number, x.params) for x in self._list("COMPLETE", "RUNNING")]

    def record(self, losses: Mapping[str, float]) -> None:
        for trial in self._list("RUNNING"):
            name = self.space.plan_run(trial.number, trial.params).name
            self._stored.tell(trial.number, losses[name])

    def list_trials(self) -> tuple[Trial, ...]:
        done = self._list("COMPLETE")
        return tuple(self.space.build_trial(n, x.params, x.value) for n, x in enumerate(done))

    def _list(self, *states: str) -> list[Any]:
        wanted = tuple(self._optuna.trial.TrialState[state] for state in states)
        found: list[Any] = self._stored.get_trials(deepcopy=False, states=wanted)
        return found


@contextmanager
def _open_searches(
    optuna: Any, folder: Path, spaces: Sequence[_SearchSpace]
) -> Iterator[list[_EncodingSearch]]:
    """The study of each encoding in the SQLite file of ``folder``."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder.resolve() / TRIALS_FILE
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    except Exception as error:  # of SQLAlchemy or Alembic: not a database, another version, ...
        words = str(error).splitlines()[0]
        raise ValueError(
            f"the study {str(path)!r} cannot be opened: {words}. Move it away, or choose another"
            " folder."
        ) from None
    with closing(storage.scoped_session), closing(_Engine(storage)):
        yield [_EncodingSearch(optuna, storage, space) for space in spaces]


@dataclass(frozen=True)
class _Engine:
    """The open file of a study, which has to be closed."""

    storage: Any

    def close(self) -> None:
        self.storage.engine.dispose()


def _read_loss(folder: Path, state: str, reason: str) -> float:
    """The last validation loss of a trial; infinite if it diverged."""
    if state == "done":
        return float(Run(folder).read_metrics()[-1]["validation_loss"])
    if "diverged" in reason:
        return float("inf")
    raise ValueError(f"{folder.name} did not finish: {(reason or state).rstrip('.')}.")
