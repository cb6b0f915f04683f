"""The wheel: one binary for every Python, and a working install where there is no compiler."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from .distribution import find_problems, list_tracked, list_wheel

ROOT = Path(__file__).parent.parent


def build(folder: Path, **environment: str) -> Path:
    """A wheel of this repository, from a copy of the files that git would ship."""
    pytest.importorskip("scikit_build_core")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-q"]
    subprocess.run(
        [*command, "-w", str(folder), str(ROOT)],
        check=True,
        env={**os.environ, **environment},
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def data_files() -> set[str]:
    """All that is no code, as its path in a wheel: JSON, pages, scripts of pages."""
    source = ROOT / "src"
    suffixes = {path.suffix for path in source.rglob("*")} - {"", ".py", ".pyc", ".so", ".dylib"}
    assert {".json", ".html"} <= suffixes
    return {
        path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in suffixes
    }


def run_installed(wheel: Path, folder: Path, expected: str) -> str:
    """Unpack the wheel, and run the smoke test on it in a process of its own."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    paths = [str(folder), *(path for path in sys.path if path.endswith("site-packages"))]
    program = f"""
import runpy, sys
sys.path[:0] = {paths!r}
sys.argv[1:] = [{expected!r}]
runpy.run_path({str(ROOT / "tests" / "smoke.py")!r}, run_name="__main__")
"""
    command = [sys.executable, "-S", "-c", program]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    return process.stdout + process.stderr


@pytest.mark.slow
def test_wheel_with_a_compiler(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    tag = wheel.stem.split("-", 2)[2]
    assert tag.startswith("py3-none-"), tag
    assert tag != "py3-none-any"
    assert find_problems(wheel, list_tracked("src", "csrc")) == []
    assert data_files() <= list_wheel(wheel)
    assert '"auto": "native"' in run_installed(wheel, tmp_path / "site", "native")


@pytest.mark.slow
def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    wheel = build(tmp_path, CC="/no/such/compiler")
    assert wheel.stem.endswith("py3-none-any")
    assert find_problems(wheel, list_tracked("src", "csrc")) == ["the C library is missing"]
    assert '"auto": "reference"' in run_installed(wheel, tmp_path / "one", "reference")
    said = run_installed(wheel, tmp_path / "two", "native")
    assert "auto is reference: the C library was not built, most likely" in said


def write_sdist(folder: Path, names: Iterable[str]) -> Path:
    path = folder / "whorl-0.2.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"whorl-0.2.0/{name}"))
    return path


def test_files_that_are_missing_or_too_many_in_an_sdist_are_named(tmp_path: Path) -> None:
    top = ["CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"]
    tracked = ["csrc/whorl.h", "src/whorl/__init__.py"]
    assert find_problems(write_sdist(tmp_path, [*top, *tracked]), tracked) == []
    other = write_sdist(tmp_path, [*top, "csrc/whorl.h", "runs/rope/model.safetensors"])
    assert find_problems(other, tracked) == [
        "src/whorl/__init__.py is missing",
        "runs/rope/model.safetensors does not belong here",
    ]


def test_files_that_are_missing_or_too_many_in_a_wheel_are_named(tmp_path: Path) -> None:
    path = tmp_path / "whorl-0.2.0-py3-none-manylinux_2_17_x86_64.whl"
    metadata = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    with zipfile.ZipFile(path, "w") as archive:
        for name in [f"whorl-0.2.0.dist-info/{name}" for name in metadata]:
            archive.writestr(name, "")
        archive.writestr("tests/golden.json", "")
        archive.writestr("whorl.libs/libgomp-a1b2c3.so.1", "")
    assert find_problems(path, ["csrc/whorl.h", "src/whorl/py.typed"]) == [
        "whorl/py.typed is missing",
        "tests/golden.json does not belong here",
        "whorl.libs/libgomp-a1b2c3.so.1 does not belong here",
        "the C library is missing",
    ]


def test_citation_and_package_have_one_version() -> None:
    package = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert package
    assert citation
    assert package[1] == citation[1]
