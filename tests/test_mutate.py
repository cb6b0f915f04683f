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
        assert (mutate.ROOT / test.split("::")[0]).exists(), test


def test_planting_what_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    mutant = mutate.Mutant("gone", "a.py", "y = 2", "y = 3", ())
    with pytest.raises(ValueError, match=r"old must occur exactly once in a\.py; it occurs 0"):
        mutant.plant(tmp_path)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no mutant in mutants\.toml is named nobody\."):
        mutate.select_mutants(["nobody"])


@pytest.mark.slow
def test_tells_killed_from_surviving() -> None:
    tests = ("tests/_support/test_lengths.py",)
    old = '"k": 1024'
    file = "_support/lengths.py"
    killed = mutate.Mutant("thousand", file, old, '"k": 1000', tests)
    same = mutate.Mutant("same", file, old, '"k": 2**10', tests)
    crash = mutate.Mutant("crash", file, old, '"k": __import__("os").abort()', tests)
    lost = mutate.Mutant("lost", file, old, '"k": 1000', ("tests/_support/missing.py",))
    assert [mutate.find_outcome(m) for m in (killed, same, crash, lost)] == [
        "killed",
        "survived",
        "killed",
        "pytest ended with code 4",
    ]
