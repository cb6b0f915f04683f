"""``import whorl`` loads nothing else, not even torch; names load when they are first used."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import whorl

from .fresh import run_fresh


def test_import_is_light() -> None:
    found = run_fresh("from whorl import *; import whorl.cli, whorl.explore")
    assert (found.error, found.packages) == (None, [])


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_neither_torch_nor_any_part_of_whorl() -> None:
    modules = modules_after("import whorl")
    assert "torch" not in modules
    assert [name for name in modules if name.startswith("whorl.")] == []


LOADED = {
    "RoPE": {"encodings", "kernels", "positions", "scaling"},
    "positions": {"positions"},
    "plots.save": {"analysis", "attention", "encodings", "kernels", "plots", "positions"},
}


def test_a_name_loads_its_package_and_nothing_above() -> None:
    for name, loaded in LOADED.items():
        after = run_fresh(f"import whorl; whorl.{name}")
        assert after.error is None
        mine = {name.split(".")[1] for name in after.after if name.startswith("whorl.")}
        found = {name for name in mine if not name.startswith("_")}
        assert found >= loaded
        assert not found & {"lab", "bench", "doctor", "cli", "explore"}
        assert name != "positions" or found == loaded


ENOUGH = ("configs.inspection.inspect", "configs.diagnosis.diagnose", "check", "lab.train")


def test_import_whorl_is_enough() -> None:
    assert {run_fresh(f"import whorl; whorl.{what}").error for what in ENOUGH} == {None}
    assert "has no attribute 'nonesuch'" in str(run_fresh("import whorl; whorl.lab.nonesuch").error)


HELP = """
import contextlib, io
from whorl.cli import main
for args in {calls!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(args) == 0, args
    assert out.getvalue(), args
"""
COMMANDS = "bench check compare convert detect doctor explain explore extend info inspect plot"
COMMANDS += " properties train"


def test_help_and_version_load_no_torch() -> None:
    pytest.importorskip("typer")
    calls = [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS.split())]
    modules = modules_after(HELP.format(calls=calls))
    assert modules & {"torch", "numpy", "altair", "transformers"} == set()
    assert "torch" in modules_after(HELP.format(calls=[["info", "--json"]]))  # it can fail


def test_completion_loads_no_torch() -> None:
    pytest.importorskip("typer")
    words = {"_WHORL_COMPLETE": "complete_bash", "COMP_WORDS": "whorl ins", "COMP_CWORD": "1"}
    code = "import sys\nfrom whorl.cli import main\nmain([])\nassert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["inspect"]


def test_the_detector_can_fail() -> None:
    packages = [name for name in ("rich", "typer", "altair") if find_spec(name)]
    if not packages:
        pytest.skip("no optional package is installed")
    assert set(packages) <= set(run_fresh(f"import whorl, {', '.join(packages)}").packages)


def find_names(folder: Path) -> set[str]:
    """Every ``whorl.package.name`` that the files of a folder use."""
    used = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                name = ast.unparse(node)
                used |= {name} if re.fullmatch(r"whorl\.\w+\.\w+", name) else set()
    return used


def test_commands_find_what_they_use_in_a_fresh_process() -> None:
    """A package does not load all of its modules: ``whorl.lab.compare`` needs an import."""
    used = find_names(Path(whorl.__file__).parent / "cli")
    assert len(used) > 20
    statements = [
        "\n".join(["import whorl", *sorted(n for n in used if n.startswith(f"whorl.{package}."))])
        for package in sorted({name.split(".")[1] for name in used})
    ]
    assert [error for one in statements if (error := run_fresh(one).error) is not None] == []
