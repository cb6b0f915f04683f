"""``migration``: a trained model taken to another position encoding, all other weights kept.

The source model is trained with learned or sinusoidal positions, once for each seed, in the folder
``sources`` of the experiment. A row takes its weights to RoPE (Su et al. 2021,
https://arxiv.org/abs/2104.09864) or ALiBi (Press et al. 2021, https://arxiv.org/abs/2108.12409) as
``whorl train --from`` does, and trains all of them. Neither encoding has parameters: a row that
freezes what it kept has nothing to train.

    [source]    encoding: that of the source model; without it a row is trained from scratch
                steps: of the source model; frozen: whether what was kept stays as it is
"""

import dataclasses
import time
from collections.abc import Iterator

from whorl._support.locks import hold_lock
from whorl._support.words import quote
from whorl.lab._checks import check_count
from whorl.lab.architectures import build_model
from whorl.lab.compare.curves import LearningCurve
from whorl.lab.config import RunConfig
from whorl.lab.data import DataSource, open_data_source
from whorl.lab.encodings import build_encoding, format_title
from whorl.lab.evaluate import evaluate
from whorl.lab.model import LanguageModel
from whorl.lab.optimization import compute_validation_loss
from whorl.lab.runs import Run
from whorl.lab.start import match_weights, read_start
from whorl.lab.trainer import TrainingProgress, train

from .definition import Experiment, LineStyle, MeasureLabel, RowRequest, Tables
from .jobs import build_run_config
from .migration_tables import RECOVERY, RUN_FOLDER, list_tables
from .plan import RowPlan
from .results import VALIDATION, RowMeasurement, measure_lengths, measure_run

__all__ = ["EXPERIMENT", "build_config", "build_source_config", "check_row", "run_row"]

_OPTIONS = ("encoding", "steps", "frozen")
_RATES = ("learning_rate", "encoding_learning_rate", "embedding_learning_rate")
_SECONDS_BETWEEN_TRIES = 0.5


def run_row(request: RowRequest) -> RowMeasurement:
    """Losses of a row with one seed; the curve begins with the loss before the first step."""
    config = build_config(request.tables, request.seed)
    source = None
    if "encoding" in request.tables["source"]:
        source = _train_source(request)
    data = open_data_source(config)
    model = build_model(config.model, vocab=data.vocab, longest=config.longest)
    model.reset_parameters(request.seed)
    frozen = bool(request.tables["source"].get("frozen"))
    facts = _copy_weights(model, config, source, frozen)
    first = compute_validation_loss(model, data)
    if frozen:
        measured = _measure_frozen(model, data, config, first)
    else:
        run = train(
            config,
            request.folder / RUN_FOLDER,
            progress=request.show,
            force=request.force,
            command=request.command,
            start=None if source is None else source.folder,
        )
        found = measure_run(run)
        assert found is not None
        measured = _add_first_loss(found, first)
    measured = dataclasses.replace(measured, facts={**measured.facts, **facts})
    return measured if source is None else _add_recovery(measured, source)


def build_config(tables: Tables, seed: int) -> RunConfig:
    """The config of the run that follows the change of encoding."""
    return build_run_config({key: one for key, one in tables.items() if key != "source"}, seed)


def build_source_config(tables: Tables, seed: int) -> RunConfig:
    """The config of the source model, with the learning rates tuned for its encoding."""
    source = tables["source"]
    own = {key: x for key, x in tables["training"].items() if key not in (*_RATES, "warmup")}
    changes = {
        "model": {**tables["model"], "encoding": source["encoding"]},
        "training": {**own, "steps": source["steps"]},
    }
    return build_config({**tables, **changes}, seed)


def check_row(tables: Tables) -> None:
    """Raise ValueError if the options of the source model are wrong, before it is trained."""
    source = tables.get("source", {})
    if strange := [name for name in source if name not in _OPTIONS]:
        raise ValueError(
            f"migration: [source] has the options {', '.join(_OPTIONS)}; got {quote(strange[0])}."
        )
    check_count("source.steps", source.get("steps"))
    if "encoding" in source:
        config = build_source_config(tables, 0)
        build_encoding(source["encoding"], config.model, config.longest)
    elif source.get("frozen"):
        raise ValueError(
            "migration: source.frozen needs source.encoding, the encoding of the model whose"
            " weights are frozen; add it, or leave frozen out."
        )


