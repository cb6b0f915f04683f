"""What a search of learning rates and options knows: the space and the Optuna study of an encoding.

All studies of a search are in one SQLite file. Each has the settings that its trials are trained
with, so that losses of other settings are not taken for theirs.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whorl.lab.architectures import build_model
from whorl.lab.config import RunConfig
from whorl.lab.optimization import group_parameters
from whorl.lab.rates import set_learning_rates
from whorl.lab.runs import describe_differences
from whorl.lab.specs import name_folder

from .plan import PlannedRun
from .spaces import SearchedSpec

__all__ = ["TRIALS_FILE", "EncodingSpace", "EncodingTrials", "Trial", "open_studies"]

#: The studies, an SQLite file in the folder of a search.
TRIALS_FILE = "study.sqlite3"

# Rates are searched up to this factor above and below those that whorl would choose.
_FACTOR = 8.0
# Trials of an encoding that are suggested at a time; the first ones are drawn at random.
_BATCH = 4
_SETTINGS = "settings"


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


class EncodingSpace:
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

    def describe_settings(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """What the losses of trials depend on beside what is searched; values that JSON can hold.

        about: the corpus.
        """
        settings = self._base.to_dict()
        del settings["model"]["encoding"], settings["evaluation"]
        return {**settings, "text": {"sha256": about.get("sha256")}}

    def _build_config(self, encoding: str) -> RunConfig:
        return replace(self._base, model=replace(self._base.model, encoding=encoding))


class EncodingTrials:
    """The study of one encoding: what Optuna suggested, and what came out."""

    def __init__(self, optuna: Any, storage: Any, space: EncodingSpace) -> None:
        self.space, self._optuna, self._storage = space, optuna, storage
        self._distributions = space.build_distributions(optuna)
        self._stored = self._open()

    def check_settings(self, settings: Mapping[str, Any], *, force: bool) -> None:
        """Refuse trials that were trained with other settings; with ``force`` delete them."""
        known = self._stored.user_attrs.get(_SETTINGS)
        if known is not None and (differing := describe_differences(known, dict(settings))):
            if not force:
                raise ValueError(
                    f"the study of {self.space.spec.text} holds trials with other settings:"
                    f" {differing}. Choose another folder, or pass force=True to replace them."
                )
            self._optuna.delete_study(study_name=self.space.spec.text, storage=self._storage)
            self._stored = self._open()
        self._stored.set_user_attr(_SETTINGS, dict(settings))

    def suggest(self, trials: int, seed: int) -> list[list[Any]]:
        """Number and choice of each trial so far, with those that are asked for now.

        Empty if all have been trained. A search that was stopped while it asked goes on with the
        rest of these.
        """
        running = []
        for trial in self._list("RUNNING"):
            if trial.params.keys() == self._distributions.keys():
                running.append(trial)
            else:  # stopped while it was asked for
                self._stored.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
        done = len(self._list("COMPLETE"))
        if not (done or running or self._list("WAITING")):
            self._stored.enqueue_trial(self.space.start)
        asked = range(done + len(running), min(trials, done - done % _BATCH + _BATCH))
        for n in asked:
            words = f"{seed} {n} {self.space.spec.text}"
            self._stored.sampler = self._optuna.samplers.TPESampler(
                seed=zlib.crc32(words.encode()), n_startup_trials=_BATCH, constant_liar=True
            )
            self._stored.ask(self._distributions)
        if not (running or asked):
            return []
        return [[x.number, x.params] for x in self._list("COMPLETE", "RUNNING")]

    def list_done(self) -> list[list[Any]]:
        """Number and choice of each trial that has a loss."""
        return [[x.number, x.params] for x in self._list("COMPLETE")]

    def record(self, losses: Mapping[str, float]) -> None:
        """Store the losses of trials that have none, by the names of their runs."""
        for trial in self._list("RUNNING"):
            name = self.space.plan_run(trial.number, trial.params).name
            self._stored.tell(trial.number, losses[name])

    def list_trials(self) -> list[Trial]:
        done = self._list("COMPLETE")
        return [self.space.build_trial(n, x.params, x.value) for n, x in enumerate(done)]

    def _open(self) -> Any:
        name = self.space.spec.text
        return self._optuna.create_study(
            storage=self._storage, study_name=name, load_if_exists=True
        )

    def _list(self, *states: str) -> list[Any]:
        wanted = tuple(self._optuna.trial.TrialState[state] for state in states)
        found: list[Any] = self._stored.get_trials(deepcopy=False, states=wanted)
        return found


@contextmanager
def open_studies(
    optuna: Any, folder: Path, spaces: Sequence[EncodingSpace]
) -> Iterator[list[EncodingTrials]]:
    """The study of each encoding in the SQLite file of ``folder``.

    Raises:
        ValueError: the file is no study.
        OSError: the file cannot be written, such as on a full disk; also during the block.
    """
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
    try:
        with closing(storage.scoped_session), closing(_Engine(storage)):
            yield [EncodingTrials(optuna, storage, space) for space in spaces]
    except optuna.exceptions.StorageInternalError as error:
        words = str(error.__cause__ or error).splitlines()[0]
        raise OSError(
            f"the study {str(path)!r} cannot be written: {words}. Trials that are finished stay;"
            " make room, and the same command goes on."
        ) from None


@dataclass(frozen=True)
class _Engine:
    """The open file of a study, which has to be closed."""

    storage: Any

    def close(self) -> None:
        self.storage.engine.dispose()
