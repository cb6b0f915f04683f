"""The plan of an experiment: its TOML file at one budget, as rows, seeds and jobs.

    question = "..."                 what it asks
    reference = "NAME"               every other row is compared with this one; or
    contrasts = [["A", "B"], ...]    these rows are compared, A minus B
    judged = ["loss@1", "loss@16"]   the measures that the sentence is about
    headline = [["A", "B"], ...]     the contrasts that it is about, else all
    notes = ["..."]                  what a reader should know
    [settings.TABLE]                 options of all rows
    [[rows]]                         name, and tables of options: model = {...}
    [budgets.quick]                  minutes, seeds, thirds, rows, and tables of options

Options of a row win over those of the budget, which win over the settings of all.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from whorl._support.words import quote, suggest_name
from whorl.lab.toml_tables import read_toml

from .definition import BudgetName, Experiment, Tables
from .registry import find_experiment, get_toml_path

__all__ = ["ExperimentPlan", "RowPlan"]

_TEXTS = ("question", "reference", "contrasts", "judged", "headline", "notes")
_KEYS = (*_TEXTS, "settings", "rows", "budgets")
_BUDGET_KEYS = ("minutes", "seeds", "thirds", "rows")


@dataclass(frozen=True)
class RowPlan:
    """A row: its name, and all its options in tables."""

    name: str
    tables: Tables

    @property
    def folder_name(self) -> str:
        """The name without what is awkward in names of folders.

        >>> RowPlan("rope + alibi, 25 %", {}).folder_name
        'rope-+-alibi-25'
        """
        return re.sub(r"[^\w.+]+", "-", self.name).strip("-")


@dataclass(frozen=True, kw_only=True)
class ExperimentPlan:
    """An experiment at one budget: what ``run_experiment`` runs.

    minutes: about how long it takes on two cores. thirds: whether each row is also run with a third
    of the steps. contrasts: names of rows that are compared, the first minus the second. headline:
    those that the sentence is about.
    """

    experiment: Experiment
    budget: BudgetName
    question: str
    rows: tuple[RowPlan, ...]
    contrasts: tuple[tuple[str, str], ...]
    judged: tuple[str, ...]
    headline: tuple[tuple[str, str], ...]
    minutes: float
    seeds: int = 1
    thirds: bool = True
    reference: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(
                f"seeds must be a whole number of at least 1; got {quote(self.seeds)}."
            )

    @property
    def name(self) -> str:
        return self.experiment.name

    @classmethod
    def from_budget(
        cls,
        name: str,
        budget: BudgetName = "quick",
        *,
        seeds: int | None = None,
        steps: int | None = None,
        files: Sequence[str] = (),
    ) -> "ExperimentPlan":
        """The plan of the experiment ``name``.

        Args:
            seeds: run each row with so many seeds instead of those of the budget.
            steps: train for so many steps instead of those of the budget.
            files: text to train on, or other data, instead of that of the experiment.

        >>> [row.name for row in ExperimentPlan.from_budget("layouts").rows]
        ['half', 'interleaved']
        """
        plan = cls.from_tables(find_experiment(name), read_toml(get_toml_path(name)), budget)
        if seeds is not None:
            plan = dataclasses.replace(plan, seeds=seeds)
        changes: Tables = {}
        if steps is not None:
            changes["training"] = {"steps": steps}
        if files:
            changes["data"] = _describe_files(plan.experiment, files)
        for table in changes:
            key = {"training": "steps", "data": "files"}[table]
            has = all(key in row.tables.get(table, {}) for row in plan.rows)
            if not has and not plan.experiment.trains:
                option = "data.files" if key == "files" else key
                raise ValueError(f"{option}: the experiment {quote(name)} has none; leave it out.")
        adapt = plan.experiment.adapt_row or _keep_tables
        rows = tuple(RowPlan(x.name, adapt(_merge(x.tables, changes))) for x in plan.rows)
        return dataclasses.replace(plan, rows=rows)

    def replace_tables(self, tables: Mapping[str, Tables]) -> "ExperimentPlan":
        """The same plan with other options of its rows, by name."""
        rows = tuple(RowPlan(x.name, tables.get(x.name, x.tables)) for x in self.rows)
        return dataclasses.replace(self, rows=rows)

    @classmethod
    def from_tables(
        cls, experiment: Experiment, tables: Mapping[str, Any], budget: str
    ) -> "ExperimentPlan":
        """The plan that a TOML file gives at ``budget``; ValueError says what is wrong with it."""
        where = f"{get_toml_path(experiment.name).name}:"
        for key in tables:
            if key not in _KEYS:
                raise ValueError(f"{where} unknown key {quote(key)}{suggest_name(key, _KEYS)}")
        needed = ("question", "judged", "rows", "budgets")
        if missing := [key for key in needed if key not in tables]:
            raise ValueError(f"{where} it needs {', '.join(missing)}.")
        if budget not in get_args(BudgetName) or budget not in tables["budgets"]:
            known = ", ".join(tables["budgets"])
            raise ValueError(f"{where} no budget {quote(budget)}; it has {known}.")
        chosen = dict(tables["budgets"][budget])
        options = {key: chosen.pop(key) for key in _BUDGET_KEYS if key in chosen}
        settings = _check_tables(tables.get("settings", {}), where)
        shared = _merge(settings, _check_tables(chosen, where))
        rows = _read_rows(tables["rows"], shared, options.pop("rows", None), where)
        names = [*(row.name for row in rows), *experiment.derived]
        every = [*(row["name"] for row in tables["rows"]), *experiment.derived]
        contrasts = _read_contrasts(tables, every, names, where)
        headline = _read_pairs(tables.get("headline", []), every, names, where)
        if "minutes" not in options:
            raise ValueError(f"{where} [budgets.{budget}] needs minutes, about how long it takes.")
        return cls(
            experiment=experiment,
            budget=budget,  # type: ignore[arg-type]
            question=tables["question"],
            rows=rows,
            contrasts=contrasts,
            headline=headline or contrasts,
            judged=tuple(tables["judged"]),
            reference=tables.get("reference"),
            notes=tuple(tables.get("notes", ())),
            **options,
        )


def _describe_files(experiment: Experiment, files: Sequence[str]) -> dict[str, Any]:
    """Options of the table [data] for files of the user."""
    if experiment.describe_files is None:
        return {"files": list(files)}
    return experiment.describe_files(files)


def _read_rows(
    found: Any, shared: Tables, chosen: Sequence[str] | None, where: str
) -> tuple[RowPlan, ...]:
    """All rows, or the chosen ones; each with the shared options and its own."""
    rows = []
    for row in found:
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
            raise ValueError(f"{where} each of [[rows]] needs a name; got {quote(row)}.")
        own = {key: value for key, value in row.items() if key != "name"}
        rows.append(RowPlan(row["name"], _merge(shared, _check_tables(own, where))))
    folders = [row.folder_name for row in rows]
    if len(set(folders)) < len(folders) or not all(folders):
        raise ValueError(f"{where} rows must have different names; got {quote(folders)}.")
    if chosen is None:
        return tuple(rows)
    for name in chosen:
        _check_row_name(name, [row.name for row in rows], where)
    return tuple(row for row in rows if row.name in chosen)


def _read_contrasts(
    tables: Mapping[str, Any], every: Sequence[str], names: Sequence[str], where: str
) -> tuple[tuple[str, str], ...]:
    """Pairs of rows to compare; those with a row that the budget leaves out are left out."""
    if ("reference" in tables) == ("contrasts" in tables):
        raise ValueError(f"{where} it needs reference or contrasts, one of the two.")
    if "reference" in tables:
        reference = _check_row_name(tables["reference"], every, where)
        pairs = [[name, reference] for name in every if name != reference]
    else:
        pairs = tables["contrasts"]
    return _read_pairs(pairs, every, names, where)


def _read_pairs(
    pairs: Any, every: Sequence[str], names: Sequence[str], where: str
) -> tuple[tuple[str, str], ...]:
    if any(not isinstance(one, list) or len(one) != 2 for one in pairs):
        raise ValueError(f"{where} contrasts must be pairs of rows such as ['a', 'b'].")
    known = [tuple(_check_row_name(name, every, where) for name in one) for one in pairs]
    return tuple((row, against) for row, against in known if {row, against} <= {*names})


def _check_row_name(name: Any, known: Sequence[str], where: str) -> str:
    if name not in known:
        raise ValueError(
            f"{where} no row {quote(name)}{suggest_name(name, known)} Rows: {', '.join(known)}."
        )
    return str(name)


def _check_tables(found: Any, where: str) -> Tables:
    """``found`` if it is a dictionary of tables."""
    if not isinstance(found, dict):
        raise ValueError(f"{where} settings must be tables of options; got {quote(found)}.")
    for name, value in found.items():
        if not isinstance(value, dict):
            raise ValueError(f"{where} {name} must be a table of options; got {quote(value)}.")
    return dict(found)


def _keep_tables(tables: Tables) -> Tables:
    return tables


def _merge(below: Tables, above: Tables) -> Tables:
    """Both in one; options of ``above`` win."""
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in {**below, **above}}
