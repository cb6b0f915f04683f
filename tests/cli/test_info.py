"""``whorl info`` and the facts behind it, on this machine and on described ones."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl as library
from whorl import info
from whorl.kernels import native

NO_COMPILER = "the C library was not built: no C compiler was found"


def test_json_is_one_document(whorl: Callable[..., Any]) -> None:
    done = whorl("info", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found == info.describe().to_dict()
    assert found["versions"]["torch"] == torch.__version__
    assert found["encodings"] == library.names()
    assert found["threads"] == torch.get_num_threads()
    assert set(found["scalings"]) >= {"linear", "ntk", "dynamic_ntk"}


def test_the_page_fits_80_columns(whorl: Callable[..., Any]) -> None:
    done = whorl("info")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    for word in (library.__version__, torch.__version__, "impl='auto'", "encodings", "rope"):
        assert word in done.out


def test_a_pure_python_install_says_why(
    whorl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "find_problem", lambda: NO_COMPILER)
    monkeypatch.setattr(native, "find_library", lambda: None)
    page = whorl("info").out
    assert "reference: plain PyTorch" in page
    assert NO_COMPILER in page
    found = json.loads(whorl("info", "--json").out)
    assert found["auto"] == "reference"
    assert found["native"]["problem"] == NO_COMPILER
    assert found["native"]["openmp"] == "not used"


def test_missing_extras_name_their_pip_line(
    whorl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plots = info.Extra({"altair": None}, "pip install 'whorl[plots]'")
    found = dataclasses.replace(info.describe(), extras={"plots": plots})
    monkeypatch.setattr("whorl.info.describe", lambda: found)
    page = whorl("info").out
    assert "missing" in page
    assert page.rstrip().endswith("pip install 'whorl[plots]'")


def test_extras_from_metadata() -> None:
    found = info._find_extras(
        [
            "torch>=2.5",
            "pytest>=8; extra == 'cli'",
            'no_such-pkg[more]>=1,<2; extra == "plots"',
            "whorl[cli,plots]; extra == 'bench'",
            "elsewhere; sys_platform == 'nowhere' and extra == 'bench'",
            f"nor.this>=0; sys_platform == '{sys.platform}' and extra == 'bench'",
            "ruff; extra == 'dev'",
            "backport; python_version < '3.5' and extra == 'cli'",
            "later; (python_version >= '3.5') and extra == 'later'",
        ]
    )
    assert list(found.pop("later").packages) == ["later"]
    assert list(found) == ["bench", "cli", "plots"]
    assert found["cli"] == info.Extra({"pytest": pytest.__version__}, None)
    assert found["plots"] == info.Extra({"no_such-pkg": None}, "pip install 'whorl[plots]'")
    assert list(found["bench"].packages) == ["pytest", "no_such-pkg", "nor.this"]
    assert found["bench"].install == "pip install 'whorl[bench]'"


def test_own_markers_are_read_as_packaging_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    packaging = pytest.importorskip("packaging.markers")
    lines = metadata.requires("whorl") or []
    assert any("python_version" in line for line in lines)
    markers = [line.partition(";")[2].strip() for line in lines]
    for version in ((3, 10), (3, 11), (3, 13)):
        for system in ("linux", "darwin"):
            monkeypatch.setattr(sys, "platform", system)
            monkeypatch.setattr(sys, "version_info", version)
            here = {"python_version": f"3.{version[1]}", "sys_platform": system}
            for extra in ("lab", "bench", "web"):
                wanted = sum(
                    bool(marker) and packaging.Marker(marker).evaluate({**here, "extra": extra})
                    for marker in markers
                )
                one = [f"package{n}; {marker}" for n, marker in enumerate(markers) if marker]
                found = info._find_extras(one)
                assert len(found[extra].packages) == wanted


def test_the_real_extras_are_listed() -> None:
    extras = info.describe().extras
    assert {"bench", "cli", "hf", "lab", "plots", "tsne", "web"} <= set(extras)
    assert ("tomli" in extras["lab"].packages) == (sys.version_info < (3, 11))


@pytest.mark.parametrize(
    ("text", "model", "features"),
    [
        (
            "model name\t: Some CPU @ 2: GHz\nflags\t: fpu avx2 f16c\n\n",
            "Some CPU @ 2: GHz",
            ["avx2", "f16c"],
        ),
        ("model name : Old CPU\nflags : fpu sse2\n", "Old CPU", []),
        ("Features : fp asimd\n", None, []),
    ],
)
def test_cpu(tmp_path: Path, text: str, model: str | None, features: list[str]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    cpu = info.read_cpu(tmp_path / "cpuinfo")
    assert cpu.features == features
    assert cpu.model == (model or cpu.model)
    assert info.read_cpu(tmp_path / "absent").features is None


GOMP = "7f00-7f01 r-xp 00000000 08:01 42   /opt/torch lib/libgomp.so.1\n"
OTHER = "7f02-7f03 r-xp 00000000 08:01 43   /usr/lib/libgomp-a34b3233.so.1.0.0\n"
NOISE = "7f04-7f05 r-xp 00000000 08:01 44   /usr/lib/libcompat.so.1\n"


@pytest.mark.parametrize(
    ("maps", "answer"),
    [
        (NOISE + GOMP + GOMP, "shared with torch"),
        (GOMP + OTHER, "2 runtimes, whose threads compete: /opt/torch lib/libgomp.so.1, /usr/lib/"),
        (None, "not checked: only Linux"),
    ],
)
def test_openmp(tmp_path: Path, maps: str | None, answer: str) -> None:
    library = tmp_path / "libwhorl.so"
    library.write_bytes(b"\x7fELF\0\xfflibgomp.so.1\0")
    if maps is not None:
        (tmp_path / "maps").write_text(maps)
    assert info._describe_openmp(library, tmp_path / "maps").startswith(answer)
    library.write_bytes(b"\x7fELF\0\xfflibc.so.6\0")
    assert info._describe_openmp(library, tmp_path / "maps").startswith(
        "not used: the library was built"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(native.find_problem() is not None, reason="the C library is not loaded")
def test_the_kernel_shares_its_threads_with_torch_here() -> None:
    """In a process of its own: other packages of the tests bring OpenMP runtimes too."""
    code = "from whorl import info; print(info.describe().native.openmp)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "shared with torch\n"
