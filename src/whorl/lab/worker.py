"""One run in a separate process: ``python -m whorl.lab.worker``.

It reads one JSON document from standard input: folder, config, scalings, force, command. It writes
lines of JSON to standard output: the progress of the run, and at the end
{"end": "done" | "interrupted" | "failed"}. It stops when nobody reads them any more.
"""

import dataclasses
import json
import os
import sys
import time
from typing import IO, Any

__all__ = ["main"]

_SECONDS_BETWEEN_LINES = 0.2


def main() -> None:
    """The separate process."""
    job = json.load(sys.stdin)
    # What a library prints must not mix with the answers, so it goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    from .config import RunConfig
    from .trainer import Interrupted, TrainingProgress, train

    torch.set_num_threads(1)
    last = 0.0

    def send_progress(moment: TrainingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or moment.done == moment.total:
            last = time.monotonic()
            _send(answers, dataclasses.asdict(moment))

    try:
        config = RunConfig.from_dict(job["config"])
        scalings = tuple(job["scalings"])
        options = {name: job[name] for name in ("force", "command")}
        train(config, job["folder"], scalings=scalings, progress=send_progress, **options)
        _send(answers, {"end": "done"})
    except BrokenPipeError:
        # The parent has ended. Without this, Python would print an error when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
        sys.exit(1)
    except (Interrupted, KeyboardInterrupt):
        _send(answers, {"end": "interrupted"})
    except (ValueError, TypeError, OSError) as error:
        _send(answers, {"end": "failed", "reason": str(error)})


def _send(answers: IO[str], document: dict[str, Any]) -> None:
    print(json.dumps(document), file=answers, flush=True)


if __name__ == "__main__":
    main()
