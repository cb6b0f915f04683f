"""Plant known mistakes into a copy of whorl and report which ones the tests do not notice.

``scripts/mutate`` runs it. ``mutants.toml`` lists the mistakes: each replaces one piece of one file
and names the tests that must fail then. They are run on an untouched copy first, so that a test
that fails anyway cannot pass for a kill.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import whorl
from whorl.kernels import native

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Mutant", "find_outcome", "load_mutants", "main"]

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutants.toml"
#: Runs pytest on the copy instead of the editable install, whose finder comes first otherwise.
_RUNNER = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
sys.path.insert(0, sys.argv[1])
import pytest, whorl
assert whorl.__file__.startswith(sys.argv[1]), whorl.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""
_PASSED, _FAILED = 0, 1  # pytest's exit codes


@dataclass(frozen=True)
class Mutant:
    """One mistake: ``old`` in ``file`` (below src/whorl) becomes ``new``; ``tests`` must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, package: Path) -> None:
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.name}: old must occur exactly once in {self.file}; it occurs "
                f"{text.count(self.old)} times. Update tests/mutants.toml."
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def load_mutants(path: Path = LIST) -> list[Mutant]:
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in listed]


@contextmanager
def copy_package() -> Iterator[Path]:
    """A folder with a copy of the package and its compiled library, deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="whorl-mutant-") as folder:
        package = Path(folder) / "whorl"
        shutil.copytree(
            Path(whorl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
        )
        library = native.find_library()
        if library is not None and library.exists():
            shutil.copy(library, package / "kernels")
        yield package


def run_tests(package: Path, tests: tuple[str, ...]) -> int:
    """Exit code of pytest for ``tests`` with the whorl that lies in ``package``."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-c", _RUNNER, str(package.parent), *options, *tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode


def find_outcome(mutant: Mutant) -> str:
    """'killed', also if it crashed the tests; 'survived'; or why the mutant says nothing."""
    with copy_package() as package:
        mutant.plant(package)
        code = run_tests(package, mutant.tests)
    if code == _FAILED or code < 0:  # below 0 a signal ended it, as SIGSEGV
        return "killed"
    return "survived" if code == _PASSED else f"pytest ended with code {code}"


def select_mutants(names: list[str]) -> list[Mutant]:
    """The mutants of these names, or all."""
    mutants = {mutant.name: mutant for mutant in load_mutants()}
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise ValueError(f"no mutant in {LIST.name} is named {', '.join(unknown)}.")
    return [mutants[name] for name in names or mutants]


def main(names: list[str]) -> int:
    """Try the named mutants, or all; 1 if one is not killed."""
    mutants = select_mutants(names)
    tests = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    with copy_package() as package:
        if run_tests(package, tests) != _PASSED:
            print(f"these tests fail before anything is planted: {' '.join(tests)}")
            return 2
    killed = 0
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for mutant, outcome in zip(mutants, pool.map(find_outcome, mutants), strict=True):
            killed += outcome == "killed"
            print(f"{outcome:10} {mutant.name}", flush=True)
    print(f"{killed} of {len(mutants)} killed")
    return int(killed < len(mutants))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"scripts/mutate: {error}")
