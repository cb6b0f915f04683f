"""The comparison of some runs as one document of plain values: rows, settings, claims.

Tables, charts and the report are made from this document only; ``comparison.json`` contains it.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from whorl._support.words import quote
from whorl.lab import files
from whorl.lab.config import RunConfig
from whorl.lab.encodings import format_title
from whorl.lab.integrity import read_checked
from whorl.lab.runs import Run

from .curves import LearningCurve, average_curves, compute_last_tenth
from .plan import BUDGETS, SHORT_SUFFIX, shorten_run
from .statistics import Estimate, estimate
from .thresholds import CLAIM_NOTE, FLAT

__all__ = ["FORMAT", "EncodingResults", "build_comparison", "find_runs", "load_comparison"]

FORMAT = 2
# Entries of the environment that must be equal for numbers to be comparable.
_COMPARED = ("threads", "torch", "whorl")
# Learning rates, which differ from encoding to encoding.
_RATES = ("learning_rate", "encoding_learning_rate", "embedding_learning_rate")
# Entries of environment.json that do not describe the environment.
_RUN_KEYS = {"format", "corpus", "config", "resumes", "checksum"}


@dataclass(frozen=True)
class EncodingResults:
    """Results of one encoding in all seeds, perhaps with a scaling in the evaluation.

    third: the same with a third of the steps, if it was trained.
    """

    name: str
    encoding: str
    scaling: str | None
    rates: dict[str, float]  # by the option of TrainingConfig
    curves: dict[int, LearningCurve]  # by seed
    evaluations: dict[int, dict[str, Any]]  # by seed
    third: "EncodingResults | None" = None

    @property
    def trained_as(self) -> str:
        """Name of the encoding that was trained, which is this one without its scaling."""
        return self.name if self.scaling is None else self.name.replace(f"+{self.scaling}", "", 1)

    @property
    def last_tenth(self) -> float | None:
        """Share of the validation loss that the last tenth of the steps took away."""
        if self.third is None:
            return None
        both = [
            (self.third.curves[n], self.curves[n]) for n in self.curves if n in self.third.curves
        ]
        return compute_last_tenth(both)

    def get_by_seed(self, length: int, measure: str) -> dict[int, float]:
        """Loss or accuracy at ``length`` by seed; NaN if it is not finite."""
        values = {
            seed: found["by_length"][str(length)][measure]
            for seed, found in self.evaluations.items()
        }
        return {seed: math.nan if value is None else value for seed, value in values.items()}


def find_runs(folder: Path) -> list[Run]:
    """All runs below ``folder``, in the order in which ``compare`` trains them."""
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is not a folder; choose one that whorl compare wrote.")
    found = [Run(path.parent) for path in sorted(folder.glob("*/config.toml"))]
    if not found:
        raise ValueError(
            f"{str(folder)!r} contains no runs; choose a folder that whorl compare wrote."
        )
    order = list(BUDGETS["full"]().encodings)

    def rank(run: Run) -> tuple[int, int, str]:
        config = run.load_config()
        spec = format_title(config.model.encoding)
        known = order.index(spec) if spec in order else len(order)
        return config.training.seed, known, run.folder.name

    return sorted(found, key=lambda run: (_is_short(run), *rank(run)))


def _is_short(run: Run) -> bool:
    """Whether a run is the one with a third of the steps."""
    return run.folder.name.endswith(SHORT_SUFFIX)


def load_comparison(path: Path) -> dict[str, Any]:
    """The comparison in a file comparison.json."""
    found: Any = files.read_json(path)
    number = found.get("format") if isinstance(found, dict) else None
    if type(number) is int and number != FORMAT:
        raise ValueError(
            f"{str(path)!r} is a comparison of format {number}, and this version of whorl reads"
            f" format {FORMAT}; compare again."
        )
    rows = found.get("rows") if number == FORMAT else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{str(path)!r} is not a comparison of this version of whorl.")
    return dict(found)


def build_comparison(
    runs: Sequence[Run], *, command: str = "", speed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The comparison of ``runs``, which may differ in encoding, learning rates and seed only.

    Runs with a third of the steps are no rows; they show what has settled.

    speed: the result of ``measure_speed`` or ``read_speed``. Without it no row has a speed, because
    the runs shared the machine while they were trained.
    """
    from .claims import check_claims

    for run in runs:
        run.verify()
    configs = [run.load_config() for run in runs]
    environments = [read_checked(run.environment_path) for run in runs]
    _check_alike(runs, configs, environments)
    entries, unfinished = _group_runs(runs, configs)
    if not entries:
        raise ValueError("none of the runs is finished; compare again to continue them.")
    config = next(one for run, one in zip(runs, configs, strict=True) if not _is_short(run))
    corpus = environments[0]["corpus"]
    environment = {key: value for key, value in environments[0].items() if key not in _RUN_KEYS}
    measure = "loss" if config.data.task == "text" else "accuracy"
    environment["command"] = command or environment["command"]
    windows = len(_get_first_evaluation(entries)["by_length"][str(config.longest)]["windows"])
    seeds = sorted({seed for entry in entries for seed in entry.evaluations})
    return {
        "format": FORMAT,
        "settings": {
            "task": config.data.task,
            "measure": measure,
            "length": config.training.length,
            "lengths": config.lengths,
            "steps": config.training.steps,
            "batch": config.training.batch,
            "precision": config.training.precision,
            "seeds": seeds,
            "windows": windows,
            "factor": config.evaluation.factor,
            "frequencies_loss": _get_first_evaluation(entries)["frequencies_loss"],
            **{
                name: getattr(config.model, name)
                for name in ("kind", "attention", "layers", "width", "heads", "qk_norm")
            },
        },
        "corpus": corpus,
        "environment": environment,
        "rows": [
            _build_row(entry, config, measure, speed)
            | _compare_with_reference(entry, entries, config, measure)
            for entry in entries
        ],
        "claims": check_claims(entries, config) if measure == "loss" else [],
        "unfinished": unfinished,
        "speed": speed and {key: speed[key] for key in ("rounds", "steps", "date")},
        "notes": [
            *_list_notes(seeds, config, windows, thirds=any(one.third for one in entries)),
            _describe_speed(speed),
            *(
                f"{run.folder.name} {text}."
                for run in runs
                for text in run.describe_environment_changes()
            ),
        ],
    }


