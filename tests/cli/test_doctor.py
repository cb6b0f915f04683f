"""``whorl doctor``: what people see, exit codes, JSON, and the corrected file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.configs.diagnosis import RULES, SEVERITIES
from whorl.configs.diagnosis.engine import LLAMA

Whorl = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    def write(**keys: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**LLAMA, **keys}))
        return str(path)

    return write


def test_a_clean_config(whorl: Whorl, config: Callable[..., str]) -> None:
    done = whorl("doctor", config())
    assert done.code == 0
    assert done.out.endswith("  llama\n\nnothing found.\n")


def test_findings(whorl: Whorl, config: Callable[..., str]) -> None:
    done = whorl("doctor", config(rope_scaling={"factor": 4.0}, rope_thta=500000.0))
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert done.code == 3
    assert lines[1:] == [
        "",
        "error  lone-factor  rope_scaling.factor",
        "  factor is 4, but no rope_type says how to use it.",
        '  -> Add the type that you mean: "rope_type": "linear", "dynamic" or "yarn".',
        "",
        "warning  misspelt-key  rope_thta",
        "  nothing reads 'rope_thta'; did you mean 'rope_theta'?",
        "  -> Correct the name.",
        "",
        "1 error, 1 warning; --fix corrects 1 of them.",
        "whorl doctor --explain ID gives the reason and an example.",
    ]


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 3)])
def test_warnings_fail_when_strict(
    whorl: Whorl, config: Callable[..., str], strict: list[str], code: int
) -> None:
    path = config(rope_thta=500000.0)
    assert whorl("doctor", path, *strict).code == code
    assert whorl("doctor", path, *strict, "--ignore", "misspelt-key").code == 0


def test_notes_never_fail(whorl: Whorl, config: Callable[..., str]) -> None:
    done = whorl("doctor", config(head_dim=96), "--strict")
    assert done.code == 0
    assert "note  head-dim-explicit  head_dim" in done.out


def test_a_length(whorl: Whorl, config: Callable[..., str]) -> None:
    assert "beyond-seen" in whorl("doctor", config(), "--length", "8192").out


def test_json(whorl: Whorl, config: Callable[..., str]) -> None:
    path = config(rope_scaling={"factor": 4.0})
    done = whorl("doctor", path, "--json")
    found = json.loads(done.out)
    assert done.code == 3
    assert found["path"] == path
    assert found["model_type"] == "llama"
    assert found["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert found["findings"] == [
        {
            "rule": "lone-factor",
            "severity": "error",
            "where": "rope_scaling.factor",
            "message": "factor is 4, but no rope_type says how to use it.",
            "remedy": RULES["lone-factor"].remedy,
            "docs": "docs/doctor.md#lone-factor",
            "fixable": False,
            "failed": False,
        }
    ]


def test_fix(whorl: Whorl, config: Callable[..., str]) -> None:
    path = config(rope_thta=500000.0)
    done = whorl("doctor", path, "--fix")
    fixed = Path(path).with_name("config.fixed.json")
    assert done.code == 0
    assert '-  "rope_thta": 500000.0\n+  "rope_theta": 500000.0\n' in _plain(done.out)
    assert "written to " in done.out
    assert json.loads(fixed.read_text())["rope_theta"] == 500000.0
    assert "rope_thta" in Path(path).read_text()
    assert whorl("doctor", str(fixed), "--strict").code == 0

    again = whorl("doctor", path, "--fix")
    assert again.code == 2
    said = "config.fixed.json' exists already; overwrite it with force=True (--force).\n"
    assert again.err.endswith(said)
    forced = whorl("doctor", path, "--fix", "--force", "--json")
    assert json.loads(forced.out)["fixed"] == str(fixed)
    assert json.loads(forced.out)["diff"].startswith("--- config.json\n+++ config.fixed.json\n")


def test_what_remains_after_a_fix_is_said(whorl: Whorl, config: Callable[..., str]) -> None:
    """The type is corrected; the lists that longrope needs are still missing."""
    path = config(rope_scaling={"rope_type": "su", "factor": 4.0})
    done = whorl("doctor", path, "--fix")
    before, after = done.out.split("\nwritten to ")
    assert "unreadable" not in before
    assert "before: 1 error, 1 warning." in after
    assert "in the corrected config: 1 error, 1 warning." in after
    assert "error  unreadable" in after
    assert "longrope needs a factor" in after
    assert done.code == 3

    left = json.loads(whorl("doctor", path, "--fix", "--force", "--json").out)["remaining"]
    assert left["counts"] == {"error": 1, "warning": 1, "note": 0}
    assert [f["rule"] for f in left["findings"]] == ["unreadable", "original-missing"]

    path = config(rope_thta=500000.0)
    done = whorl("doctor", path, "--fix", "--force")
    assert "the corrected config has no findings." in done.out


def test_nothing_to_fix(whorl: Whorl, config: Callable[..., str]) -> None:
    path = config(rope_scaling={"factor": 4.0})
    done = whorl("doctor", path, "--fix")
    assert "no finding here can be corrected automatically; no file was written." in done.out
    assert not Path(path).with_name("config.fixed.json").exists()


def test_list_has_every_rule(whorl: Whorl) -> None:
    done = whorl("doctor", "--list")
    assert done.code == 0
    listed = [line.split()[0] for line in done.out.splitlines() if line[:2] == "  " != line[2:4]]
    named = [name for name in listed if name in RULES]
    groups = {s: sorted(n for n, rule in RULES.items() if rule.severity == s) for s in SEVERITIES}
    assert named == [name for group in groups.values() for name in group]
    assert all(f"{severity}s ({len(group)}): " in done.out for severity, group in groups.items())
    assert [rule["id"] for rule in json.loads(whorl("doctor", "--list", "--json").out)] == [*RULES]


def test_explain(whorl: Whorl) -> None:
    done = whorl("doctor", "--explain", "lone-factor")
    assert done.code == 0
    words = ("error  lone-factor", "remedy", "seen", '{"rope_scaling": {"factor": 4.0}}')
    assert all(word in done.out for word in words)
    assert "docs/doctor.md#lone-factor in whorl's source" in " ".join(done.out.split())
    wrong = whorl("doctor", "--explain", "lone-facto")
    assert wrong.code == 2
    assert "did you mean 'lone-factor'?" in wrong.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "doctor: name a config.json, a folder, a file or a preset; see --help."),
        (["x.json", "--force"], "--force lets --fix overwrite a file; add --fix."),
        (["model.bin"], "is a pickle file, which can run any code when it is opened"),
        (["nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_input(whorl: Whorl, args: list[str], message: str) -> None:
    done = whorl("doctor", *args)
    assert done.code == 2
    assert message in done.err


def test_every_line_fits(whorl: Whorl, config: Callable[..., str]) -> None:
    outs = [whorl("doctor", "--list").out]
    for name in ("factor-mismatch", "unused-parameters", "truncate-nested", "two-dictionaries"):
        outs.append(whorl("doctor", "--explain", name).out)
        outs.append(whorl("doctor", config(**RULES[name].trigger.keys)).out.split("\n", 1)[1])
    assert max(len(line) for out in outs for line in out.splitlines()) <= 80


def _plain(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
