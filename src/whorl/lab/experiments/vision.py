"""``vision``: image classifiers trained at one resolution and tested at others.

A row is an encoding of a small vision transformer (``whorl.lab.vision``): AxialRoPE with fixed and
with trained, mixed frequencies (Heo et al. 2024, https://arxiv.org/abs/2403.13298), learned
positions whose table is interpolated, sinusoidal positions of rows and columns, or none. Each is
trained on the digits of scikit-learn and on generated images (``whorl.lab.images``), in two
trainings of their own. Without scikit-learn only the generated ones are run.

    [tasks]    names: of the tasks
    [model]    encoding and shape, as in ``ModelConfig``
    [training] steps, batch and learning rates, as in ``TrainingConfig``
"""

import dataclasses
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from whorl._support.words import quote
from whorl.lab.config import ModelConfig, TrainingConfig
from whorl.lab.image_training import compute_accuracy, train_classifier
from whorl.lab.images import IMAGE_TASKS, PATCH, TRAINED_SIZE, open_image_task
from whorl.lab.integrity import compute_checksum
from whorl.lab.toml_tables import read_table
from whorl.lab.trainer import TrainingProgress
from whorl.lab.vision import VisionTransformer

from .definition import CurveLabels, Experiment, MeasureLabel, ResultTable, RowRequest, Tables
from .results import RowMeasurement, RowResults

__all__ = ["EXPERIMENT", "adapt_row", "build_classifier", "check_row", "run_row", "shorten_row"]

MULTIPLES = (1, 1.5, 2)
_SIZES = tuple(round(multiple * TRAINED_SIZE) for multiple in MULTIPLES)
_MISSING = "\u2013"


def run_row(request: RowRequest) -> RowMeasurement:
    """Accuracies of one encoding on every task and at every resolution, with one seed."""
    values: dict[str, float] = {}
    curves = {}
    facts: dict[str, float] = {}
    for name in request.tables["tasks"]["names"]:
        task = open_image_task(name, request.seed)
        model, training = build_classifier(request.tables, request.seed, task.classes)

        def show(moment: TrainingProgress, task: str = name) -> None:
            request.show(dataclasses.replace(moment, phase=f"{task}: {moment.phase}"))

        asked = {key: request.tables[key] for key in ("model", "training")}
        path = request.folder / f"{name}.safetensors"
        checksum = compute_checksum([name, request.seed, asked])
        curves[_name_curve(name)] = train_classifier(
            model, task, training, path, asked=checksum, show=show, force=request.force
        )
        values |= _measure_sizes(model, name, request.seed)
        facts[f"parameters of {name}"] = float(sum(x.numel() for x in model.parameters()))
    facts["parameters"] = max(facts.values())
    return RowMeasurement(values, curves=curves, facts=facts)


