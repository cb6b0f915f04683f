"""``train``: trains and evaluates one run in a folder; it can be interrupted at any time.

A step depends only on the config, its number and the state in the checkpoint. So a run that was
stopped, by Ctrl-C or a crash, continues with the numbers that it would have had without the break.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from whorl._support import memory
from whorl._support.signals import watch_signals
from whorl._support.words import quote

from .architectures import build_model
from .checkpoint import CheckpointInfo
from .config import RunConfig, StartConfig
from .data import DataSource, open_data_source
from .evaluate import add_scaling, evaluate
from .history import list_trained_frequencies
from .integrity import add_checksum, compute_checksum
from .model import LanguageModel
from .optimization import (
    TrainingOptimizer,
    compute_validation_loss,
    group_by_part,
    list_validation_steps,
    take_step,
    validate_stage,
)
from .runs import Run
from .start import StartWeights, describe_start, match_weights, read_start

__all__ = ["Interrupted", "TrainingProgress", "train"]

# A crash loses at most this much work.
_SECONDS_BETWEEN_CHECKPOINTS = 20.0


@dataclass(frozen=True)
class TrainingProgress:
    """State of a run, for progress bars; done and total are steps, or tokens of evaluation."""

    phase: str  # "training", "evaluation", "evaluation with yarn", ...
    done: int
    total: int
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    #: A remark for the user, such as that the environment has changed.
    note: str = ""


class Interrupted(Exception):  # noqa: N818  # it is not an error
    """The run was interrupted by a signal; its checkpoint is saved."""


def train(
    config: RunConfig,
    folder: str | Path,
    *,
    scalings: tuple[str, ...] = (),
    progress: Callable[[TrainingProgress], None] | None = None,
    force: bool = False,
    command: str = "",
    start: str | Path | None = None,
) -> Run:
    """Train and evaluate ``config`` in ``folder``, or resume where an earlier call stopped.

    Args:
        start: trained weights to start from, instead of ``config.start.folder``: the folder of a
            run, or one that ``export`` wrote. ``read_start(folder).settings`` is its config.
        scalings: names of scalings; the trained model is also evaluated with each of them.
        progress: called with a ``TrainingProgress`` after every step.
        force: delete a run with another config that is in the folder.
        command: the command line, for environment.json.

    Raises:
        Interrupted: after SIGINT or SIGTERM, when the checkpoint is saved.
        ValueError: the folder holds another run, there is too little data, or the weights to start
            from have another shape.
    """
    config, weights = _open_start(config, folder, start)
    names = (None, *scalings)
    models = [add_scaling(config, name) for name in names]  # first: a wrong name fails at once
    source = open_data_source(config)
    model = build_model(config.model, vocab=source.vocab, longest=config.longest)
    match = None if weights is None else match_weights(weights, model, config)
    report = None if match is None else match.report
    run, show = Run(folder), progress or _show_nothing
    with run.lock(), watch_signals() as stop:
        resumed = run.prepare(config, source.about, force=force, command=command, start=report)
        if all(run.read_evaluation(name) is not None for name in names):
            run.take_checkpoint()
            return run
        note = run.record_resume(command) if resumed else report and describe_start(report)
        if note:
            phase = "resuming" if resumed else "starting"
            show(TrainingProgress(phase, 0, config.training.steps, note=note))
        model.reset_parameters(config.training.seed)
        if match is not None:
            match.copy()
        info = _train(model, source, config, run, show, stop)
        for name, shape in zip(names, models, strict=True):
            if run.read_evaluation(name) is None:
                other = build_model(shape, vocab=source.vocab, longest=config.longest)
                other.load_state_dict(model.state_dict())
                found = _evaluate(other, source, config, run, name, show, stop)
                run.write_evaluation(found, info)
    return run


def _open_start(
    config: RunConfig, folder: str | Path, start: str | Path | None
) -> tuple[RunConfig, StartWeights | None]:
    """The weights to start from, if any, and the config with their checksum."""
    if start is not None:
        config = replace(config, start=StartConfig(folder=str(start)))
    where = config.start.folder
    if where is None:
        return config, None
    if Path(where).resolve() == Path(folder).resolve():
        raise ValueError(
            f"start.folder and the folder of the run must differ; got {quote(where)} for both."
        )
    weights = read_start(where)
    return weights.record(config), weights


def _train(
    model: LanguageModel,
    source: DataSource,
    config: RunConfig,
    run: Run,
    show: Callable[[TrainingProgress], None],
    stop: threading.Event,
) -> CheckpointInfo:
    """Train ``model`` to the last step; returns what the checkpoint of its weights says."""
    training = config.training
    before = memory.reset_peak()
    optimizer = TrainingOptimizer(model, training)
    start = CheckpointInfo(
        0, 0.0, config=compute_checksum(run.config_path.read_text(encoding="utf-8"))
    )
    if (saved := run.take_checkpoint()) is not None:
        saved.load(model, optimizer)
        start = saved.info
    if start.step >= training.steps:
        return start
    reached, saved = start, None
    starting = list_trained_frequencies(model)
    before_start, total = (training.count_tokens(n) for n in (start.step, training.steps))
    parts, chained = group_by_part(model), start.metrics
    validated = set(list_validation_steps(training.steps))
    last_saved = began = time.monotonic()
    model.train()
    with run.open_metrics(start.step) as metrics:
        for step in range(start.step + 1, training.steps + 1):
            line = take_step(model, optimizer, source, training, step, parts)
            if step == 1 and starting:
                line["starting_frequencies"] = starting
            if step in validated:
                line["validation_loss"] = compute_validation_loss(model, source)
                if starting:
                    line["frequencies"] = list_trained_frequencies(model)
            if training.is_stage_end(step):
                number, stage = training.find_stage(step)
                values = validate_stage(model, source, stage.length)
                line["stage"] = {"stage": number + 1, **asdict(stage), **values}
            now = time.monotonic()
            seconds = start.seconds + now - began
            tokens = training.count_tokens(step)
            speed = (tokens - before_start) / (now - began)
            line |= {"seconds": round(seconds, 3), "memory_mb": _measure_growth(before)}
            line = add_checksum(line, chained)
            chained = line["checksum"]
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
            left = (total - tokens) / speed
            show(TrainingProgress("training", step, training.steps, line["loss"], speed, left))
            stopping = stop.is_set() or step == training.steps
            if stopping or now - last_saved > _SECONDS_BETWEEN_CHECKPOINTS:
                os.fsync(metrics.fileno())  # before the checkpoint, which must not be ahead
                reached = replace(start, step=step, seconds=seconds, metrics=chained)
                reached = _save_checkpoint(reached, run, model, optimizer)
                last_saved = time.monotonic()
            if stop.is_set():
                raise Interrupted
    return reached


def _evaluate(
    model: LanguageModel,
    source: DataSource,
    config: RunConfig,
    run: Run,
    scaling: str | None,
    show: Callable[[TrainingProgress], None],
    stop: threading.Event,
) -> dict[str, Any]:
    phase = "evaluation" if scaling is None else f"evaluation with {scaling}"

    def show_evaluation(done: int, total: int) -> None:
        show(TrainingProgress(phase, done, total))
        if stop.is_set():  # an evaluation takes seconds and is not saved in part
            raise Interrupted

    found = evaluate(model, source, config, progress=show_evaluation)
    lines = run.read_metrics()
    stages = [line["stage"] for line in lines if "stage" in line] if scaling is None else []
    return found | {
        "scaling": scaling,
        "frequencies_loss": source.unigram_loss,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "encoding_parameters": sum(
            weight.numel() for name, weight in model.named_parameters() if "encoding" in name
        ),
        "seconds": lines[-1]["seconds"],
        "memory_mb": max(line["memory_mb"] for line in lines),
        **({"stages": stages} if stages else {}),
    }


def _save_checkpoint(
    info: CheckpointInfo, run: Run, model: LanguageModel, optimizer: TrainingOptimizer
) -> CheckpointInfo:
    try:
        return info.save(run.checkpoint_path, model, optimizer)
    except OSError as error:
        whole = run.checkpoint_path.exists()
        last = "the last checkpoint is complete" if whole else "there is no earlier one"
        raise OSError(
            error.errno,
            f"the checkpoint of step {info.step} could not be written to {str(run.folder)!r}"
            f" ({error.strerror or error}); {last}. Free some space and train again to resume",
        ) from None


def _measure_growth(before: int) -> float:
    """Megabytes by which the peak memory of the process exceeds ``before``."""
    return round((memory.read_peak() - before) / 2**20, 1)


def _show_nothing(moment: TrainingProgress) -> None:
    pass
