"""Imports go one way: no file of whorl imports a package that stands above its own, or beside it.

Read from the syntax, so that imports inside functions and for type checkers count too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import whorl

SOURCE = Path(whorl.__file__).parent

#: From the top down, as CONTRIBUTING.md draws them; those of one line do not know each other.
LAYERS = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text().split("```text\n")[1].split("```")[0]

_ABOVE = "analysis bench configs extend finetune functions hf info lab parallel plan plots"
_ABOVE += " testing weights"

#: Imports of something higher: the file, what it imports, and why it may.
EXCEPTIONS = {
    ("__init__.py", _ABOVE): "for type checkers only; loaded when it is first asked for",
    ("encodings/rotary/rotary.py", "configs"): "from_config builds what a config says, when called",
    ("plots/_numbers.py", "lab bench"): "charts of a trained run, and of all that bench compares",
}

RANKS = {name: rank for rank, line in enumerate(LAYERS.splitlines()) for name in line.split()}
ALLOWED = {(file, name) for file, names in EXCEPTIONS for name in names.split()}


#: Names of whorl itself that lie above it.
HOMES = {"check": "functions", "identify": "functions", "read_config": "configs"}


def imports(file: Path, text: str | None = None) -> Iterator[tuple[int, str]]:
    """Line and dotted name, without the leading "whorl.", of all that it takes from whorl."""
    package = ["whorl", *file.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(text or file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*start, *filter(None, [node.module])])
            names = [f"{stem}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "whorl":
                yield getattr(node, "lineno", 0), name.removeprefix("whorl").removeprefix(".")


def layer_of(name: str) -> str:
    """The package that a dotted name lies in; of a name of ``whorl`` itself, where that is from."""
    words = name.split(".")
    for count in (2, 1):
        room = ".".join(words[:count])
        if room in RANKS and name != "attention":
            return room
    return HOMES.get(words[0], "whorl")


def wrong(file: Path, text: str | None = None) -> list[str]:
    """Every import of a file that goes up or sideways."""
    where = file.relative_to(SOURCE).as_posix()
    dotted = where.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")
    mine = layer_of(dotted) if dotted != "attention" else "attention"
    found = []
    for line, name in imports(file, text):
        other = layer_of(name)
        if mine == other or (where, other) in ALLOWED:
            continue
        if RANKS[other] <= RANKS[mine]:
            found.append(f"{where}:{line} imports {name}: {mine} stands below or beside {other}")
    return found


def private(file: Path, text: str | None = None) -> set[tuple[str, str]]:
    """The file, and each private module that it takes from a package that it is not in."""
    where = file.relative_to(SOURCE).as_posix()
    found = set()
    for _, name in imports(file, text):
        words = name.split(".")
        hidden = [n for n, word in enumerate(words) if n and word.startswith("_")]
        if hidden and not where.startswith("/".join(words[: hidden[0]]) + "/"):
            found.add((where, ".".join(words[: hidden[0] + 1])))
    return found


def test_no_import_goes_up_or_sideways() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 200
    assert [line for file in files for line in wrong(file)] == []


def test_every_package_has_a_layer() -> None:
    found = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    found -= {"__init__", "__pycache__", "py.typed"}
    assert found == {name.split(".")[0] for name in RANKS} - {"whorl"}
    rooms = [name for name in RANKS if "." in name]
    assert rooms, "a listed sub-package is a room of its own"
    assert all((SOURCE / name.replace(".", "/") / "__init__.py").is_file() for name in rooms)


def test_every_exception_is_needed() -> None:
    for file, name in ALLOWED:
        assert name in {layer_of(full) for _, full in imports(SOURCE / file)}, (file, name)


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("scaling/base.py", "from whorl.encodings import RoPE", "encodings.RoPE"),
        ("scaling/base.py", "import whorl.lab.trainer", "lab.trainer"),
        ("scaling/base.py", "from ..lab import trainer", "lab.trainer"),
        ("scaling/base.py", "from whorl import RoPE", "RoPE"),
        ("configs/huggingface/read.py", "from whorl import check", "check"),
        ("configs/huggingface/read.py", "def f():\n    from whorl import lab", "lab"),
        ("configs/huggingface/read.py", "from ... import weights", "weights"),
        ("configs/source.py", "from .diagnosis import diagnose", "configs.diagnosis.diagnose"),
        (
            "configs/inspection/inspector.py",
            "from whorl.configs import diagnosis",
            "configs.diagnosis",
        ),
        ("analysis/decay.py", "from whorl.functions import check", "functions.check"),
        ("encodings/rope.py", "from whorl.configs import read_config", "configs.read_config"),
        ("__init__.py", "from .cli import main", "cli.main"),
    ],
)
def test_it_sees_imports_that_go_wrong(file: str, text: str, name: str) -> None:
    (said,) = wrong(SOURCE / file, text)
    assert f" imports {name}: " in said
    assert said.startswith(f"{file}:{len(text.splitlines())} ")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("configs/diagnosis/checkpoint.py", "from whorl.weights import detect"),
        ("analysis/terms.py", "from whorl import RoPE, attention, positions"),
        ("configs/gguf.py", "from ..scaling import YaRN\nfrom .model import Note\nimport torch"),
        ("lab/model.py", "from whorl import check, plots\nfrom . import runs"),
    ],
)
def test_it_lets_others_pass(file: str, text: str) -> None:
    assert wrong(SOURCE / file, text) == []


def test_private_files_stay_in_their_packages() -> None:
    found = set().union(*(private(file) for file in SOURCE.rglob("*.py")))
    assert found == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from whorl.bench._run import Benchmark", "bench._run"),
        ("from ..configs.huggingface._keys import read", "configs.huggingface._keys"),
        ("def f():\n    import whorl.encodings._options", "encodings._options"),
        ("from whorl.encodings.rope import _helper", "encodings.rope._helper"),
        ("from whorl._support.words import did_you_mean", None),
        ("from ._draw import altair\nfrom whorl.plots._series import GREY", None),
    ],
)
def test_it_sees_private_files_of_others(text: str, found: str | None) -> None:
    expected = set() if found is None else {("plots/maps.py", found)}
    assert private(SOURCE / "plots/maps.py", text) == expected


def test_encodings_do_not_import_each_other() -> None:
    folder = SOURCE / "encodings"
    names = {path.stem for path in folder.glob("[a-z]*.py")} - {"base"}
    assert {"rope", "alibi", "composition"} <= names
    for file in {*folder.glob("*.py")} - {folder / "__init__.py"}:
        taken = {name.split(".")[1] for _, name in imports(file) if name.startswith("encodings.")}
        allowed = {"composition"} if file.name == "base.py" else set()  # a + b makes one
        assert taken & names <= allowed, file.name


def test_the_oracle_imports_nothing_it_judges() -> None:
    assert list(imports(SOURCE / "kernels" / "reference.py")) == []