def shorten_row(tables: Tables) -> Tables:
    """The same row with a third of the steps after the change; the source model stays."""
    training = tables["training"]
    return {**tables, "training": {**training, "steps": max(1, training["steps"] // 3)}}


def _train_source(request: RowRequest) -> Run:
    """The source model of a row; rows that need it at the same time wait for the first one.

    A finished source model is not trained again.
    """
    config = build_source_config(request.tables, request.seed)
    name = RowPlan(f"{format_title(config.model.encoding)} seed{request.seed}", {}).folder_name
    folder = request.folder.parent / "sources" / name
    folder.parent.mkdir(parents=True, exist_ok=True)

    def show(moment: TrainingProgress) -> None:
        request.show(dataclasses.replace(moment, phase=f"source: {moment.phase}"))

    while True:
        with hold_lock(folder.parent / f".{name}.lock") as held:
            if held:
                return train(
                    config, folder, progress=show, force=request.force, command=request.command
                )
        request.show(TrainingProgress("source: waiting", 0, config.training.steps))
        time.sleep(_SECONDS_BETWEEN_TRIES)


def _copy_weights(
    model: LanguageModel, config: RunConfig, source: Run | None, frozen: bool
) -> dict[str, float]:
    """Give ``model`` the weights of the source; returns numbers of parameters by what they are."""
    facts: dict[str, float] = {}
    if source is not None:
        match = match_weights(read_start(source.folder), model, config)
        match.copy()
        for key in ("kept", "dropped", "new"):
            facts[key] = float(sum(one["parameters"] for one in match.report[key]))
        for weight, _ in match.pairs if frozen else ():
            weight.requires_grad_(False)
    trainable = sum(one.numel() for one in model.parameters() if one.requires_grad)
    if frozen and trainable:
        raise ValueError(
            f"migration: source.frozen leaves {trainable:,} parameters of"
            f" {quote(format_title(config.model.encoding))} to be trained, and this experiment"
            " trains all weights or none; leave frozen out."
        )
    return {**facts, "trainable": float(trainable)}


def _measure_frozen(
    model: LanguageModel, data: DataSource, config: RunConfig, loss: float
) -> RowMeasurement:
    """Losses of a model that nothing was trained of: those right after the change."""
    found = measure_lengths(evaluate(model, data, config), config)
    parameters = sum(weight.numel() for weight in model.parameters())
    facts = {"parameters": float(parameters), "frequencies_loss": data.unigram_loss}
    curve = {"x": [0.0, float(config.training.steps)], "y": [loss, loss]}
    return dataclasses.replace(found, curves={VALIDATION: curve}, facts=facts)


def _add_first_loss(measured: RowMeasurement, loss: float) -> RowMeasurement:
    """The same numbers with the loss before the first step in the learning curve."""
    curve = measured.curves[VALIDATION]
    whole = {"x": [0, *curve["x"]], "y": [loss, *curve["y"]]}
    return dataclasses.replace(measured, curves={**measured.curves, VALIDATION: whole})


def _add_recovery(measured: RowMeasurement, source: Run) -> RowMeasurement:
    """The same numbers with the loss of the source, and the step at which it is reached again."""
    level = LearningCurve.from_metrics(source.read_metrics()).last
    curve = measured.curves[VALIDATION]
    step = LearningCurve(tuple(map(int, curve["x"])), tuple(curve["y"])).find_step(level)
    values = dict(measured.values) if step is None else {**measured.values, RECOVERY: step}
    facts = {**measured.facts, "source_loss": level}
    return dataclasses.replace(measured, values=values, facts=facts)


def _list_styles() -> Iterator[tuple[str, LineStyle]]:
    """A colour for each encoding that rows end with, a dash for each that they come from."""
    for dash, source in enumerate(("learned", "sinusoidal"), start=1):
        yield source, LineStyle(f"{source} positions", dash)
        for target in ("rope", "alibi"):
            yield f"{target} from scratch", LineStyle(target)
            yield f"{source} -> {target}", LineStyle(target, dash)
            yield f"{source} -> {target}, frozen", LineStyle(f"{target}, frozen", dash)


EXPERIMENT = Experiment(
    name="migration",
    run_row=run_row,
    check_row=check_row,
    build_config=build_config,
    shorten_row=shorten_row,
    measures=(MeasureLabel(RECOVERY, "number of steps until the loss of the source is reached"),),
    styles=dict(_list_styles()),
    list_tables=list_tables,
)
