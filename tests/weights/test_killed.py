"""kill -9 at every step of a conversion: the source stays, and the output is whole or absent.

A new process loads whorl once and forks for each step; the copy kills itself there. Steps are every
file that is opened, made, renamed or removed (audit events), and every piece that is written.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .made import llama, llama_config, save_sharded, write_config

SCRIPT = """
import hashlib, json, os, shutil, signal, sys
from pathlib import Path
import torch
from whorl.weights import convert

torch.set_num_threads(1)
source, out = Path(sys.argv[1]), Path(sys.argv[2])
SEEN = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir")

def state(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

def attempt(step):
    left = step
    def tick(*ignored):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(lambda event, args: tick() if event in SEEN else None)
    convert(source, out, to="interleaved", progress=tick)
    os._exit(0)

before, found = state(source), []
for step in range(1, 1000):
    child = os.fork()
    if child == 0:
        attempt(step)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    hidden = [path.name for path in out.parent.glob(".*.part")]
    found.append([code, state(out) if out.exists() else None, len(hidden)])
    assert state(source) == before
    if code == 0:
        break
    if out.exists():  # whole, so the next attempt needs another place
        shutil.rmtree(out)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(sys, "addaudithook") or sys.platform == "win32", reason="forks")
def test_killed_anywhere(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    save_sharded(source, llama(layers=1, heads=2, key_heads=1), 2)
    write_config(source, **llama_config(layers=1, heads=2, key_heads=1))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *killed, last = json.loads(done.stdout)
    assert len(killed) > 30
    assert {code for code, _, _ in killed} == {-9}
    code, whole, hidden = last
    assert (code, hidden) == (0, 0), "the last attempt ran to its end and cleared up"
    assert len(whole) == 4
    states = [state for _, state, _ in killed]
    assert {json.dumps(state) for state in states} <= {"null", json.dumps(whole)}
    # Absent until some step, whole from then on.
    there = [state is not None for state in states]
    assert there == sorted(there)
    assert there.count(False) > 30
    # Each attempt removes what the one before it left.
    assert max(hidden for _, _, hidden in killed) == 1
