"""The process that uses Ray: ``python -m whorl.lab.compare.ray_driver``.

It reads lines of JSON: first where to connect, then the runs to start, and {"stop": true}; the end
of its input asks it to end. It writes {"connected": nodes} or {"refused": why}, and then the
messages of the runs, as changes of their ``RunStatus``.
"""

import json
import queue
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from whorl._support.extras import import_extra
from whorl.lab.worker import open_answers, send

from . import ray_nodes
from .pool import count_cores
from .processes import parse_message

__all__ = ["main"]

#: How often a run goes on elsewhere after its worker was lost.
_MOST_RETRIES = 3
#: The smallest that Ray takes: runs exchange their results through files.
_OBJECT_STORE_BYTES = 80 * 2**20
_TOKEN_HINT = (
    ". If the cluster has a token, RAY_AUTH_MODE=token and the same ~/.ray/auth_token must be here"
    " too"
)


def main() -> None:
    """The separate process."""
    answers = open_answers()
    settings = json.loads(sys.stdin.readline() or "null")
    if settings is None:
        return
    ray = import_extra("ray", by="--ray", extra="ray")
    try:
        _connect(ray, settings)
        ours = ray_nodes.describe_node(settings["folder"], ray_nodes.NODE_FILE)
        if settings["address"] != "local":
            _check_nodes(ray, ours, settings["folder"])
        send(answers, {"connected": len(ray.nodes())})
        _RayTasks(ray, settings, ours, answers).serve()
    except _Refused as refused:
        send(answers, {"refused": str(refused)})
    finally:
        ray.shutdown()
        _remove_files(settings)


def _remove_files(settings: dict[str, Any]) -> None:
    """Remove what the process that started this one would, if that has been killed."""
    note = Path(settings["folder"], ray_nodes.NODE_FILE)
    with suppress(OSError):
        if note.read_text() == settings["note"]:  # else it is that of another command by now
            note.unlink()
    if settings["temporary"]:
        shutil.rmtree(settings["temporary"], ignore_errors=True)


class _Refused(Exception):  # noqa: N818  # it is an answer
    """Why this cluster is not used."""


def _connect(ray: Any, settings: dict[str, Any]) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if settings["address"] == "local":
        options |= {
            "num_cpus": settings["cpus"] or count_cores(),
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_temp_dir": settings["temporary"],
        }
    try:
        ray.init(address=settings["address"], **options)
    except (RuntimeError, ValueError, ConnectionError, OSError) as error:
        words = " ".join(str(error).split())
        hint = "" if settings["address"] == "local" else _TOKEN_HINT
        what = f"{settings['address']} refused the connection"
        raise _Refused(f"{what}: {words.rstrip('.')}{hint}.") from None


def _check_nodes(ray: Any, ours: dict[str, Any], folder: str) -> None:
    """Refuse the cluster if a node differs in versions, or does not see the folder."""
    nodes = [x for x in ray.nodes() if x["Alive"] and x["Resources"].get("CPU")]
    if not nodes:
        raise _Refused("the cluster has no CPUs. Add a node with 'ray start --address=...'.")
    ray.cloudpickle.register_pickle_by_value(ray_nodes)
    try:
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        task = ray.remote(ray_nodes.describe_node)
        found = [
            task.options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=strategy(node["NodeID"], soft=False),
            ).remote(folder, ray_nodes.NODE_FILE)
            for node in nodes
        ]
        for node in ray.get(found):
            if (problem := ray_nodes.find_mismatch(ours, node, folder)) is not None:
                raise _Refused(problem)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(ray_nodes)


