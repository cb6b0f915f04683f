"""Runs as tasks of Ray: the same folders as with processes, lost workers, clusters refused."""

import dataclasses
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import Run, RunConfig
from whorl.lab.compare import RunStatus, ray_driver, ray_workers
from whorl.lab.compare.plan import PlannedRun
from whorl.lab.compare.pool import run_all
from whorl.lab.compare.ray_nodes import NODE_FILE, describe_node, find_mismatch, run_job
from whorl.lab.compare.ray_workers import RayWorkers, check_ray
from whorl.lab.data import open_data_source
from whorl.lab.experiments import ExperimentPlan
from whorl.lab.experiments.jobs import list_jobs

from .planned import run_without_workers

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs ray: pip install 'whorl[ray]'"
)
in_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc")


def list_processes(words: str) -> list[int]:
    """Processes whose command line contains ``words``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_text(errors="replace").replace("\0", " "):
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
@needs_ray
@in_proc
def test_a_worker_that_is_lost_and_the_same_folder(small: RunConfig, tmp_path: Path) -> None:
    """Ray's worker process is killed; the run goes on with the numbers of an unbroken one."""
    config = dataclasses.replace(small, training=dataclasses.replace(small.training, steps=200))
    mark = f"lost-{os.getpid()}"  # Ray names the process of a task after it
    runs: list[Any] = [PlannedRun(mark, config, ("yarn",)), PlannedRun("other", small)]
    runs += list_jobs(ExperimentPlan.from_budget("noise", "smoke"))[:1]  # of whorl experiment
    seen: list[RunStatus] = []
    killed: list[int] = []
    homes = {path: path.exists() for path in (Path.home() / ".ray", Path("/tmp/ray"))}

    def kill(statuses: Sequence[RunStatus]) -> None:
        seen.append(statuses[0])
        if statuses[0].done > 3 and statuses[0].phase == "training" and not killed:
            killed.extend(list_processes(f"ray::{mark}"))
            os.kill(killed[0], signal.SIGKILL)

    (tmp_path / "ray").mkdir()
    about = open_data_source(small).about
    statuses = run_all(runs, tmp_path / "ray", about, workers=2, show=kill, ray="local")
    assert [(status.state, status.reason) for status in statuses] == [("done", "")] * 3
    assert len(killed) == 1
    assert "worker lost, going on" in {status.phase for status in seen}
    assert any(status.phase.startswith("starting on ") for status in seen)
    lost = Run(tmp_path / "ray" / mark)
    (resume,) = json.loads(lost.environment_path.read_text())["resumes"]
    assert 0 < resume["step"] <= 200
    run_without_workers(runs, tmp_path / "here", about)
    ray_row, here_row = (runs[2].read(tmp_path / where / runs[2].name) for where in ("ray", "here"))
    assert ray_row.values == here_row.values
    for run in runs[:2]:
        ray, here = (Run(tmp_path / where / run.name) for where in ("ray", "here"))
        names = [sorted(path.name for path in one.folder.iterdir()) for one in (ray, here)]
        assert names[0] == names[1]
        for scaling in (None, *run.scalings):
            ours, theirs = ray.read_evaluation(scaling), here.read_evaluation(scaling)
            assert ours is not None
            assert theirs is not None
            for length, found in theirs["by_length"].items():
                assert ours["by_length"][length]["windows"] == found["windows"]
    assert not (tmp_path / "ray" / NODE_FILE).exists()
    assert not list_processes(str(tmp_path))
    assert not list_processes("whorl-ray-")  # the folder of a local Ray is in its command lines
    assert {path: path.exists() for path in homes} == homes
    # All is finished, so that nothing is started.
    again = run_all(runs, tmp_path / "ray", about, workers=2, show=print, ray="nowhere:1")
    assert {status.state for status in again} == {"done"}


CLUSTER = """
import sys
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False,
         object_store_memory=80 * 2**20, _temp_dir=sys.argv[1], logging_level="error")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster in which another version of whorl is installed."""
    (tmp_path / "site" / "whorl-0.0.1.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: whorl\nVersion: 0.0.1\n"
    (tmp_path / "site" / "whorl-0.0.1.dist-info" / "METADATA").write_text(metadata)
    for name, value in (
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_worker_niceness", "0"),
    ):
        monkeypatch.setenv(name, value)
    temporary = ray_workers._make_temporary_folder()
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, temporary],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.communicate()  # the end of its input: Ray ends
        shutil.rmtree(temporary, ignore_errors=True)


