"""Plant known mistakes into a copy of whorl and report which ones the tests do not notice.

``scripts/mutate`` runs it. ``mutants.toml`` lists the mistakes: each replaces one piece of one file
and names the tests that must fail then. They are run on an untouched copy first, so that a test
that fails anyway cannot pass for a kill. Only a test that fails is a kill: a mistake that ends the
process, so that no assertion was needed to see it, is reported as a crash.
"""

import os
import shutil
import signal
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

__all__ = ["Mutant", "describe_exit", "find_outcome", "load_mutants", "main"]

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutants.toml"
#: Python runs it when it starts: the finder of the editable install would come before the copy. So
#: processes that tests start see the copy too.
_STARTUP = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
"""
_RUNNER = """
import sys, pytest, whorl
assert whorl.__file__.startswith(sys.argv[1]), whorl.__file__
sys.exit({offset} + pytest.main(sys.argv[2:]))
"""
#: Added to the exit codes of pytest, because Python and os._exit(1) end with a code of 1 too.
_OFFSET = 100
_PASSED, _FAILED = _OFFSET, _OFFSET + 1
_KILLED, _SURVIVED, _CRASHED = "killed", "survived", "crashed"


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
        Path(folder, "sitecustomize.py").write_text(_STARTUP, encoding="utf-8")
        yield package


def run_tests(package: Path, tests: tuple[str, ...]) -> int:
    """Exit code of ``_RUNNER`` for ``tests`` with the whorl that lies in ``package``."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    runner = _RUNNER.format(offset=_OFFSET)
    command = [sys.executable, "-c", runner, str(package.parent), *options, *tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = str(package.parent)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode


def find_outcome(mutant: Mutant) -> str:
    """What became of the tests with the mutant planted, in the words of ``describe_exit``."""
    with copy_package() as package:
        mutant.plant(package)
        return describe_exit(run_tests(package, mutant.tests))


def describe_exit(code: int) -> str:
    """'killed' if a test failed, 'survived' if all passed, 'crashed: ...', or why neither is known.

    code: the exit code of ``_RUNNER``; below 0 it is the number of the signal that ended it.
    """
    if code in (_PASSED, _FAILED):
        return _SURVIVED if code == _PASSED else _KILLED
    if code < 0:
        return f"{_CRASHED}: {signal.Signals(-code).name}"
    if code < _OFFSET:
        return f"{_CRASHED}: Python ended with code {code}"
    return f"no result: pytest ended with code {code - _OFFSET}"


def select_mutants(names: list[str]) -> list[Mutant]:
    """The mutants of these names, or all."""
    mutants = {mutant.name: mutant for mutant in load_mutants()}
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise ValueError(f"no mutant in {LIST.name} is named {', '.join(unknown)}.")
    return [mutants[name] for name in names or mutants]


def main(names: list[str]) -> int:
    """Try the named mutants, or all; 1 if one survived or has no result."""
    mutants = select_mutants(names)
    tests = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    with copy_package() as package:
        if run_tests(package, tests) != _PASSED:
            print(f"these tests fail before anything is planted: {' '.join(tests)}")
            return 2
    counts = dict.fromkeys((_KILLED, _CRASHED, _SURVIVED, "no result"), 0)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for mutant, outcome in zip(mutants, pool.map(find_outcome, mutants), strict=True):
            counts[outcome.split(":")[0]] += 1
            print(f"{outcome:10} {mutant.name}", flush=True)
    others = [f", {count} {name}" for name, count in counts.items() if count and name != _KILLED]
    print(f"{counts[_KILLED]} of {len(mutants)} killed{''.join(others)}")
    return int(counts[_KILLED] + counts[_CRASHED] < len(mutants))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"scripts/mutate: {error}")
