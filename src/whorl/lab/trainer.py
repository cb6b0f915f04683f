"""``train``: one run from its config to its results, in a folder, to be interrupted at any time.

A step depends on the config, its number and the state in the checkpoint, and on nothing else: so a
run that was stopped, by Ctrl-C or a crash, goes on with the numbers it would have had.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from whorl._support import memory

from .checkpoint import CheckpointInfo
from .config import RunConfig
from .data import DataSource, open_data_source
from .evaluate import add_scaling, evaluate
from .integrity import add_checksum, compute_checksum
from .model import Model
from .optimization import build_optimizer, group_by_part, take_step
from .runs import Run

__all__ = ["Interrupted", "TrainingProgress", "train", "use_threads"]

# At most so much work is lost by a crash.
_SECONDS_BETWEEN_CHECKPOINTS = 20.0


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run is: for progress bars. done and total count steps, or tokens of evaluation."""

    phase: str  # "training", "evaluation", "evaluation with yarn", ...
    done: int
    total: int
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    #: What people should know besides, such as that the environment has changed.
    note: str = ""


class Interrupted(Exception):  # noqa: N818  # no error: asked for
    """The run was asked to stop; its folder holds everything up to here."""


def train(
    config: RunConfig,
    folder: str | Path,
    *,
    scalings: tuple[str, ...] = (),
    progress: Callable[[TrainingProgress], None] | None = None,
    force: bool = False,
    command: str = "",
) -> Run:
    """Train and evaluate ``config`` in ``folder``, going on where an earlier call stopped.

    Args:
        scalings: put into the trained model one after another, for further evaluations.
        progress: called with a ``Moment`` after every step.
        force: delete a run of another config that the folder holds.
        command: what to note as the command that asked for it.

    Raises:
        Interrupted: after SIGINT or SIGTERM; the checkpoint is saved.
        ValueError: the folder holds another run, or the data do not suffice.
    """
    models = [add_scaling(config, name) for name in (None, *scalings)]  # bad names fail first
    source = open_data_source(config)
    model = Model(config.model, vocab=source.vocab, longest=config.longest)
    run, tell = Run(folder), progress or _show_nothing
    with run.held(), _watch_signals() as stop:
        resumed = run.prepare(config, source.about, force=force, command=command)
        names = (None, *scalings)
        if all(run.evaluation(name) is not None for name in names):
            run.take_saved_state()
            return run
        if resumed and (note := run.record_resume(command)):
            tell(TrainingProgress("resuming", 0, config.training.steps, note=note))
        at = _train(model, source, config, run, tell, stop)
        for name, shape in zip(names, models, strict=True):
            if run.evaluation(name) is None:
                other = Model(shape, vocab=source.vocab, longest=config.longest)
                other.load_state_dict(model.state_dict())
                found = _evaluate(other, source, config, run, name, tell, stop)
                run.write_evaluation(found, at)
    return run


def _train(
    model: Model,
    source: DataSource,
    config: RunConfig,
    run: Run,
    tell: Callable[[TrainingProgress], None],
    stop: threading.Event,
) -> CheckpointInfo:
    """Train ``model`` to the last step; returns the checkpoint that holds its weights."""
    training = config.training
    before = memory.reset_peak()
    model.reset_parameters(training.seed)
    optimizer = build_optimizer(model, training)
    at = CheckpointInfo(
        0, 0.0, config=compute_checksum(run.config_path.read_text(encoding="utf-8"))
    )
    if (saved := run.take_saved_state()) is not None:
        saved.load(model, optimizer)
        at = saved.at
    if at.step >= training.steps:
        return at
    reached, saved = at, None
    tokens = training.batch * training.length
    parts, chained = group_by_part(model), at.metrics
    last_saved = begun = time.monotonic()
    model.train()
    with run.open_metrics(at.step) as metrics:
        for step in range(at.step + 1, training.steps + 1):
            line = take_step(model, optimizer, source, training, step, parts)
            now = time.monotonic()
            seconds = at.seconds + now - begun
            speed = (step - at.step) * tokens / (now - begun)
            line |= {"seconds": round(seconds, 3), "memory_mb": _measure_growth(before)}
            line = add_checksum(line, chained)
            chained = line["checksum"]
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
            left = (training.steps - step) * tokens / speed
            tell(TrainingProgress("training", step, training.steps, line["loss"], speed, left))
            stopping = stop.is_set() or step == training.steps
            if stopping or now - last_saved > _SECONDS_BETWEEN_CHECKPOINTS:
                os.fsync(metrics.fileno())  # a checkpoint never knows steps that metrics lack
                reached = replace(at, step=step, seconds=seconds, metrics=chained)
                reached = _save_checkpoint(reached, run, model, optimizer)
                last_saved = time.monotonic()
            if stop.is_set():
                raise Interrupted
    return reached


def _evaluate(
    model: Model,
    source: DataSource,
    config: RunConfig,
    run: Run,
    scaling: str | None,
    tell: Callable[[TrainingProgress], None],
    stop: threading.Event,
) -> dict[str, Any]:
    phase = "evaluation" if scaling is None else f"evaluation with {scaling}"

    def show(done: int, total: int) -> None:
        tell(TrainingProgress(phase, done, total))
        if stop.is_set():  # nothing is kept of it: it takes seconds
            raise Interrupted

    found = evaluate(model, source, config, progress=show)
    lines = run.metrics()
    return found | {
        "scaling": scaling,
        "frequencies_loss": source.frequencies_loss,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "encoding_parameters": sum(
            weight.numel() for name, weight in model.named_parameters() if "encoding" in name
        ),
        "seconds": lines[-1]["seconds"],
        "memory_mb": max(line["memory_mb"] for line in lines),
    }


def _save_checkpoint(
    at: CheckpointInfo, run: Run, model: Model, optimizer: torch.optim.Optimizer
) -> CheckpointInfo:
    try:
        return at.save(run.checkpoint_path, model, optimizer)
    except OSError as error:
        kept = "the last checkpoint is whole" if run.checkpoint_path.exists() else "there was none"
        raise OSError(
            error.errno,
            f"the checkpoint of step {at.step} could not be written to {str(run.folder)!r}"
            f" ({error.strerror or error}); {kept}. Make room and run the same command to go on",
        ) from None


def _measure_growth(before: int) -> float:
    """By how much the process has grown at its largest."""
    return round((memory.read_peak() - before) / 2**20, 1)


@contextmanager
def _watch_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that no step is cut in two; twice stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """torch on ``count`` threads inside the block; None leaves it as it is."""
    if count is not None and count < 1:
        raise ValueError(f"--threads must be at least 1; got {count}.")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _show_nothing(moment: TrainingProgress) -> None:
    pass