@pytest.mark.slow
@needs_ray
@in_proc
def test_a_cluster_with_another_version(
    small: RunConfig, tmp_path: Path, other_version: str
) -> None:
    ours = metadata.version("whorl")
    message = (
        rf"^ray: all machines must have the same whorl, .*: {platform.node()} has {ours},"
        rf" {platform.node()} has 0\.0\.1\. Install whorl {ours} there\.$"
    )
    check_ray(other_version)
    with pytest.raises(ValueError, match=message):
        run_all([PlannedRun("a", small)], tmp_path, {}, show=print, ray=other_version)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / NODE_FILE).exists()
    assert not list_processes(str(tmp_path))


@pytest.mark.slow
def test_a_cluster_that_is_lost_leaves_what_is_finished(
    small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_workers, "_DRIVER", "tests.lab.ray_stub")
    runs = [PlannedRun("a", small), PlannedRun("b", small)]
    statuses = run_all(runs, tmp_path, {}, show=lambda statuses: None, ray="stub:1")
    assert [status.state for status in statuses] == ["done", "failed"]
    assert statuses[1].reason == (
        "the Ray cluster was lost: No GCS for 20 s; what is finished stays, and the same command"
        " goes on"
    )
    with pytest.raises(ValueError, match=r"^ray: host b has torch 1\.0\.$"):
        run_all(runs, tmp_path, {}, show=print, ray="refused:1")


