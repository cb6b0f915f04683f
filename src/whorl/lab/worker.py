"""One run in a process of its own: ``python -m whorl.lab.worker`` with a job on standard input.

The job is one JSON document: folder, config, scalings, force, command. Answers are JSON lines on
standard output: moments of the run, and at the end {"end": "done" | "interrupted" | "failed"}. When
nobody reads them any more the run stops.
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
    job = json.load(sys.stdin)
    # Answers have a channel of their own: what a library prints must not come between them.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    from .config import RunConfig
    from .trainer import Interrupted, TrainingProgress, train

    torch.set_num_threads(1)
    last = 0.0

    def tell(moment: TrainingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or moment.done == moment.total:
            last = time.monotonic()
            _send(answers, dataclasses.asdict(moment))

    try:
        config = RunConfig.from_dict(job["config"])
        scalings = tuple(job["scalings"])
        options = {name: job[name] for name in ("force", "command")}
        train(config, job["folder"], scalings=scalings, progress=tell, **options)
        _send(answers, {"end": "done"})
    except BrokenPipeError:
        # Whoever asked is gone. Python would complain once more when it closes the pipe.
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
