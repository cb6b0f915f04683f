"""The list of mutants fits the code, and the script tells killed from surviving ones."""

import ast
from pathlib import Path

import pytest

import whorl

from . import mutate

PACKAGE = Path(whorl.__file__).parent
MUTANTS = mutate.load_mutants()


def test_names_are_unique_and_many() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_code(mutant: mutate.Mutant) -> None:
    text = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    changed = text.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for test in mutant.tests:
        file, *names = test.split("::")
        assert (mutate.ROOT / file).exists(), test
        assert all(f"def {name}(" in (mutate.ROOT / file).read_text() for name in names), test


def test_planting_what_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    mutant = mutate.Mutant("gone", "a.py", "y = 2", "y = 3", ())
    with pytest.raises(ValueError, match=r"old must occur exactly once in a\.py; it occurs 0"):
        mutant.plant(tmp_path)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no mutant in mutants\.toml is named nobody\."):
        mutate.select_mutants(["nobody"])


#: Exit codes: pytest's plus 100, signals below 0, and Python's own.
OUTCOMES = [
    (101, "killed"),
    (100, "survived"),
    (-11, "crashed: SIGSEGV"),
    (-6, "crashed: SIGABRT"),
    (1, "crashed: Python ended with code 1"),
    (0, "crashed: Python ended with code 0"),
    (102, "no result: pytest ended with code 2"),
    (105, "no result: pytest ended with code 5"),
]


@pytest.mark.parametrize(("code", "outcome"), OUTCOMES)
def test_only_a_failing_test_is_a_kill(code: int, outcome: str) -> None:
    assert mutate.describe_exit(code) == outcome


@pytest.mark.parametrize(
    ("codes", "last", "status"),
    [
        ([101, 101], "2 of 2 killed", 0),
        ([101, -11], "1 of 2 killed, 1 crashed", 0),
        ([100, 101], "1 of 2 killed, 1 survived", 1),
        ([105, 1], "0 of 2 killed, 1 crashed, 1 no result", 1),
    ],
)
def test_the_summary_counts_each_outcome(
    codes: list[int],
    last: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A crash is noticed but no kill; what survived or has no result is the exit code."""
    chosen = dict(zip((mutant.name for mutant in MUTANTS[:2]), codes, strict=True))
    monkeypatch.setattr(mutate, "run_tests", lambda package, tests: 100)
    monkeypatch.setattr(
        mutate, "find_outcome", lambda mutant: mutate.describe_exit(chosen[mutant.name])
    )
    assert mutate.main(list(chosen)) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_tests_that_fail_anyway_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutate, "run_tests", lambda package, tests: 101)
    assert mutate.main([MUTANTS[0].name]) == 2
    said = f"these tests fail before anything is planted: {MUTANTS[0].tests[0]}"
    assert said in capsys.readouterr().out


@pytest.mark.slow
def test_tells_killed_from_surviving() -> None:
    tests = ("tests/_support/test_lengths.py",)
    old = '"k": 1024'
    file = "_support/lengths.py"
    killed = mutate.Mutant("thousand", file, old, '"k": 1000', tests)
    same = mutate.Mutant("same", file, old, '"k": 2**10', tests)
    end = mutate.Mutant("end", file, old, '"k": __import__("os")._exit(1)', tests)
    assert [mutate.find_outcome(m) for m in (killed, same, end)] == [
        "killed",
        "survived",
        "crashed: Python ended with code 1",
    ]


@pytest.mark.slow
def test_processes_that_tests_start_see_the_copy(tmp_path: Path) -> None:
    """Not the editable install, whose finder every Python loads when it starts."""
    test = tmp_path / "test_child.py"
    code = "import subprocess, sys, whorl\ndef test_child():\n    print(whorl.__file__)\n"
    code += "    child = [sys.executable, '-c', 'import whorl; print(whorl.__file__)']\n"
    code += "    assert subprocess.check_output(child, text=True).strip() == whorl.__file__\n"
    test.write_text(code)
    with mutate.copy_package() as package:
        assert mutate.describe_exit(mutate.run_tests(package, (str(test),))) == "survived"
        (package / "__init__.py").write_text("raise ImportError('the copy')\n")
        code = mutate.describe_exit(mutate.run_tests(package, (str(test),)))
    assert code.startswith("crashed: Python ended with code 1")