def _check_alike(
    runs: Sequence[Run], configs: Sequence[RunConfig], environments: Sequence[dict[str, Any]]
) -> None:
    def common(config: RunConfig) -> RunConfig:
        model = dataclasses.replace(config.model, encoding="nope")
        same: dict[str, Any] = {"seed": 0, **dict.fromkeys(_RATES, 1.0)}
        training = dataclasses.replace(config.training, **same)
        return dataclasses.replace(config, model=model, training=training)

    full = [one for run, one in zip(runs, configs, strict=True) if not _is_short(run)]
    if not full:
        raise ValueError("none of the runs is finished; compare again to continue them.")
    expected = {False: common(full[0]), True: common(shorten_run(full[0]))}

    def where(environment: dict[str, Any]) -> tuple[Any, ...]:
        return (
            environment["corpus"].get("sha256"),
            *(environment[name] for name in _COMPARED),
        )

    for run, config, environment in zip(runs, configs, environments, strict=True):
        alike = common(config) == expected[_is_short(run)]
        if not alike or where(environment) != where(environments[0]):
            what = "more than encoding, learning rates and seed"
            what = "text, threads or versions" if alike else what
            raise ValueError(
                f"{quote(run.folder.name)} and {quote(runs[0].folder.name)} differ in {what}, so"
                " they cannot be compared; move one of them to another folder."
            )


