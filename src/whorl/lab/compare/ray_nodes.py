"""What runs on the nodes of a Ray cluster: a look at the node, and one run.

``describe_node`` is sent to the nodes as it is, because whorl may be missing there. So it uses the
standard library only, inside the function.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whorl._support.locks import acquire_lock, release_lock

__all__ = ["NODE_FILE", "describe_node", "find_mismatch", "run_job"]

#: In the results folder while runs are on Ray; a node that reads its text sees the same folder.
NODE_FILE = ".ray-nodes"

#: What a worker that was lost may need to notice that nobody reads its lines any more.
_SECONDS_TO_LET_GO = 60.0


def describe_node(folder: str, file: str) -> dict[str, Any]:
    """The name, versions and results folder of the machine that this is called on."""
    import os
    import platform
    from importlib import metadata

    found: dict[str, Any] = {"host": platform.node(), "Python": platform.python_version()}
    for package in ("whorl", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as text:
            found["text"] = text.read()
        found["writable"] = os.access(folder, os.W_OK)
    except OSError as error:
        found["problem"] = error.strerror or str(error)
    return found


def find_mismatch(ours: Mapping[str, Any], node: Mapping[str, Any], folder: str) -> str | None:
    """Why runs cannot be trained on ``node`` as they are here; None if they can."""
    host = node["host"]
    for name in ("whorl", "torch", "Python"):  # the default text is Python's own library
        if node[name] != ours[name]:
            has = "has none" if node[name] is None else f"has {node[name]}"
            return (
                f"all machines must have the same {name}, or results would differ: {ours['host']}"
                f" has {ours[name]}, {host} {has}. Install {name} {ours[name]} there."
            )
    if node.get("text") != ours["text"]:
        why = node.get("problem", "it is another folder there")
        return (
            f"{host} does not see the results folder {str(folder)!r} ({why}). Choose one that all"
            " machines share under the same path."
        )
    if not node["writable"]:
        return f"{host} cannot write to the results folder {str(folder)!r}. Give it the right to."
    return None


def run_job(
    module: str, request: Mapping[str, Any], ours: Mapping[str, Any], folder: str, cwd: str
) -> Iterator[str]:
    """The lines of a worker process on this node, which handles ``request``.

    A first line says where it runs; the last one may be {"lost": reason}. The process ends when
    this does: it is asked to save what it has.
    """
    from whorl.lab.compare.processes import WorkerProcess

    node = describe_node(folder, NODE_FILE)
    if (problem := find_mismatch(ours, node, folder)) is not None:
        yield json.dumps({"end": "failed", "reason": problem})
        return
    yield json.dumps({"phase": f"starting on {node['host']}"})
    _wait_until_free(Path(request["folder"]))
    process = WorkerProcess(module, request, cwd=cwd if os.path.isdir(cwd) else None)
    try:
        for line in process.read_lines():
            yield _name_machine(line.strip(), node["host"])
        reason = process.describe_exit()
        answer = "lost" if process.was_killed else "ended"
        yield json.dumps({answer: f"on {node['host']}: {reason}"})
    finally:  # also when Ray cancels this
        process.ask_to_stop()
        process.wait()
        process.kill()


def _name_machine(line: str, host: str) -> str:
    """A line of a worker, with the machine in the reason of a failure."""
    message = json.loads(line)
    if message.get("end") != "failed":
        return line
    reason = str(message.get("reason", "")).rstrip(".")
    return json.dumps({**message, "reason": f"{reason} (on {host})"})


def _wait_until_free(folder: Path) -> None:
    """Return when no process holds the lock of the folder, or after a minute."""
    end = time.monotonic() + _SECONDS_TO_LET_GO
    while folder.is_dir() and time.monotonic() < end:
        handle = acquire_lock(folder / ".lock")
        if handle is not None:
            release_lock(handle)
            return
        time.sleep(0.2)
