"""One row in a separate process: ``python -m whorl.lab.experiments.worker``.

It reads and answers as ``whorl.lab.worker`` does; the request has the name of the experiment, the
tables of the row and its seed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whorl.lab.worker import serve_request

if TYPE_CHECKING:
    from whorl.lab.trainer import TrainingProgress

__all__ = ["main"]


def main() -> None:
    """The separate process."""
    serve_request(_run_row)


def _run_row(job: Mapping[str, Any], show: "Callable[[TrainingProgress], None]") -> None:
    from whorl.lab.files import lock_folder

    from .definition import RowRequest
    from .jobs import ROW_FILE, RowJob
    from .registry import find_experiment

    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    run_row = find_experiment(job["experiment"]).run_row
    assert run_row is not None
    with lock_folder(folder):
        request = RowRequest(job["tables"], job["seed"], folder, show, job["force"], job["command"])
        row = RowJob(folder.name, job["experiment"], job["tables"], job["seed"])
        if (folder / ROW_FILE).exists() and not job["force"]:
            raise ValueError(
                f"{str(folder)!r} holds a row with other settings. Choose another folder, or pass"
                " force=True to replace it."
            )
        row.write(folder, run_row(request))


if __name__ == "__main__":
    main()