def build_classifier(
    tables: Tables, seed: int, classes: int
) -> tuple[VisionTransformer, TrainingConfig]:
    """The model of a row with random weights, and the settings of its training."""
    shape = read_table("model", ModelConfig, {**tables["model"], "kind": "encoder"})
    given = {**tables["training"], "length": (TRAINED_SIZE // PATCH) ** 2, "seed": seed}
    training = read_table("training", TrainingConfig, given)
    training = dataclasses.replace(training, warmup=min(training.warmup, training.steps // 10))
    model = VisionTransformer(shape, grid=TRAINED_SIZE // PATCH, classes=classes, patch=PATCH)
    model.reset_parameters(seed)
    return model, training


def check_row(tables: Tables) -> None:
    """Raise ValueError unless a row has tasks that are known, and a model that can be built."""
    names = tables.get("tasks", {}).get("names")
    if not isinstance(names, list) or not names or any(x not in IMAGE_TASKS for x in names):
        raise ValueError(
            f"vision: tasks.names must be a list of {', '.join(IMAGE_TASKS)}; got {quote(names)}."
        )
    try:
        build_classifier(tables, 0, 2)
    except TypeError as error:  # a string where TOML should have a number, and so on
        raise ValueError(str(error)) from None


def adapt_row(tables: Tables) -> Tables:
    """The same tables without the digits if scikit-learn is not installed."""
    if find_spec("sklearn") is not None:
        return tables
    names = [name for name in tables["tasks"]["names"] if name != "digits"]
    return {**tables, "tasks": {**tables["tasks"], "names": names}}


def shorten_row(tables: Tables) -> Tables:
    """The same row with a third of the steps."""
    training = tables["training"]
    return {**tables, "training": {**training, "steps": max(1, training["steps"] // 3)}}


def _measure_sizes(model: VisionTransformer, name: str, seed: int) -> dict[str, float]:
    """Accuracies at every resolution, with positions that are rescaled, and that count on."""
    task, found = open_image_task(name, seed), {}
    for multiple, size in zip(MULTIPLES, _SIZES, strict=True):
        batch = task.get_test(size)
        found[f"{name}@{multiple:g}"] = compute_accuracy(model, batch)
        if size == TRAINED_SIZE or model.encoding.name in ("learned", "nope"):
            continue  # rescaled and counted are the same, or there are no rows to count on
        found[f"{name} counted@{multiple:g}"] = compute_accuracy(model, batch, "index")
    return found


def list_tables(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """Accuracies with positions that count on, and what the tasks are."""
    known = [name for name in IMAGE_TASKS if any(row.get_values(f"{name}@1") for row in rows)]
    return [_build_counted(rows, known), _describe_tasks(known)]


def _build_counted(rows: Sequence[RowResults], names: Sequence[str]) -> ResultTable:
    columns = [
        (name, multiple, size)
        for name in names
        for multiple, size in zip(MULTIPLES, _SIZES, strict=True)
        if size != TRAINED_SIZE
    ]
    body = []
    for row in rows:
        cells = []
        for name, multiple, _ in columns:
            found = row.get_values(f"{name} counted@{multiple:g}").values()
            cells.append(f"{100 * fmean(found):.1f} %" if found else _MISSING)
        body.append((row.name, *cells))
    heads = ("", *(f"{name}, {size} x {size}" for name, _, size in columns))
    note = (
        "The same models, means over seeds. In the tables above, rows and columns of a larger grid"
        f" are spread over 0 to {TRAINED_SIZE // PATCH - 1}, as in training; here they count"
        " on. A learned table has no rows for that."
    )
    return ResultTable("Accuracy with positions that count on", heads, tuple(body), note)


def _describe_tasks(names: Sequence[str]) -> ResultTable:
    """What a guess gets, and how many images there are."""
    body = []
    for name in names:
        task = open_image_task(name, 0)
        labels = task.get_test(TRAINED_SIZE).labels
        most = float(labels.bincount().max()) / len(labels)
        cells = (str(task.classes), f"{100 * most:.1f} %", str(len(labels)))
        body.append((name, *cells, ", ".join(f"{size} x {size}" for size in _SIZES)))
    heads = ("task", "classes", "most frequent class", "test images", "resolutions")
    note = f"Trained at {TRAINED_SIZE} x {TRAINED_SIZE}; a patch has {PATCH} x {PATCH} pixels."
    if "digits" not in names:
        note += (
            " Digits were left out, because scikit-learn is not installed: pip install"
            " 'whorl[tsne]', and run the experiment again with --force."
        )
    return ResultTable("Tasks", heads, tuple(body), note)


def _name_curve(task: str) -> str:
    return f"{task} by step"


def _label_sizes(name: str) -> CurveLabels:
    return CurveLabels(
        f"Accuracy on {name} by resolution",
        "pixels on each side",
        "accuracy (share of right answers)",
        "positions rescaled to the trained range; bands: 95 % interval over seeds",
        accuracy=True,
        log=True,
        mark=(TRAINED_SIZE, f"trained at {TRAINED_SIZE}"),
    )


EXPERIMENT = Experiment(
    name="vision",
    run_row=run_row,
    check_row=check_row,
    adapt_row=adapt_row,
    shorten_row=shorten_row,
    measures=tuple(
        MeasureLabel(
            f"{name}{more}@{multiple:g}",
            f"accuracy on {name} at {size} x {size}{words}",
            x=size,
            tied=0.02,
            accuracy=True,
        )
        for name in IMAGE_TASKS
        for more, words in (("", ""), (" counted", " with positions that count on"))
        for multiple, size in zip(MULTIPLES, _SIZES, strict=True)
    ),
    quantities={name: _label_sizes(name) for name in IMAGE_TASKS},
    curves={
        _name_curve(name): CurveLabels(
            f"How fast they learn {name}",
            "step",
            "accuracy (share of right answers)",
            f"test images at {TRAINED_SIZE} x {TRAINED_SIZE}, mean over seeds",
            accuracy=True,
        )
        for name in IMAGE_TASKS
    },
    list_tables=list_tables,
)