def test_addresses_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "find_spec", lambda name: True)
    check_ray("local")
    for address in ("lokal", "ray://a:1", "a:b", ":1", "a:70000"):
        with pytest.raises(ValueError, match=r"^ray must be local, or HOST:PORT of a Ray cluster"):
            check_ray(address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_ray(f"127.0.0.1:{port}")
    with pytest.raises(ValueError, match=rf"nothing answers at 127\.0\.0\.1:{port} \(.*refused\)"):
        check_ray(f"127.0.0.1:{port}")
    monkeypatch.setattr(ray_workers, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"need ray: pip install 'whorl\[ray\]'\."):
        check_ray("local")


def test_a_port_of_another_program(
    small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not come back with an answer is ended."""
    monkeypatch.setattr(ray_workers, "_SECONDS_TO_CONNECT", 0.0)
    monkeypatch.setattr(ray_workers, "_SECONDS_TO_END", 0.0)
    with pytest.raises(ValueError, match=r"no Ray cluster answered at x:1 within 0 s; is it anot"):
        RayWorkers("x:1", None, tmp_path)


def test_machines_that_differ(tmp_path: Path) -> None:
    (tmp_path / NODE_FILE).write_text("ours")
    ours = describe_node(str(tmp_path), NODE_FILE)
    assert find_mismatch(ours, ours, str(tmp_path)) is None
    for change, message in (
        (
            {"torch": "1.0"},
            f"the same torch, .* b has 1\\.0\\. Install torch {re.escape(ours['torch'])} there",
        ),
        ({"whorl": None}, r"the same whorl, .* b has none\. Install whorl"),
        ({"Python": "3.9.0"}, r"the same Python, .* b has 3\.9\.0\."),
        ({"text": "theirs"}, r"b does not see the results folder '.*' \(it is another folder the"),
        ({"writable": False}, r"b cannot write to the results folder"),
    ):
        found = find_mismatch(ours, {**ours, "host": "b", **change}, str(tmp_path))
        assert found is not None
        assert re.search(message, found)
    elsewhere = describe_node(str(tmp_path / "none"), NODE_FILE)
    lines = [*run_job("no.module", {}, elsewhere | {"text": "x"}, str(tmp_path / "none"), ".")]
    assert len(lines) == 1
    assert "does not see the results folder" in json.loads(lines[0])["reason"]
    assert "(No such file or directory)" in lines[0]


def test_a_worker_that_is_killed_is_lost(tmp_path: Path) -> None:
    """One that ends by itself is not: it would end so everywhere."""
    (tmp_path / NODE_FILE).write_text("ours")
    ours = describe_node(str(tmp_path), NODE_FILE)
    request = {"folder": str(tmp_path / "run"), "signal": signal.SIGKILL}
    lines = [*run_job("tests.lab.killed_worker", request, ours, str(tmp_path), os.getcwd())]
    assert [*map(json.loads, lines)][-1] == {
        "lost": f"on {ours['host']}: its process was killed by signal 9 (out of memory?); run"
        " again to continue"
    }
    lines = [*run_job("no.module", request, ours, str(tmp_path), os.getcwd())]
    assert "No module named" in json.loads(lines[-1])["ended"]
    failing = {"folder": str(tmp_path / "run"), "reason": "no space in 'run'."}
    lines = [*run_job("tests.lab.killed_worker", failing, ours, str(tmp_path), os.getcwd())]
    failed = {"end": "failed", "reason": f"no space in 'run' (on {ours['host']})"}
    assert failed in [*map(json.loads, lines)]


def test_a_signal_while_it_ends_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C, or the second SIGTERM of ``timeout``, comes while Ray is asked to end."""
    monkeypatch.setattr(ray_workers, "_DRIVER", "tests.lab.ray_stub")
    workers = RayWorkers("stub:1", None, tmp_path)
    driver = workers._driver
    assert [path.name for path in tmp_path.iterdir()] == [NODE_FILE]
    waits: list[object] = []

    def wait(timeout: float | None = None) -> int:
        waits.append(timeout)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return subprocess.Popen.wait(driver, timeout)

    monkeypatch.setattr(driver, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        workers.close()
    assert driver.poll() is not None
    assert not list(tmp_path.iterdir())


def test_files_of_a_command_that_was_killed(tmp_path: Path) -> None:
    """The process that uses Ray removes them, but not those of the command that came after it."""
    temporary = tmp_path / "whorl-ray"
    settings = {"folder": str(tmp_path), "note": "ours", "temporary": str(temporary)}
    note = tmp_path / NODE_FILE
    for text, stays in (("ours", False), ("theirs", True)):
        note.write_text(text)
        temporary.mkdir()
        ray_driver._remove_files(settings)
        assert (note.exists(), temporary.exists()) == (stays, False)


class FakeRay:
    """What ``_RayTasks`` uses of Ray: a task gives the lines, or raises the errors, of a list."""

    class exceptions:  # noqa: N801  # as ray names it
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            cause = OSError("no space")

        class TaskCancelledError(RayError):
            pass

    def __init__(self, *tasks: Sequence[Any]) -> None:
        self.tasks = [*tasks]

    def remote(self, *_: object) -> Any:
        return self if callable(_[0]) else iter(self.tasks.pop(0))

    def options(self, **_: object) -> "FakeRay":
        return self

    def get(self, line: Any) -> Any:
        if isinstance(line, Exception):
            raise line
        return json.dumps(line)


def follow_tasks(ray: FakeRay) -> list[dict[str, Any]]:
    """What is said about one run."""
    answers, settings = io.StringIO(), {"folder": "out", "cwd": "."}
    tasks = ray_driver._RayTasks(ray, settings, {}, answers)
    tasks.orders[0] = {"run": 0, "worker": "a.module", "request": {"folder": "out/a"}}
    tasks._submit(0)
    while tasks.busy:
        for lines in [*tasks.busy]:
            tasks._read_line(lines)
    said = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert {one.pop("run") for one in said} == {0}
    return said


def test_a_run_goes_on_elsewhere_three_times() -> None:
    """After a worker that was killed, and after a task that Ray lost; what failed has failed."""
    errors = FakeRay.exceptions
    killed, lost = [{"phase": "training"}, {"lost": "on b: killed"}], [errors.RayError("gone")]
    done = [{"end": "done"}]
    going_on = {"phase": "worker lost, going on"}
    said = follow_tasks(FakeRay(killed, lost, killed, done))
    assert said.count(going_on) == 3
    assert said[-1] == {"state": "done", "reason": ""}
    said = follow_tasks(FakeRay(lost, killed, lost, killed))
    assert said.count(going_on) == 3
    assert said[-1]["state"] == "failed"
    assert said[-1]["reason"] == "its worker was lost 4 times: on b: killed"
    for task, state, reason in (
        ([{"end": "failed", "reason": "x (on b)"}], "failed", "x (on b)"),
        ([{"ended": "on b: code 1"}], "failed", "on b: code 1"),
        ([errors.RayTaskError()], "failed", "no space"),
        ([errors.TaskCancelledError()], "interrupted", ""),
        ([], "failed", "its task ended without an answer"),
    ):
        assert follow_tasks(FakeRay(task)) == [{"state": state, "reason": reason}]


def test_a_cluster_that_refuses() -> None:
    """It may have a token that is not here; a local one makes its own."""

    class Refusing(FakeRay):
        def init(self, **_: object) -> None:
            raise ConnectionError("Failed to\n  connect.")

    settings = {"address": "a:1", "cpus": 1, "temporary": ""}
    message = (
        r"^a:1 refused the connection: Failed to connect\. If the cluster has a token, .*too\.$"
    )
    with pytest.raises(ray_driver._Refused, match=message):
        ray_driver._connect(Refusing(), settings)
    with pytest.raises(ray_driver._Refused, match=r"^local refused the .*: Failed to connect\.$"):
        ray_driver._connect(Refusing(), {**settings, "address": "local"})
