"""Freeze the commands and flags, and how the command behaves as a whole."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

import whorl as library
from whorl.cli import main

SURFACE = {
    "": ["--install-completion", "--show-completion", "--version"],
    "bench": [
        "--chart",
        "--dtypes",
        "--full",
        "--json",
        "--out",
        "--peers",
        "--quick",
        "--resume",
        "--shapes",
        "--threads",
        "what",
    ],
    "check": ["--base", "--head-dim", "--identify", "--json", "--kind", "function"],
    "compare": [
        "--architecture",
        "--attention",
        "--batch",
        "--budget",
        "--chart",
        "--data",
        "--encodings",
        "--force",
        "--from",
        "--heads",
        "--json",
        "--kind",
        "--layers",
        "--learning-rates",
        "--length",
        "--minutes",
        "--no-speed",
        "--out",
        "--qk-norm",
        "--ray",
        "--scalings",
        "--search",
        "--seeds",
        "--steps",
        "--task",
        "--tokenizer",
        "--width",
        "--workers",
        "config",
    ],
    "doctor": [
        "--explain",
        "--fix",
        "--force",
        "--ignore",
        "--json",
        "--length",
        "--list",
        "--live",
        "--strict",
        "target",
    ],
    "experiment": [
        "--budget",
        "--chart",
        "--data",
        "--force",
        "--from",
        "--json",
        "--list",
        "--out",
        "--ray",
        "--seeds",
        "--steps",
        "--workers",
        "name",
    ],
    "explain": [
        "--base",
        "--dim",
        "--factor",
        "--heads",
        "--json",
        "--position",
        "--trained",
        "encoding",
    ],
    "explore": [
        "--export",
        "--factor",
        "--method",
        "--no-open",
        "--picture",
        "--port",
        "--runs",
        "config",
        "other",
    ],
    "extend": [
        "--budget",
        "--chart",
        "--evaluations",
        "--force",
        "--json",
        "--method",
        "--methods",
        "--minutes",
        "--out",
        "--results",
        "--retrieval",
        "--search",
        "--seed",
        "--text",
        "--to",
        "--trained",
        "--windows",
        "--write",
        "config",
    ],
    "finetune": [
        "--accumulation",
        "--attention",
        "--batch",
        "--clip",
        "--drop-positions",
        "--factor",
        "--force",
        "--json",
        "--learning-rate",
        "--length",
        "--lora",
        "--method",
        "--out",
        "--positions",
        "--precision",
        "--seed",
        "--shard",
        "--steps",
        "--text",
        "--trained",
        "--validation",
        "model",
    ],
    "generate": [
        "--cache",
        "--json",
        "--length",
        "--prompt",
        "--seed",
        "--sinks",
        "--temperature",
        "--window",
        "run",
    ],
    "convert": [
        "--check",
        "--force",
        "--head-dim",
        "--heads",
        "--json",
        "--kv-heads",
        "--pattern",
        "--rotary-dim",
        "--rotary-start",
        "--to",
        "out",
        "source",
    ],
    "detect": [
        "--head-dim",
        "--heads",
        "--json",
        "--kv-heads",
        "--pattern",
        "--rotary-dim",
        "--rotary-start",
        "checkpoint",
    ],
    "info": ["--json"],
    "plan": [
        "--attention",
        "--bandwidth",
        "--batch",
        "--device",
        "--efficiency",
        "--encoding",
        "--flops",
        "--heads",
        "--json",
        "--kv-heads",
        "--layers",
        "--length",
        "--link",
        "--memory",
        "--parameters",
        "--precision",
        "--vocabulary",
        "--width",
        "--window",
        "config",
    ],
    "plot": [
        "--base",
        "--config",
        "--dim",
        "--encoding",
        "--json",
        "--length",
        "--list",
        "--out",
        "--run",
        "--set",
        "--theme",
        "name",
    ],
    "properties": ["--encodings", "--json", "--lengths"],
    "inspect": [
        "--extend",
        "--factor",
        "--json",
        "--layer-type",
        "--length",
        "--list",
        "--parity",
        "--plot",
        "--trained",
        "config",
        "other",
    ],
    "stream": [
        "--chart",
        "--json",
        "--length",
        "--sinks",
        "--streams",
        "--text",
        "--window",
        "run",
    ],
    "train": [
        "--architecture",
        "--attention",
        "--batch",
        "--data",
        "--encoding",
        "--encoding-learning-rate",
        "--export",
        "--force",
        "--from",
        "--heads",
        "--json",
        "--kind",
        "--kv-heads",
        "--layers",
        "--learning-rate",
        "--length",
        "--out",
        "--passes",
        "--precision",
        "--qk-norm",
        "--scalings",
        "--seed",
        "--set",
        "--shard",
        "--show-config",
        "--steps",
        "--task",
        "--threads",
        "--tokenizer",
        "--width",
        "config",
    ],
}


def flags(command: Any) -> list[str]:
    return sorted(o for p in command.params for o in (*p.opts, *p.secondary_opts))


def test_commands_and_flags_are_frozen() -> None:
    typer_main = pytest.importorskip("typer.main")
    from whorl.cli.app import app

    root = typer_main.get_command(app)
    found = {"": flags(root), **{name: flags(command) for name, command in root.commands.items()}}
    assert found == SURFACE


@pytest.mark.parametrize("command", SURFACE)
def test_help_ends_with_an_example_that_parses(whorl: Callable[..., Any], command: str) -> None:
    done = whorl(*command.split(), "--help")
    assert done.code == 0
    _, last = done.out.split("Example: ")
    program, name, *options = last.split()
    assert program == "whorl"
    assert {o for o in options if o.startswith("--")} <= set(SURFACE[name])
    assert max(map(len, done.out.splitlines())) <= 80


def test_version(whorl: Callable[..., Any]) -> None:
    assert whorl("--version") == (0, f"whorl {library.__version__}\n", "")


def test_without_arguments_it_says_what_to_do_first(whorl: Callable[..., Any]) -> None:
    from whorl.cli._start import COMMANDS

    done = whorl()
    assert (done.code, done.err) == (0, "")
    assert all(command in done.out for command in COMMANDS)
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.out.index("inspect") < done.out.index("By task")
    for command in COMMANDS:
        program, name, *options = command.split()
        assert program == "whorl"
        assert {each for each in options if each.startswith("--")} <= set(SURFACE[name])


@pytest.mark.parametrize("args", [["inof"], ["info", "--jsn"], ["bench", "--out"]])
def test_a_usage_error(whorl: Callable[..., Any], args: list[str]) -> None:
    done = whorl(*args)
    assert done.code == 2
    assert done.out == ""
    assert "Error" in done.err
    assert args[-1] in done.err


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_names_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([]) == 1
    line = "the whorl command needs typer and rich: pip install 'whorl[cli]'.\n"
    assert capsys.readouterr() == ("", line)


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")

    def broken() -> None:
        raise AssertionError("ours")

    monkeypatch.setattr("whorl.info.describe", broken)
    with pytest.raises(AssertionError, match="ours"):
        main(["info"])


def test_an_interrupt(whorl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("whorl.info.describe", stop)
    assert whorl("info") == (130, "", "interrupted.\n")


def test_the_installed_script_returns_the_exit_code() -> None:
    pytest.importorskip("typer")
    (script,) = entry_points(group="console_scripts", name="whorl")
    assert script.value == "whorl.cli:main"
    code = "import sys; from whorl.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "nonesuch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "nonesuch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [name for name in SURFACE if name])
def test_help_shows_every_word_and_breaks_no_sentence(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich takes [words] for markup and drops them; typer keeps line breaks of the source."""
    from typer.main import get_command

    from whorl.cli.app import app

    monkeypatch.setenv("COLUMNS", "400")
    main([command, "--help"])
    found = " ".join(capsys.readouterr().out.replace("\u2502", " ").split())
    known: Any = get_command(app)
    for option in known.commands[command].params:
        assert not option.help or " ".join(option.help.split()) in found, option.name
    assert "[[" not in found  # an optional argument has one pair of brackets
    for paragraph in (known.commands[command].callback.__doc__ or "").split("\n\n"):
        assert "\n " not in known.commands[command].help
        assert " ".join(paragraph.split()) in found
