"""Whether the processes of a training see one folder, as machines with a shared disk do."""

import socket
import time
import uuid
from pathlib import Path

from whorl._support.files import write_file_atomically

from .group import ProcessGroup

__all__ = ["check_shared_folder"]

_NAME = ".seen-by-all"
#: A folder of a network may show a new file some seconds later.
_SECONDS_TO_APPEAR = 5.0


def check_shared_folder(processes: ProcessGroup, folder: Path) -> None:
    """Refuse a folder that is not the same one in all processes; the first must have made it."""
    if processes.world == 1:
        return
    mark = folder / _NAME

    def leave_mark() -> str:
        text = uuid.uuid4().hex
        write_file_atomically(mark, text.encode())
        return text

    expected = processes.run_on_main(leave_mark)
    seen = _wait_for(mark, expected)
    found = processes.collect({"seen": seen, "machine": socket.gethostname()})
    if processes.is_main:
        mark.unlink(missing_ok=True)
    for rank, one in enumerate(found):
        if not one["seen"]:
            raise ValueError(
                f"all processes must see the same folder {str(folder)!r}; process {rank} on"
                f" {one['machine']} does not see the files that process 0 on"
                f" {found[0]['machine']} writes there. Choose a folder on a disk that all machines"
                " share, by a path that is the same on all of them."
            )


def _wait_for(path: Path, expected: str) -> bool:
    """Whether the file has this text, now or a little later."""
    last = time.monotonic() + _SECONDS_TO_APPEAR
    while True:
        try:
            if path.read_text() == expected:
                return True
        except OSError:
            pass
        if time.monotonic() > last:
            return False
        time.sleep(0.05)
