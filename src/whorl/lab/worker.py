"""One run in a separate process: ``python -m whorl.lab.worker``.

It reads one JSON document from standard input: folder, config, scalings, force, command. It writes
lines of JSON to standard output: the progress of the run, and at the end
{"end": "done" | "interrupted" | "failed"}. When nobody reads them any more, it saves and stops.
"""

import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import TrainingProgress

__all__ = ["main", "open_answers", "send", "serve_request"]

_SECONDS_BETWEEN_LINES = 0.2

#: Does what a request asks for, and calls its second argument with the progress.
RequestHandler = Callable[[Mapping[str, Any], "Callable[[TrainingProgress], None]"], None]


def main() -> None:
    """The separate process."""
    serve_request(_train_run)


def serve_request(handle: RequestHandler) -> None:
    """Read a request from standard input, handle it on one thread, and write the answers."""
    job = json.load(sys.stdin)
    answers = open_answers()
    import torch

    from .trainer import Interrupted, TrainingProgress

    torch.set_num_threads(1)
    last = 0.0

    def send_progress(moment: TrainingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or moment.done == moment.total:
            last = time.monotonic()
            try:
                send(answers, dataclasses.asdict(moment))
            except BrokenPipeError:  # the parent has ended: save, and end as if it had asked
                signal.raise_signal(signal.SIGTERM)

    try:
        handle(job, send_progress)
        end = {"end": "done"}
    except (Interrupted, KeyboardInterrupt):
        end = {"end": "interrupted"}
    except (ValueError, TypeError, OSError) as error:
        end = {"end": "failed", "reason": str(error)}
    try:
        send(answers, end)
    except BrokenPipeError:
        # Without this, Python would print an error when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
        sys.exit(1)


def open_answers() -> IO[str]:
    """Standard output for answers only; what libraries print goes to standard error instead."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def send(answers: IO[str], document: dict[str, Any]) -> None:
    """Write one line of JSON at once."""
    print(json.dumps(document), file=answers, flush=True)


def _train_run(job: Mapping[str, Any], show: "Callable[[TrainingProgress], None]") -> None:
    from .config import RunConfig
    from .trainer import train

    config = RunConfig.from_dict(job["config"])
    options = {name: job[name] for name in ("force", "command")}
    train(config, job["folder"], scalings=tuple(job["scalings"]), progress=show, **options)


if __name__ == "__main__":
    main()
