"""What an sdist and a wheel must contain: the files that git has, and nothing else.

``python -m tests.distribution dist/*.tar.gz dist/*.whl`` names every file that is missing or does
not belong there, and then ends with exit code 1.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["find_problems", "list_sdist", "list_tracked", "list_wheel"]

ROOT = Path(__file__).parent.parent
#: Files of an sdist outside csrc/ and src/.
_TOP = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
#: A list of the libraries that auditwheel made part of the wheel: there are none.
_OPTIONAL = {"sboms/auditwheel.cdx.json"}
_LIBRARY = re.compile(r"whorl/kernels/(libwhorl\.(so|dylib)|whorl\.dll)")


def list_tracked(*folders: str) -> set[str]:
    """Paths of the files below these folders that git has."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", *folders]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(found.split("\0")) - {""}


def list_sdist(path: Path) -> set[str]:
    """Paths of the files in an sdist, without the folder that they are all in."""
    with tarfile.open(path) as archive:
        names = [member.name for member in archive.getmembers() if not member.isdir()]
    return {name.partition("/")[2] for name in names}


def list_wheel(path: Path) -> set[str]:
    """Paths of the files in a wheel, those of its metadata without the folder."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return {re.sub(r"^whorl-[^/]+\.dist-info/", "", name) for name in names}


def find_problems(path: Path, tracked: Iterable[str]) -> list[str]:
    """Sentences about files that are missing or do not belong there; none if all is well.

    tracked: the files of src/ and csrc/.
    """
    files = set(tracked)
    if path.name.endswith(".tar.gz"):
        return _compare(list_sdist(path), files | _TOP, set())
    package = {name.removeprefix("src/") for name in files if name.startswith("src/")}
    found = list_wheel(path)
    libraries = {name for name in found if _LIBRARY.fullmatch(name)}
    problems = _compare(found - libraries, package | _METADATA, _OPTIONAL)
    return [*problems, *([] if libraries else ["the C library is missing"])]


def _compare(found: set[str], wanted: set[str], optional: set[str]) -> list[str]:
    missing = [f"{name} is missing" for name in sorted(wanted - found)]
    return [
        *missing,
        *(f"{name} does not belong here" for name in sorted(found - wanted - optional)),
    ]


def main(paths: list[str]) -> int:
    tracked = list_tracked("src", "csrc")
    problems = 0
    for path in map(Path, paths):
        for problem in find_problems(path, tracked):
            problems += 1
            print(f"{path.name}: {problem}", file=sys.stderr)
    print(f"{len(paths)} archives, {problems} problems")
    return 1 if problems or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
