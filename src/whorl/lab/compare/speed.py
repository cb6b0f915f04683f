"""Training speed of each row, measured after the runs, because those share the machine.

One process on one thread measures it. In each of several rounds, every row trains a few steps, so
that a slow moment of the machine slows all of them down. The speed of a row is that of its median
step. It is measured once and stored in speed.json, beside the runs.

``python -m whorl.lab.compare.speed`` is that process. It reads configs by name as JSON from
standard input and writes lines of JSON to standard output: its progress, then all seconds.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from whorl._support.launch import build_environment
from whorl.lab.config import RunConfig
from whorl.lab.environment import describe_environment
from whorl.lab.integrity import compute_checksum, read_checked, write_checked

from .pool import RunStatus
from .processes import describe_exit, start_module

__all__ = ["STEPS_PER_ROW", "measure_speed", "read_speed", "time_steps"]

ROUNDS, STEPS = 5, 3
#: Steps of a row in all rounds; the first of each round is not timed.
STEPS_PER_ROW = ROUNDS * (STEPS + 1)
_FILE = "speed.json"
_MEASURING = RunStatus("speed", "running", "measuring", is_run=False)
# Entries of the environment that the speed depends on.
_COMPARED = ("torch", "cpu", "kernel", "whorl")


def measure_speed(
    configs: Mapping[str, RunConfig], folder: Path, show: Callable[[RunStatus], None]
) -> tuple[dict[str, Any] | None, RunStatus]:
    """The speed of each row, from speed.json or measured and written there; and its status.

    configs: by the name of the row. If the measurement fails, the speed is None and the status says
    why.
    """
    earlier = _read_earlier(folder, configs)
    if earlier is not None:
        status = RunStatus("speed", "done", reason=f"measured on {earlier['date']}", is_run=False)
        show(status)
        return earlier, status
    seconds, status = _run_process(configs, show)
    show(status)
    if seconds is None:
        return None, status
    here = describe_environment()
    found = {
        "rounds": ROUNDS,
        "steps": STEPS,
        "date": here["date"],
        "environment": {key: here[key] for key in _COMPARED},
        "asked": {name: _hash_config(config) for name, config in configs.items()},
        "seconds": seconds,
        "tokens_per_second": {
            name: config.training.batch * config.training.length / median(seconds[name])
            for name, config in configs.items()
        },
    }
    write_checked(folder / _FILE, found)
    return found, status


def read_speed(folder: Path, configs: Mapping[str, RunConfig]) -> dict[str, Any] | None:
    """The content of speed.json, without rows whose config has changed since.

    Under "missing" are the names of rows without a speed; None if no row has one. ValueError if
    the file was changed.
    """
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        found = read_checked(path)
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} is damaged: {str(error).rstrip('.')}. Delete it; the command"
            " that trained these runs then measures the speed again."
        ) from None
    asked = {name: _hash_config(config) for name, config in configs.items()}
    missing = [name for name, key in asked.items() if found["asked"].get(name) != key]
    if len(missing) == len(asked):
        return None
    speeds = found["tokens_per_second"].items()
    known = {name: speed for name, speed in speeds if name not in missing}
    return {**found, "tokens_per_second": known, "missing": missing}


def time_steps(
    configs: Mapping[str, RunConfig], progress: Callable[[int, int], None]
) -> dict[str, list[float]]:
    """Seconds of every timed step by row, on as many threads as torch uses now."""
    from whorl.lab.architectures import build_model
    from whorl.lab.data import open_data_source
    from whorl.lab.optimization import TrainingOptimizer, group_by_part, take_step
    from whorl.processes import ParallelModel, ProcessGroup

    found: dict[str, list[float]] = {name: [] for name in configs}
    sources = {_get_text(one): one for one in configs.values()}
    opened = {key: open_data_source(one) for key, one in sources.items()}
    for number in range(ROUNDS):
        names = list(configs)[:: 1 if number % 2 == 0 else -1]
        for n, name in enumerate(names):
            config = configs[name]
            source = opened[_get_text(config)]
            model = build_model(config.model, vocab=source.vocab, longest=config.longest)
            model.reset_parameters(config.training.seed)
            model.train()
            optimizer, parts = TrainingOptimizer(model, config.training), group_by_part(model)
            parallel = ParallelModel(ProcessGroup(), model, model.loss)
            for step in range(STEPS + 1):
                start = time.perf_counter()
                take_step(parallel, optimizer, source, config.training, step + 1, parts)
                if step:  # the first allocates the optimizer's state
                    found[name].append(time.perf_counter() - start)
            progress(number * len(names) + n + 1, ROUNDS * len(names))
    return found


def _get_text(config: RunConfig) -> tuple[Any, ...]:
    """What decides which tokens a run reads."""
    return (config.data, config.model.kind, config.training.length)


def main() -> None:
    """The separate process."""
    configs = {name: RunConfig.from_dict(one) for name, one in json.load(sys.stdin).items()}
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    torch.set_num_threads(1)

    def send_progress(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), file=answers, flush=True)

    with suppress(BrokenPipeError):  # the parent has ended
        print(json.dumps({"seconds": time_steps(configs, send_progress)}), file=answers, flush=True)


def _read_earlier(folder: Path, configs: Mapping[str, RunConfig]) -> dict[str, Any] | None:
    """The content of speed.json if it was measured here and has all of ``configs``, else None."""
    try:
        found = read_speed(folder, configs)
    except ValueError:
        return None
    here = describe_environment()
    if found is None or found["missing"]:
        return None
    return found if found["environment"] == {key: here[key] for key in _COMPARED} else None


def _hash_config(config: RunConfig) -> str:
    """Checksum of the options that the speed depends on."""
    table = config.to_dict()
    training = {key: table["training"].get(key) for key in ("batch", "length", "precision")}
    return compute_checksum(table["model"], training, table["data"])


def _run_process(
    configs: Mapping[str, RunConfig], show: Callable[[RunStatus], None]
) -> tuple[dict[str, list[float]] | None, RunStatus]:
    show(_MEASURING)
    seconds, status = None, _MEASURING
    with (
        tempfile.TemporaryFile("w+", errors="replace") as words,
        start_module(
            "whorl.lab.compare.speed", words, build_environment(OMP_NUM_THREADS="1")
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError), process.stdin:
                json.dump({name: one.to_dict() for name, one in configs.items()}, process.stdin)
            for line in process.stdout:
                message = json.loads(line)
                seconds = message.pop("seconds", None)
                status = RunStatus(**{**vars(status), **message})
                show(status)
            process.wait()
        finally:
            process.kill()
            process.wait()
        if seconds is None:
            words.seek(0)
            reason = describe_exit(process.returncode, words.read())
            return None, RunStatus("speed", "failed", reason=reason, is_run=False)
    return seconds, RunStatus("speed", "done", is_run=False)


if __name__ == "__main__":
    main()
