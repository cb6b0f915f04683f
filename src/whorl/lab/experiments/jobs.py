"""The jobs of an experiment: every row with every seed, each in a folder and a process of its own.

A training run is a ``PlannedRun`` of the lab. Any other row is run by the function of its
experiment, and its numbers are in row.json in its folder.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from whorl.lab.compare.plan import SHORT_SUFFIX, PlannedRun, shorten_run
from whorl.lab.compare.pool import PlannedJob
from whorl.lab.config import RunConfig
from whorl.lab.data import open_data_source
from whorl.lab.integrity import read_checked, write_checked
from whorl.lab.model import Model
from whorl.lab.rates import choose_learning_rates
from whorl.lab.runs import Run

from .definition import Tables
from .plan import ExperimentPlan, RowPlan
from .results import RowMeasurement, RowResults, collect_results, measure_run

__all__ = [
    "ROW_FILE",
    "RowJob",
    "RunJob",
    "build_run_config",
    "check_jobs",
    "list_configs",
    "list_jobs",
    "name_configs",
    "read_rows",
]

#: Numbers of a row that is no training run, in its folder.
ROW_FILE = "row.json"


@dataclass(frozen=True)
class RowJob:
    """One row with one seed that the function of an experiment runs."""

    name: str
    experiment: str
    tables: Tables
    seed: int
    worker: ClassVar[str] = "whorl.lab.experiments.worker"

    @property
    def asked(self) -> dict[str, Any]:
        """What the numbers depend on; stored with them."""
        return {"experiment": self.experiment, "tables": self.tables, "seed": self.seed}

    def is_finished(self, folder: Path, about: Mapping[str, Any]) -> bool:
        """Whether ``folder`` has the numbers of these settings."""
        return self.read(folder) is not None

    def build_request(self, folder: Path) -> dict[str, Any]:
        """What the worker needs to run the row in ``folder``."""
        return {"folder": str(folder), **self.asked}

    def read(self, folder: Path) -> RowMeasurement | None:
        """The numbers in ``folder``; None if there are none, or those of other settings."""
        path = folder / ROW_FILE
        if not path.exists():
            return None
        found = read_checked(path)
        if found["asked"] != self.asked:
            return None
        return RowMeasurement.from_dict(found["measured"])

    def write(self, folder: Path, measured: RowMeasurement) -> None:
        """Write the numbers to ``folder``."""
        from whorl.lab.files import replace_non_finite

        document = {"asked": self.asked, "measured": measured.to_dict()}
        write_checked(folder / ROW_FILE, replace_non_finite(document))


@dataclass(frozen=True)
class RunJob(PlannedRun):
    """A training run, which finds out about its corpus itself."""

    def is_finished(self, folder: Path, about: Mapping[str, Any]) -> bool:
        """Whether ``folder`` has all results of the run."""
        if not Run(folder).config_path.exists():
            return False
        return super().is_finished(folder, open_data_source(self.config).about)


def list_jobs(plan: ExperimentPlan) -> list[PlannedJob]:
    """All jobs, the first seed of all rows before the second, those with a third of steps last."""
    jobs: list[PlannedJob] = []
    short: list[PlannedJob] = []
    for seed in range(plan.seeds):
        for row in plan.rows:
            jobs.append(_build_job(plan, row, seed))
            if (less := _shorten_job(plan, jobs[-1])) is not None:
                short.append(less)
    return [*jobs, *short] if plan.thirds else jobs


def _build_job(plan: ExperimentPlan, row: RowPlan, seed: int) -> PlannedJob:
    name = f"{row.folder_name}-seed{seed}"
    if plan.experiment.trains:
        return RunJob(name, build_run_config(row.tables, seed))
    return RowJob(name, plan.name, row.tables, seed)


def _shorten_job(plan: ExperimentPlan, job: PlannedJob) -> PlannedJob | None:
    name = job.name + SHORT_SUFFIX
    if isinstance(job, RunJob):
        return RunJob(name, shorten_run(job.config))
    shorten = plan.experiment.shorten_row
    assert isinstance(job, RowJob)
    return shorten and dataclasses.replace(job, name=name, tables=shorten(job.tables))


def build_run_config(tables: Tables, seed: int) -> RunConfig:
    """The config of a training run; rates that are not given are those tuned for the encoding."""
    given = tables.get("training", {})
    try:
        config = RunConfig.from_dict({**tables, "training": {**given, "seed": seed}})
    except TypeError as error:  # a string where TOML should have a number, and so on
        raise ValueError(str(error)) from None
    training, model = config.training, config.model
    chosen = choose_learning_rates(model.encoding, model.width, optimizer=training.optimizer)
    changes: dict[str, Any] = {name: rate for name, rate in chosen.items() if name not in given}
    if "warmup" not in given:  # a short run must reach its rate
        changes["warmup"] = min(training.warmup, training.steps // 10)
    return dataclasses.replace(config, training=dataclasses.replace(training, **changes))


def list_configs(plan: ExperimentPlan) -> list[RunConfig]:
    """Configs of the training runs of all rows and seeds; [] if rows are no training runs.

    Those with a third of the steps come last, where rows are training runs themselves.
    """
    if plan.experiment.trains:
        return [job.config for job in list_jobs(plan) if isinstance(job, RunJob)]
    build = plan.experiment.build_config
    if build is None:
        return []
    return [build(row.tables, seed) for seed in range(plan.seeds) for row in plan.rows]


def name_configs(plan: ExperimentPlan) -> dict[str, RunConfig]:
    """The config of the training run of each row with the first seed, by the name of the row."""
    return {row.name: build_run_config(row.tables, seed=0) for row in plan.rows}


def check_jobs(plan: ExperimentPlan, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """Raise ValueError if a row cannot run, before any process starts; returns the corpus.

    configs: those of ``list_configs``.
    """
    for row in plan.rows:
        if plan.experiment.check_row is not None:
            plan.experiment.check_row(row.tables)
    sources = {}
    for config in configs:
        if config.training.seed == 0:
            key = (config.data, config.model.kind, config.training.length)
            if key not in sources:
                sources[key] = open_data_source(config)
            Model(config.model, vocab=sources[key].vocab, longest=config.longest)
    if sources:
        return dict(next(iter(sources.values())).about)
    data = plan.rows[0].tables.get("data", {})
    return {key: data[key] for key in ("title", "unit", "sha256") if key in data}


def read_rows(plan: ExperimentPlan, folder: Path) -> tuple[list[RowResults], list[str]]:
    """Results of all rows that have some, and the names of jobs that are not finished."""
    found: dict[str, RowMeasurement] = {}
    missing = []
    for job in list_jobs(plan):
        measured = _read_job(job, folder / job.name)
        if measured is None:
            missing.append(job.name)
        else:
            found[job.name] = measured
    rows = []
    for row in plan.rows:
        names = {seed: f"{row.folder_name}-seed{seed}" for seed in range(plan.seeds)}
        full = {seed: found[name] for seed, name in names.items() if name in found}
        thirds = {
            seed: found[name + SHORT_SUFFIX]
            for seed, name in names.items()
            if name + SHORT_SUFFIX in found
        }
        if full:
            rows.append(collect_results(row.name, full, thirds))
    return rows, missing


def _read_job(job: PlannedJob, folder: Path) -> RowMeasurement | None:
    if isinstance(job, RowJob):
        return job.read(folder)
    run = Run(folder)
    if not run.config_path.exists():
        return None
    run.verify()
    assert isinstance(job, RunJob)
    return measure_run(run) if run.load_config() == job.config else None