class _RayTasks:
    """The tasks under way, each with the run that it trains."""

    def __init__(
        self, ray: Any, settings: dict[str, Any], ours: dict[str, Any], answers: IO[str]
    ) -> None:
        self.ray, self.settings, self.ours, self.answers = ray, settings, ours, answers
        self.task = ray.remote(ray_nodes.run_job)
        self.orders: dict[int, dict[str, Any]] = {}
        self.busy: dict[Any, int] = {}  # runs by their generators of lines
        self.retries: dict[int, int] = {}
        self.ended: set[int] = set()
        self.stopping = False
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue()

    def serve(self) -> None:
        """Train what is asked for until the input ends, then ask what still runs to save."""
        threading.Thread(target=self._read_orders, daemon=True).start()
        while self.busy or not self.stopping:
            for order in self._take_orders():
                if "stop" in order:
                    self._cancel()
                else:
                    self.orders[order["run"]] = order
                    self._submit(order["run"])
            if self.busy:
                ready, _ = self.ray.wait([*self.busy], num_returns=1, timeout=0.2)
                for lines in ready:
                    self._read_line(lines)

    def _read_orders(self) -> None:
        for line in sys.stdin:
            self._asked.put(json.loads(line))
        self._asked.put({"stop": True})

    def _take_orders(self) -> Iterator[dict[str, Any]]:
        """All orders that have come; waits for one if nothing is under way."""
        if not self.busy:
            yield self._asked.get()
        while not self._asked.empty():
            yield self._asked.get()

    def _submit(self, n: int) -> None:
        order = self.orders[n]
        options = {"num_cpus": 1, "max_retries": 0, "num_returns": "streaming"}
        lines = self.task.options(**options, name=Path(order["request"]["folder"]).name).remote(
            order["worker"],
            order["request"],
            self.ours,
            self.settings["folder"],
            self.settings["cwd"],
        )
        self.busy[lines] = n

    def _cancel(self) -> None:
        self.stopping = True
        for lines in self.busy:
            self.ray.cancel(lines)

    def _read_line(self, lines: Any) -> None:
        """Handle the next line of a run, or its end."""
        n = self.busy[lines]
        errors = self.ray.exceptions
        try:
            message = json.loads(self.ray.get(next(lines)))
        except StopIteration:
            del self.busy[lines]
            if n not in self.ended:
                self._end(n, "failed", "its task ended without an answer")
        except (errors.TaskCancelledError, KeyboardInterrupt):
            del self.busy[lines]
            self._end(n, "interrupted", "")
        except errors.RayTaskError as error:  # our own function failed
            del self.busy[lines]
            state = "interrupted" if self.stopping else "failed"
            self._end(n, state, str(error.cause if error.cause is not None else error))
        except errors.RayError as error:
            del self.busy[lines]
            self._go_on_elsewhere(n, " ".join(str(error).split()))
        else:
            self._pass_on(n, lines, message)

    def _pass_on(self, n: int, lines: Any, message: dict[str, Any]) -> None:
        if "lost" in message and not self.stopping:
            del self.busy[lines]
            self._go_on_elsewhere(n, message["lost"])
        elif "lost" in message or "ended" in message:
            if n not in self.ended:
                state = "interrupted" if self.stopping else "failed"
                self._end(n, state, message.get("lost") or message["ended"])
        else:
            changes = parse_message(json.dumps(message))
            if changes["state"] != "running":
                self._end(n, changes["state"], changes["reason"])
            else:
                send(self.answers, {"run": n, **changes})

    def _go_on_elsewhere(self, n: int, reason: str) -> None:
        """Start a run again, which continues from its checkpoint, after its worker was lost."""
        if n in self.ended:
            return
        self.retries[n] = self.retries.get(n, 0) + 1
        if self.stopping:
            self._end(n, "interrupted", "")
        elif self.retries[n] > _MOST_RETRIES:
            self._end(n, "failed", f"its worker was lost {self.retries[n]} times: {reason}")
        else:
            send(self.answers, {"run": n, "phase": "worker lost, going on"})
            self._submit(n)

    def _end(self, n: int, state: str, reason: str) -> None:
        if n not in self.ended:
            self.ended.add(n)
            send(self.answers, {"run": n, "state": state, "reason": reason})


if __name__ == "__main__":
    main()
