"""The steps of a training, with its metrics and checkpoints, in one process or in several.

Several processes take the same steps. Only the first writes; the others read the checkpoint that
it wrote in an earlier call.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from whorl._support import memory
from whorl.processes import CollectedState, LostProcess, ParallelModel, ProcessGroup, is_lost

from .checkpoint import CheckpointInfo
from .config import TrainingConfig
from .data import DataSource
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

__all__ = ["Interrupted", "TrainingLoop", "TrainingProgress"]

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


class TrainingLoop:
    """The training of a model, from the checkpoint in the folder of its run to the last step.

    shard, passes: as for ``ParallelModel``.
    """

    def __init__(
        self,
        model: LanguageModel,
        source: DataSource,
        training: TrainingConfig,
        run: Run,
        processes: ProcessGroup,
        *,
        shard: bool = False,
        passes: int = 1,
    ) -> None:
        self._before = memory.reset_peak()
        self._source, self._training, self._run = source, training, run
        self._processes = processes
        config = compute_checksum(run.config_path.read_text(encoding="utf-8"))
        self._info = self._start = self._saved = CheckpointInfo(0, 0.0, config=config)
        # The first process has read it already, when it prepared the folder.
        saved = run.take_checkpoint() if processes.is_main else run.verify()
        if saved is not None:
            saved.load_weights(model)
            self._info = self._start = self._saved = saved.info
        self._parallel = ParallelModel(processes, model, model.loss, shard=shard, passes=passes)
        self.model = model
        self._optimizer = TrainingOptimizer(model, training)
        if saved is not None:
            saved.load_optimizer(model, self._optimizer)
        self._validated = set(list_validation_steps(training.steps))
        self._parts = group_by_part(model)
        self._starting = self._list_frequencies()
        processes.wait()  # until all have read the checkpoint, which the first one replaces

    def train(
        self, show: Callable[[TrainingProgress], None], stop: threading.Event
    ) -> CheckpointInfo:
        """Train to the last step; returns what the checkpoint of its weights says.

        Raises:
            Interrupted: ``stop`` was set in any of the processes; the checkpoint is saved.
            LostProcess: another process has ended; the checkpoint is saved if weights are whole.
        """
        steps, main = self._training.steps, self._processes.is_main
        if self._start.step >= steps:
            return self._start
        self.model.train()
        self._began = last_saved = time.monotonic()
        with _open_metrics(self._run, self._start.step) if main else nullcontext() as metrics:
            try:
                for step in range(self._start.step + 1, steps + 1):
                    line = self._take_step(step)
                    if metrics is not None:
                        self._write_line(line, metrics, show)
                    stopping = self._processes.agree(stop.is_set())
                    due = time.monotonic() - last_saved > _SECONDS_BETWEEN_CHECKPOINTS
                    due = due or stopping or step == steps
                    if self._processes.agree(due) if self._parallel.sharded else due:
                        self._save(metrics)
                        last_saved = time.monotonic()
                    if stopping:
                        raise Interrupted
            except RuntimeError as error:
                if self._processes.world == 1 or not is_lost(error):
                    raise
                raise self._handle_lost_process(error, metrics) from None
        return self._info

    def collect_weights(self) -> CollectedState:
        """The whole weights, in the first process; all processes must call it."""
        return CollectedState(self._processes, self.model)

    def _take_step(self, step: int) -> dict[str, Any]:
        """The line of metrics of a step, without what is measured on the clock."""
        training, model, source = self._training, self.model, self._source
        line = take_step(self._parallel, self._optimizer, source, training, step, self._parts)
        if step == 1 and self._starting:
            line["starting_frequencies"] = self._starting
        if step in self._validated:
            line["validation_loss"] = compute_validation_loss(model, source)
            if self._starting:
                line["frequencies"] = self._list_frequencies()
        if training.is_stage_end(step):
            number, stage = training.find_stage(step)
            values = validate_stage(model, source, stage.length)
            line["stage"] = {"stage": number + 1, **asdict(stage), **values}
        return line

    def _write_line(
        self, line: dict[str, Any], metrics: IO[str], show: Callable[[TrainingProgress], None]
    ) -> None:
        """Write a step's line of metrics, and show it."""
        training, step, now = self._training, line["step"], time.monotonic()
        seconds = self._start.seconds + now - self._began
        before, tokens, total = (
            training.count_tokens(n) for n in (self._start.step, step, training.steps)
        )
        line |= {"seconds": round(seconds, 3), "memory_mb": _measure_growth(self._before)}
        line = add_checksum(line, self._info.metrics)
        with _explain_full_disk(self._run, f"the metrics of step {step}"):
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
        self._info = replace(
            self._info, step=step, seconds=seconds, metrics=line["checksum"], checksum=""
        )
        speed = (tokens - before) / (now - self._began)
        left = (total - tokens) / speed
        show(TrainingProgress("training", step, training.steps, line["loss"], speed, left))

    def _list_frequencies(self) -> dict[str, Any]:
        with self._parallel.put_together():
            return list_trained_frequencies(self.model)

    def _save(self, metrics: IO[str] | None) -> None:
        """Write the checkpoint of the last step; in shards, all processes take part."""
        state: Any = self.model, self._optimizer
        if self._parallel.sharded:
            state = (CollectedState(self._processes, *state),) * 2
        if metrics is not None:
            with _explain_full_disk(self._run, f"the checkpoint of step {self._info.step}"):
                os.fsync(metrics.fileno())  # before the checkpoint, which must not be ahead
                saved = self._info.save(self._run.checkpoint_path, *state)
            self._info = self._saved = saved

    def _handle_lost_process(self, error: RuntimeError, metrics: IO[str] | None) -> LostProcess:
        """Save what can be saved after another process has ended; returns the error to raise."""
        lost = self._processes.describe_lost_process(error)
        # Gradients are added up before weights change, so these are those of the last line.
        whole = metrics is not None and not self._parallel.sharded
        if whole and self._info.step > self._saved.step:
            self._save(metrics)
        folder = repr(str(self._run.folder))  # whole: a path to use
        how = f"The same command goes on from the last checkpoint in {folder}"
        if metrics is not None:
            step = self._saved.step
            how = f"The checkpoint of step {step} is in {folder}; the same command goes on"
            how = how if step else "No checkpoint was written yet; the same command begins again"
        return LostProcess(f"{lost}. {how}.", is_reported=lost.is_reported)


@contextmanager
def _open_metrics(run: Run, step: int) -> Iterator[IO[str]]:
    """metrics.jsonl after the lines until ``step``."""
    with _explain_full_disk(run, "metrics.jsonl"):
        metrics = run.open_metrics(step)
    try:
        yield metrics
    finally:
        with suppress(OSError):  # lines are flushed one by one, and errors are raised there
            metrics.close()


@contextmanager
def _explain_full_disk(run: Run, what: str) -> Iterator[None]:
    """Let an error of the disk in a with block say what was not written, and what to do."""
    try:
        yield
    except OSError as error:
        whole = run.checkpoint_path.exists()
        last = "the last checkpoint is complete" if whole else "there is no checkpoint yet"
        raise OSError(
            error.errno,
            f"{what} could not be written to {str(run.folder)!r}"
            f" ({error.strerror or error}); {last}. Free some space and train again to resume",
        ) from None


def _measure_growth(before: int) -> float:
    """Megabytes by which the peak memory of the process exceeds ``before``."""
    return round((memory.read_peak() - before) / 2**20, 1)
