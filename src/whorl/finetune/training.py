"""``finetune_model``: extends a model, trains it for the longer context, and writes the result.

The loss of validation text is computed before and after, with all tokens visible and positions from
0, however the model is trained: of the same tokens, the last ones of windows of the target length,
after as much text as the trained length has, and after all of it.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import torch

from whorl.configs.names import resolve_model
from whorl.lab import Interrupted
from whorl.lab.checkpoint import CheckpointInfo
from whorl.lab.files import lock_together
from whorl.lab.integrity import add_checksum
from whorl.processes import (
    CollectedState,
    LostProcess,
    ParallelModel,
    ProcessGroup,
    check_precision,
    choose_sharding,
    is_lost,
    open_processes,
)

from .folder_model import open_folder
from .lora import add_lora
from .models import TunedModel, WrittenTraining
from .run_model import open_run
from .settings import FineTuning
from .steps import TrainedWeights, TuningOptimizer, take_step
from .training_folder import TrainingFolder

__all__ = ["FineTuningProgress", "finetune_model"]

#: A crash loses at most about this much work.
SECONDS_BETWEEN_CHECKPOINTS = 60.0
_SCORED = 256  # tokens of validation text in each window
_GROUPS = 4  # of shifted sparse attention, as in LongLoRA


@dataclass(frozen=True)
class FineTuningProgress:
    """State of a fine-tuning: steps done of all steps, and the loss of the last one."""

    done: int
    total: int
    loss: float | None = None
    seconds_left: float | None = None


ShowProgress = Callable[[FineTuningProgress], None]


def finetune_model(
    model: str | Path,
    texts: Sequence[str | Path],
    settings: FineTuning,
    out: str | Path,
    *,
    force: bool = False,
    progress: ShowProgress | None = None,
    command: str = "",
    shard: bool = False,
) -> dict[str, Any]:
    """Extend ``model``, train it on ``texts``, write it to the folder ``out``; returns a report.

    Args:
        model: a folder of transformers, also one in the local cache of Hugging Face by the name of
            its repository, or a run of ``whorl train``. The result has the same form.
        texts: UTF-8 files; of a run also folders, or nothing for the text of its own training.
        out: a new folder. A call with the same arguments continues one that was stopped.
        force: replace the result of another fine-tuning in ``out``.
        shard: share out the weights over the processes that a launcher started (FSDP2).

    Raises:
        Interrupted: after SIGINT or SIGTERM, when the checkpoint is saved.
        LostProcess: another process has ended; the same call goes on from the last checkpoint.
        ValueError: the model cannot be extended, the text is too short, or ``out`` is in use.
    """
    path = resolve_model(model, "model")
    with open_processes() as processes:
        check_precision(settings.precision)
        shard = choose_sharding(shard, processes.world, processes.device)
        processes.split_rows(settings.batch)  # refuses too few
        is_run = (path / "config.toml").is_file()
        tuned: TunedModel = (open_run if is_run else open_folder)(path, texts, settings)
        length = settings.length or (tuned.trained if settings.shortens else tuned.target)
        _check_lengths(tuned, settings, length)
        folder = TrainingFolder(Path(out), force=force)
        tuning = _FineTuning(tuned, settings, length, folder, processes, shard)
        tuning.show, tuning.command = progress or _show_nothing, command
        return tuning.run()


class _FineTuning:
    """One fine-tuning, and what its parts share."""

    def __init__(
        self,
        model: TunedModel,
        settings: FineTuning,
        length: int,
        folder: TrainingFolder,
        processes: ProcessGroup,
        shard: bool,
    ) -> None:
        self.model, self.settings, self.length = model, settings, length
        self.folder, self.processes, self.shard = folder, processes, shard
        self.show: ShowProgress = _show_nothing
        self.command = ""
        self.rate = settings.learning_rate or model.default_learning_rate
        #: What the trained weights depend on.
        self.plan = {
            **{name: one for name, one in settings.to_dict().items() if name != "validation"},
            "model": model.name,
            "weights": model.digest,
            "text": model.text.digest,
            "length": length,
            "trained": model.trained,
            "target": model.target,
            "scaling": model.scaling,
            "learning_rate": self.rate,
        }

    def run(self) -> dict[str, Any]:
        """Train and write; returns the report, which is empty in all processes but the first."""
        settings = json.loads(json.dumps(self.plan))
        main = self.processes.is_main
        found = self.processes.run_on_main(lambda: self.folder.find_report(settings))
        if found is not None:
            return {**found, "folder": str(self.folder.out)}
        watching = self.processes.watch_signals()
        with lock_together(self.processes, self.folder.folder), watching as stop:
            self.processes.run_on_main(lambda: self._prepare_folder(settings))
            if not self.shard:
                self.model.module.to(self.processes.device)
            before = self._validate() if main else {}
            info, tuner = self._train(stop)
            report = self._finish(tuner, settings, before, info) if main else {}
            self.processes.wait()
        return {**report, "folder": str(self.folder.out)} if main else {}

    def _prepare_folder(self, settings: dict[str, Any]) -> None:
        with self._explain_full_disk("the settings"):
            self.folder.prepare(settings)

    def _finish(
        self, tuner: Any, settings: dict[str, Any], before: dict[str, float], info: CheckpointInfo
    ) -> dict[str, Any]:
        """Write the trained model; returns the report."""
        if tuner is not None:
            tuner.merge_and_unload()
        self.model.use_attention(None)
        report = self._build_report(settings, before, info)
        metrics = self.folder.metrics_path.read_bytes()
        written = (metrics, info.metrics, info.step, info.seconds, self.command)
        self.folder.write_model(self.model, WrittenTraining(*written), report)
        return report

    def _train(self, stop: threading.Event) -> tuple[CheckpointInfo, Any]:
        """Train to the last step; returns what the last checkpoint says, and LoRA's model."""
        settings, model, main = self.settings, self.model, self.processes.is_main
        if settings.attention == "shifted-sparse":
            model.use_attention(max(2, self.length // _GROUPS // 2 * 2))
        tuner = None
        if settings.lora is not None:
            tuner = add_lora(model, settings.lora, settings.seed)
        if (saved := self.folder.read_saved()) is not None:
            saved.load_weights(TrainedWeights(model))
        # Shards cannot be validated or written by the first process alone: it keeps a whole model.
        whole = deepcopy((model.module, tuner)) if self.shard and main else None
        self.parallel = ParallelModel(
            self.processes,
            model.module,
            model.compute_loss,
            shard=self.shard,
            passes=settings.accumulation,
        )
        self.weights = TrainedWeights(model)
        self.trained_parameters = self.weights.count()
        self.optimizer = TuningOptimizer(self.weights, self.rate)
        if saved is not None:
            saved.load_optimizer(self.weights, self.optimizer)
        self.processes.wait()  # until all have read it
        model.module.train()
        self.start = self.info = CheckpointInfo(0, 0.0) if saved is None else saved.info
        self._take_steps(stop)
        if self.shard:
            state = CollectedState(self.processes, model.module)
            if whole is not None:
                state.copy_to(whole[0])
                model.module, tuner = whole
        model.module.eval()
        return self.info, tuner

    def _take_steps(self, stop: threading.Event) -> None:
        """Take the steps after the checkpoint, with their metrics and checkpoints."""
        steps, main = self.settings.steps, self.processes.is_main
        began = last_saved = time.monotonic()
        with self._explain_full_disk("metrics.jsonl"):
            metrics = self.folder.open_metrics(self.start.step) if main else None
        try:
            for step in range(self.start.step + 1, steps + 1):
                line = self._take_step(step)
                if metrics is not None:
                    self._write_line(line, metrics, time.monotonic() - began)
                stopping = self.processes.agree(stop.is_set())
                due = time.monotonic() - last_saved > SECONDS_BETWEEN_CHECKPOINTS
                due = due or stopping or step == steps
                if self.processes.agree(due) if self.shard else due:
                    self._save(metrics)
                    last_saved = time.monotonic()
                if stopping and step < steps:
                    raise Interrupted
        except RuntimeError as error:
            if self.processes.world == 1 or not is_lost(error):
                raise
            raise self._handle_lost_process(error, metrics) from None
        finally:
            if metrics is not None:
                with suppress(OSError):  # lines are flushed one by one, and errors are raised there
                    metrics.close()

    def _write_line(self, line: dict[str, Any], metrics: IO[str], passed: float) -> None:
        """Write a step's line of metrics, ``passed`` seconds after the first, and show it."""
        step, steps = line["step"], self.settings.steps
        seconds = self.start.seconds + passed
        line = add_checksum({**line, "seconds": round(seconds, 3)}, self.info.metrics)
        with self._explain_full_disk(f"the line of step {step} in metrics.jsonl"):
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
        self.info = replace(self.info, step=step, seconds=seconds, metrics=line["checksum"])
        left = passed * (steps - step) / (step - self.start.step)
        self.show(FineTuningProgress(step, steps, line["loss"], left))

    def _save(self, metrics: IO[str] | None) -> None:
        """Write the checkpoint of the last step; in shards, all processes take part."""
        state: Any = self.weights, self.optimizer
        if self.shard:
            state = (CollectedState(self.processes, *state),) * 2
        if metrics is not None:
            with self._explain_full_disk(f"the checkpoint of step {self.info.step}"):
                os.fsync(metrics.fileno())  # first: the checkpoint must not be ahead
                self.info.save(self.folder.checkpoint_path, *state)

    def _handle_lost_process(self, error: RuntimeError, metrics: IO[str] | None) -> LostProcess:
        """Save what can be saved after another process has ended; returns the error to raise."""
        lost = self.processes.describe_lost_process(error)
        if metrics is not None and not self.shard:
            self._save(metrics)
        return LostProcess(
            f"{lost}. The same command goes on from the last checkpoint, in"
            f" {str(self.folder.folder)!r}.",
            is_reported=lost.is_reported,
        )

    def _take_step(self, step: int) -> dict[str, Any]:
        try:
            return take_step(
                self.model,
                self.parallel,
                self.weights,
                self.optimizer,
                self.settings,
                self.length,
                step,
            )
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and (
                "alloc" not in str(error)
            ):
                raise
            raise ValueError(
                f"there is too little memory for a step of {self.settings.batch} sequences of"
                f" {self.length:,} tokens. Lower batch (and raise accumulation as much), choose a"
                " shorter length with positions 'pose', or attention 'shifted-sparse'."
            ) from None

    @contextmanager
    def _explain_full_disk(self, what: str) -> Iterator[None]:
        """Let an error of the disk in a with block say what was not written, and what to do."""
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"{what} could not be written to {str(self.folder.folder)!r}"
                f" ({error.strerror or error}). Free some space; the same call then continues from"
                " the last checkpoint",
            ) from None

    def _validate(self) -> dict[str, float]:
        """Mean loss by length of the last tokens of windows of validation text."""
        trained, target = self.model.trained, self.model.target
        most = self.settings.count_validation_windows(target)
        if len(self.model.text.validation) <= target or not most:
            return {}  # too little text to hold so much of it out
        self.model.module.eval()
        device = self.model.device
        scored = min(_SCORED, trained)
        windows = self.model.text.cut_validation(target, most)
        found = {}
        for length in (trained, target):
            losses = [
                self.model.score_end(row[-length - 1 :].to(device), scored) for row in windows
            ]
            found[str(length)] = sum(losses) / len(losses)
        return found

    def _build_report(
        self, settings: dict[str, Any], before: dict[str, float], info: CheckpointInfo
    ) -> dict[str, Any]:
        return {
            "kind": self.model.kind,
            "model": self.model.name,
            "trained": self.model.trained,
            "target": self.model.target,
            "length": self.length,
            "steps": info.step,
            "seconds": round(info.seconds, 3),
            "trained_parameters": self.trained_parameters,
            "scaling": self.model.scaling,
            "loss_before": before,
            "loss_after": self._validate(),
            "settings": settings,
        }


def _check_lengths(model: TunedModel, settings: FineTuning, length: int) -> None:
    if length > model.target:
        raise ValueError(
            f"length must be at most the target, {model.target:,} tokens; got {length:,}. Choose a"
            " larger factor, or a shorter length."
        )
    model.text.check_length(length, "the training length")


def _show_nothing(moment: FineTuningProgress) -> None:
    pass