def _group_runs(
    runs: Sequence[Run], configs: Sequence[RunConfig]
) -> tuple[list[EncodingResults], list[dict[str, str]]]:
    """Rows of the finished runs, and those that are not finished."""
    groups: dict[tuple[str, tuple[float, ...]], dict[int, Run]] = {}
    short: dict[tuple[str, tuple[float, ...]], dict[int, Run]] = {}
    rates: dict[str, set[tuple[float, ...]]] = {}
    unfinished = []
    for run, config in zip(runs, configs, strict=True):
        if run.read_evaluation() is None:
            unfinished.append({"name": run.folder.name, "reason": "not finished"})
            continue
        name = format_title(config.model.encoding)
        found = tuple(getattr(config.training, rate) for rate in _RATES)
        rates.setdefault(name, set()).add(found)
        group = (short if _is_short(run) else groups).setdefault((name, found), {})
        group[config.training.seed] = run
    entries = []
    for (encoding, used), group in groups.items():
        columns = enumerate(zip(*rates[encoding], strict=True))
        differ = [n for n, column in columns if len({*column}) > 1]
        swept = f" at {' / '.join(f'{used[n]:g}' for n in differ)}" if differ else ""
        named = dict(zip(_RATES, used, strict=True))
        thirds = {
            one.scaling: one
            for one in _read_results(encoding, swept, named, short.get((encoding, used), {}))
        }
        for entry in _read_results(encoding, swept, named, group):
            entries.append(dataclasses.replace(entry, third=thirds.get(entry.scaling)))
    return entries, unfinished


def _read_results(
    encoding: str, swept: str, rates: dict[str, float], group: Mapping[int, Run]
) -> list[EncodingResults]:
    """Results of the runs of an encoding by seed, without a scaling and with each of them."""
    runs = dict(sorted(group.items()))
    curves = {seed: LearningCurve.from_metrics(run.read_metrics()) for seed, run in runs.items()}
    entries = []
    for scaling in (None, *_list_scalings(runs.values())) if runs else ():
        name = encoding if scaling is None else f"{encoding}+{scaling}"
        results = {seed: run.read_evaluation(scaling) for seed, run in runs.items()}
        have = {seed: one for seed, one in results.items() if one is not None}
        mine = {seed: curves[seed] for seed in have}
        entries.append(EncodingResults(name + swept, encoding, scaling, rates, mine, have))
    return entries


def _get_first_evaluation(entries: Sequence[EncodingResults]) -> dict[str, Any]:
    return next(iter(entries[0].evaluations.values()))


def _list_scalings(runs: Iterable[Run]) -> list[str]:
    names: dict[str, None] = {}
    for run in runs:
        for path in sorted(run.folder.glob("evaluation-*.json")):
            names[path.stem.removeprefix("evaluation-")] = None
    return list(names)


def _build_row(
    entry: EncodingResults, config: RunConfig, measure: str, speed: Mapping[str, Any] | None
) -> dict[str, Any]:
    found = list(entry.evaluations.values())
    first = found[0]
    seconds = fmean(one["seconds"] for one in found)
    speeds = speed["tokens_per_second"] if speed else {}
    trained = entry.scaling is None
    row: dict[str, Any] = {
        "name": entry.name,
        "encoding": entry.encoding,
        "scaling": entry.scaling,
        "trained_as": entry.trained_as,
        **entry.rates,
        "parameters": first["parameters"],
        "encoding_parameters": first["encoding_parameters"],
        "seconds": seconds if trained else None,
        "tokens_per_second": speeds.get(entry.encoding) if trained else None,
        "memory_mb": fmean(one["memory_mb"] for one in found) if trained else None,
        "last_tenth": entry.last_tenth,
        "seeds": list(entry.evaluations),  # in the order of the values below
        "by_length": {
            str(length): _summarize_length(entry, length, measure) for length in config.lengths
        },
        "third": entry.third
        and {
            str(length): _summarize_length(entry.third, length, measure)["mean"]
            for length in config.lengths
        },
        "third_seeds": entry.third
        and {
            str(length): list(entry.third.get_by_seed(length, measure).values())
            for length in config.lengths
        },
    }
    profiles = [one["by_position"] for one in found]
    if all(profiles):
        row["by_position"] = {
            **{key: profiles[0][key] for key in ("position", "start", "end")},
            "loss": [fmean(column) for column in zip(*(p["loss"] for p in profiles), strict=True)],
        }
    if trained:
        row["curve"] = average_curves(list(entry.curves.values()))
    return row


