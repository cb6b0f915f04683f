"""``whorl finetune``: what it prints, writes and refuses; and several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from safetensors.torch import load_file

from tests.extend.weights import TEXT, save_llama
from whorl.finetune import FineTuningProgress, training

from .conftest import Whorl

SHORT = ("--steps", "2", "--batch", "2", "--learning-rate", "1e-2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    save_llama(tmp_path / "llama", max_position_embeddings=16)
    return tmp_path


def test_a_page_and_json(whorl: Whorl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command = ("finetune", "llama", "--method", "linear", "--text", "text.txt", *SHORT)
    done = whorl(*command)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("llama from 16 to 64 tokens: 2 steps at 64 tokens, 31,904")
    assert done.out.endswith("written to runs/llama-linear-4x\n")
    found = json.loads(whorl(*command, "--json").out)
    assert found["scaling"] == {"name": "linear", "factor": 4.0}
    assert set(found["loss_before"]) == set(found["loss_after"]) == {"16", "64"}
    config = json.loads((folder / "runs/llama-linear-4x/config.json").read_text())
    assert config["rope_parameters"]["factor"] == 4.0


def test_it_stops_and_goes_on(whorl: Whorl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder / "out"
    command = ("finetune", str(folder / "llama"), "--text", str(folder / "text.txt"), *SHORT)

    class Stopping(FineTuningProgress):
        def __init__(self, done: int, *more: object) -> None:
            os.kill(os.getpid(), 15)
            super().__init__(done, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(training, "FineTuningProgress", Stopping)
        done = whorl(*command, "--out", str(out))
    assert done.code == 130
    assert f"stopped; the same command goes on with {str(out)!r}." in done.err
    assert not out.exists()
    assert whorl(*command, "--out", str(out)).code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "error: --text must name at least one file of text to train on; got none."),
        (("--factor", "1"), "error: --factor must be the target over the trained length, "),
        (("--factor", "1.01"), "error: --factor x the trained length must be longer than "),
        (("--method", "yran"), "error: --method 'yran' is unknown; did you mean 'yarn'?"),
        (("--method", "none", "--positions", "pose"), "error: --positions 'pose' needs a method"),
        (("--method", "yarn", "--drop-positions"), "error: --drop-positions takes the rotation"),
        (("--method", "dynamic_yarn"), "error: dynamic_yarn cannot be written: "),
        (("--length", "128"), "error: --length must be at most the target, 64 tokens; got 128."),
        (("--precision", "half"), "error: --precision must be one of float32, bfloat16; got"),
    ],
)
def test_what_is_refused(
    whorl: Whorl, folder: Path, options: tuple[str, ...], message: str
) -> None:
    text = ("--text", str(folder / "text.txt")) if options else ()
    done = whorl("finetune", str(folder / "llama"), *text, *options, "--out", str(folder / "out"))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
    assert not (folder / "out").exists()


def test_the_help_says_what_is_experimental(whorl: Whorl) -> None:
    words = " ".join(whorl("finetune", "--help").out.replace("│", "").split())
    assert "Experimental: instead of a method, take the rotation away" in words


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_two_processes_give_the_same_weights(whorl: Whorl, folder: Path, launcher: str) -> None:
    command = ["finetune", str(folder / "llama"), "--text", str(folder / "text.txt"), *SHORT]
    assert whorl(*command, "--out", str(folder / "one")).code == 0
    script = folder / "whorl_command.py"
    script.write_text("import sys\nfrom whorl.cli import main\nsys.exit(main())\n")
    start = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29613"]
    more = ["--shard"]  # each has a part of every weight
    if launcher == "accelerate":
        more = []
        pytest.importorskip("accelerate")
        start = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
        start += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        start += ["--main_process_port", "29614"]
    words = [sys.executable, *start, str(script), *command, "--out", str(folder / "two"), "--json"]
    words += more
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2  # one document: the other process prints nothing
    one, two = (load_file(folder / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-3)
