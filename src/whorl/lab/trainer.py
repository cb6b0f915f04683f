"""``train``: trains and evaluates one run in a folder; it can be interrupted at any time.

A step depends only on the config, its number and the state in the checkpoint. So a run that was
stopped, by Ctrl-C or a crash, continues with the numbers that it would have had without the break.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from whorl._support.words import quote
from whorl.processes import (
    check_precision,
    choose_sharding,
    open_processes,
)

from .architectures import build_model
from .config import RunConfig, StartConfig
from .data import DataSource, open_data_source
from .evaluate import add_scaling, evaluate
from .files import lock_together
from .loop import Interrupted, TrainingLoop, TrainingProgress
from .model import LanguageModel
from .runs import Run
from .start import StartWeights, describe_start, match_weights, read_start

__all__ = ["Interrupted", "TrainingProgress", "train"]

ShowProgress = Callable[[TrainingProgress], None]


def train(
    config: RunConfig,
    folder: str | Path,
    *,
    scalings: tuple[str, ...] = (),
    progress: Callable[[TrainingProgress], None] | None = None,
    force: bool = False,
    command: str = "",
    start: str | Path | None = None,
    shard: bool = False,
    passes: int = 1,
) -> Run:
    """Train and evaluate ``config`` in ``folder``, or resume where an earlier call stopped.

    Processes that torchrun or accelerate launch started share the sequences of each step. The first
    one alone writes, evaluates and calls ``progress``.

    Args:
        start: trained weights to start from, instead of ``config.start.folder``: the folder of a
            run, or one that ``export`` wrote. ``read_start(folder).settings`` is its config.
        scalings: names of scalings; the trained model is also evaluated with each of them.
        progress: called with a ``TrainingProgress`` after every step.
        force: delete a run with another config that is in the folder.
        command: the command line, for environment.json.
        shard: share out the weights over the processes too (FSDP2).
        passes: forward passes that share a step's sequences in each process, for less memory.

    Raises:
        Interrupted: after SIGINT or SIGTERM, when the checkpoint is saved.
        LostProcess: another process has ended; the same call goes on from the last checkpoint.
        ValueError: the folder holds another run, there is too little data, or the weights to start
            from have another shape.
    """
    with open_processes() as processes:
        check_precision(config.training.precision)
        shard = choose_sharding(shard, processes.world, processes.device)
        for stage in config.training.all_stages:  # refuses too few
            processes.split_rows(stage.batch, passes)
        config, weights = _open_start(config, folder, start)
        # First: a wrong name fails at once.
        models = {name: add_scaling(config, name) for name in (None, *scalings)}
        source = open_data_source(config)
        model = build_model(config.model, vocab=source.vocab, longest=config.longest)
        match = None if weights is None else match_weights(weights, model, config)
        run, show = Run(folder), progress or _show_nothing

        def prepare() -> str | None:
            """A note for the user; None if the run is finished."""
            report = None if match is None else match.report
            resumed = run.prepare(config, source.about, force=force, command=command, start=report)
            if all(run.read_evaluation(name) is not None for name in models):
                run.take_checkpoint()
                return None
            note = run.record_resume(command) if resumed else report and describe_start(report)
            if note:
                phase = "resuming" if resumed else "starting"
                show(TrainingProgress(phase, 0, config.training.steps, note=note))
            return note or ""

        main = processes.is_main
        with lock_together(processes, run.folder), processes.watch_signals() as stop:
            if processes.run_on_main(prepare) is None:
                return run
            model.reset_parameters(config.training.seed)
            if match is not None:
                match.copy()
            loop = TrainingLoop(
                model, source, config.training, run, processes, shard=shard, passes=passes
            )
            info, whole = loop.train(show, stop), loop.collect_weights()
            for name, shape in models.items() if main else ():
                if run.read_evaluation(name) is None:
                    other = build_model(shape, vocab=source.vocab, longest=config.longest)
                    whole.copy_to(other.to(processes.device))
                    found = _evaluate(other, source, config, run, name, show, stop)
                    run.write_evaluation(found, info)
            processes.wait()
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


def _show_nothing(moment: TrainingProgress) -> None:
    pass