def _summarize_length(entry: EncodingResults, length: int, measure: str) -> dict[str, Any]:
    values = list(entry.get_by_seed(length, measure).values())
    found: Estimate = estimate(values)
    both = {name: _average_measure(entry, length, name) for name in ("loss", "accuracy")}
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": values, **both}


def _average_measure(entry: EncodingResults, length: int, measure: str) -> float:
    return estimate(list(entry.get_by_seed(length, measure).values())).mean


def _compare_with_reference(
    entry: EncodingResults, entries: Sequence[EncodingResults], config: RunConfig, measure: str
) -> dict[str, Any]:
    """Differences to RoPE, or to the first row, paired by seed."""
    reference = next((one for one in entries if one.name == "rope"), entries[0])
    seeds = sorted(entry.evaluations.keys() & reference.evaluations.keys())
    if len(seeds) < 2 or entry is reference:
        return {}
    found = {}
    for length in config.lengths:
        ours, theirs = (one.get_by_seed(length, measure) for one in (entry, reference))
        pair = estimate([ours[seed] - theirs[seed] for seed in seeds])
        found[str(length)] = {"mean": pair.mean, "low": pair.low, "high": pair.high}
    return {"against": {"name": reference.name, "by_length": found}}


def _describe_speed(speed: Mapping[str, Any] | None) -> str:
    if speed is None:
        return "Training speed was not measured."
    return (
        f"tokens/s: the median of {speed['rounds'] * speed['steps']} training steps on one thread,"
        f" in {speed['rounds']} rounds over all encodings, while no run was active; measured once,"
        f" on {speed['date']} (speed.json)." + _describe_missing(speed.get("missing", []))
    )


def _describe_missing(names: Sequence[str]) -> str:
    if not names:
        return ""
    return (
        f" It was not measured for {', '.join(names)}; whorl compare with these encodings measures"
        " all of them together."
    )


def _list_notes(
    seeds: Sequence[int], config: RunConfig, windows: int, *, thirds: bool
) -> list[str]:
    notes = [
        "Every length is evaluated on the same last"
        f" {config.lengths[0]} tokens of {windows} held-out windows, with more"
        " or less text before them."
        if config.data.task == "text"
        else "Every length has its own examples, the same for every encoding."
    ]
    if thirds:
        notes.append(
            "Every run was repeated with a third of the steps"
            f" ({shorten_run(config).training.steps}), to see what is still changing."
        )
        notes.append(
            f"{CLAIM_NOTE}: one about losses is judged only if it would survive the same change"
            " once more, in all rows together and, unless their curves are flat (less than"
            f" {100 * FLAT:g} % in the last tenth of the steps), in any one row alone. Otherwise it"
            " is 'not yet', or 'not decidable' where it would survive but for the seeds."
        )
    if config.training.precision == "bfloat16":
        notes.append("Trained in bfloat16, evaluated in float32.")
    if len(seeds) < 3:
        notes.append(
            f"{'One seed' if len(seeds) == 1 else 'Two seeds'}: another one could reverse small"
            " differences."
        )
        notes.append(
            f"{CLAIM_NOTE}: intervals are over windows of text; with three seeds or more they are"
            " over seeds."
        )
    else:
        notes.append(
            f"{len(seeds)} seeds: 95 % intervals by Student's t over seeds, differences paired by"
            " seed."
        )
    return notes
