"""The wheel: one binary for every Python, and a working install where there is no compiler."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TRY = """
import torch, whorl
from whorl.kernels import native
x = torch.randn(1, 2, 5, 8)
from whorl.configs import presets
assert whorl.read_config({"model_type": "llama"}).groups
assert whorl.read_config(presets.load(presets.names()[0])).groups
print(whorl.RoPE(8)._impl, tuple(whorl.RoPE(8).rotate(x).shape), native.find_problem())
"""


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


def run_installed(wheel: Path, folder: Path) -> str:
    """Unpack the wheel and use it in a process of its own."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    process = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {[str(folder), *_site()]!r}\n{TRY}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return process.stdout.strip()


def _site() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


@pytest.mark.slow
def test_wheel_with_a_compiler(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    tag = wheel.stem.split("-", 2)[2]
    assert tag.startswith("py3-none-"), tag
    assert tag != "py3-none-any"
    listing = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("whorl/kernels/libwhorl.") for name in listing)
    assert "whorl/py.typed" in listing
    assert data_files() <= set(listing)
    assert not [name for name in listing if name.startswith(("tests", "csrc"))]
    assert run_installed(wheel, tmp_path / "site") == "native (1, 2, 5, 8) None"


@pytest.mark.slow
def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    wheel = build(tmp_path, CC="/no/such/compiler")
    assert wheel.stem.endswith("py3-none-any")
    assert not [n for n in zipfile.ZipFile(wheel).namelist() if "libwhorl" in n]
    said = run_installed(wheel, tmp_path / "site")
    assert said.startswith("reference (1, 2, 5, 8) the C library was not built, most")
