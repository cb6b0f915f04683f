"""Lengths as people type them, at every option that asks for one."""

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

pytest.importorskip("typer")

REFUSED = "a length must be a whole number of tokens above 0, such as 4096, 128k (k = 1024) or 1e5"

#: Every option that takes one length, by command.
LENGTHS = {
    ("compare", "--length"),
    ("doctor", "--length"),
    ("explain", "--position"),
    ("explain", "--trained"),
    ("extend", "--trained"),
    ("finetune", "--length"),
    ("finetune", "--trained"),
    ("generate", "--length"),
    ("generate", "--window"),
    ("inspect", "--length"),
    ("inspect", "--trained"),
    ("plan", "--length"),
    ("plot", "--length"),
    ("stream", "--window"),
    ("train", "--length"),
}


def options() -> Iterator[tuple[str, str, Any, Any]]:
    """Command, flag, type and description of every option."""
    from whorl.cli.app import app

    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        for parameter, hint in get_type_hints(command.callback, include_extras=True).items():
            kind, *described = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if described:
                flags = described[0].param_decls or [f"--{parameter.replace('_', '-')}"]
                yield name, flags[0], kind, described[0]


def test_every_option_about_tokens_takes_a_length() -> None:
    """A new option that asks for a number of tokens is listed above, or this fails."""
    found = {(name, flag): (kind, described) for name, flag, kind, described in options()}
    numbers = {key for key, (kind, _) in found.items() if kind in (int, int | None)}
    words = ("token", "position", "context", "length")
    about = {
        key for key in numbers if any(word in (found[key][1].help or "").lower() for word in words)
    }
    assert about == LENGTHS
    for key in LENGTHS:
        described = found[key][1]
        assert described.metavar == "N, 128k"
        assert [described.parser(text) for text in ("128k", "1e5", "7")] == [131_072, 100_000, 7]


def test_they_reach_what_they_are_for(whorl: Callable[..., Any]) -> None:
    typed, plain = (
        whorl("inspect", "llama-2-7b", "--json", "--length", length, "--trained", trained).out
        for length, trained in (("16k", "4k"), ("16384", "4096"))
    )
    assert typed == plain
    found = json.loads(whorl("doctor", "llama-2-7b", "--length", "128k", "--json").out)
    assert "at 131072 tokens" in json.dumps(found["findings"]).replace(",", "")
    assert (
        json.loads(whorl("plot", "decay", "--json", "--length", "0.5k").out)["distances"][-1] == 512
    )
    assert "1,024" in whorl("explain", "rope", "--position", "1k").out
    assert whorl("explain", "rope", "--position", "0").code == 0


def test_train_writes_them_as_numbers(whorl: Callable[..., Any]) -> None:
    settings = ("--encoding", "learned", "--set", "max_length=2k", "--length", "0.25k")
    out = whorl("train", *settings, "--show-config").out
    assert "max_length = 2048\n" in out
    assert "length = 256\n" in out
    assert 'max_length = "2kb"' in whorl(
        "train", "--encoding", "learned", "--set", "max_length=2kb", "--show-config"
    ).out  # fmt: skip


@pytest.mark.parametrize(
    ("args", "key", "value"),
    [
        (["wavelengths", "--set", "context=128k"], "context", 131_072),
        (["angles", "--set", "positions=0,1k,1e5"], "positions", [0, 1024, 100_000]),
        (["bases", "--set", "length=2k"], "length", 2048),
    ],
)
def test_options_of_charts(
    whorl: Callable[..., Any], args: list[str], key: str, value: Any
) -> None:
    found = json.loads(whorl("plot", *args, "--json").out)
    assert found.get(key, value) == value
    assert str(value if isinstance(value, int) else value[1])[:3] in json.dumps(found)


def test_lengths_of_properties(whorl: Callable[..., Any]) -> None:
    done = whorl("properties", "--encodings", "nope", "--lengths", "32,0.0625k", "--json")
    assert [cost["length"] for cost in json.loads(done.out)["rows"][0]["costs"]] == [32, 64]
    done = whorl("properties", "--lengths", "512,2kb")
    assert done.code == 2
    assert (
        done.err
        == f"error: --lengths takes lengths such as 512,2k, or none: {REFUSED}; got '2kb'.\n"
    )


@pytest.mark.parametrize("text", ["12kb", "0", "-4", "1.5", ""])
@pytest.mark.parametrize("command", ["inspect", "doctor"])
def test_refused_in_words(whorl: Callable[..., Any], command: str, text: str) -> None:
    done = whorl(command, "llama-2-7b", f"--length={text}")
    assert done.code == 2
    words = " ".join(done.err.replace("│", " ").split())
    assert "Invalid value for '--length'" in words
    assert f"{REFUSED}; got {text!r}." in words


@pytest.mark.parametrize("text", ["-", "1.5", "x"])
def test_positions_are_refused_in_words(whorl: Callable[..., Any], text: str) -> None:
    done = whorl("explain", "rope", f"--position={text}")
    assert done.code == 2
    assert REFUSED in " ".join(done.err.replace("│", " ").split())
