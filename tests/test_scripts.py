"""What the Python inside scripts/* imports is there: most scripts run only once in a while."""

import ast
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def find_programs(text: str) -> list[str]:
    """The Python programs that a shell script holds between <<'PY' and PY."""
    return [part.split("\n", 1)[1].split("\nPY\n")[0] for part in text.split("<<'PY'")[1:]]


Imported = tuple[str, str | None]


def find_imports(program: str) -> dict[str, Imported]:
    """What each name is that a program imports: a module, or a name of one."""
    found: dict[str, Imported] = {}
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: (alias.name, None) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names
            }
    return found


def find_uses(program: str) -> set[tuple[Imported, str]]:
    """What a program takes from what it imports, as in ``server.serve``."""
    nodes = list(ast.walk(ast.parse(program)))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imported = {name: what for name, what in find_imports(program).items() if name not in own}
    return {
        (imported[node.value.id], node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in imported
    }


def load(module: str, name: str | None) -> Any:
    """A module, or what it has under a name."""
    loaded = importlib.import_module(module)
    if name is None:
        return loaded
    if not hasattr(loaded, name):
        return importlib.import_module(f"{module}.{name}")
    return getattr(loaded, name)


PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in sorted(SCRIPTS.iterdir())
    for number, program in enumerate(find_programs(path.read_text(encoding="utf-8")))
]


def test_the_scripts_hold_programs() -> None:
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_script_imports_is_there(program: str) -> None:
    for module, name in sorted(find_imports(program).values(), key=str):
        load(module, name)
    for (module, name), attribute in sorted(find_uses(program), key=str):
        found = load(module, name)
        if isinstance(found, ModuleType):
            assert hasattr(found, attribute), f"{found.__name__} has no {attribute}"


def test_it_sees_an_import_that_is_gone() -> None:
    programs = find_programs("python - <<'PY'\nfrom whorl import nothing_of_that_name\nPY\n")
    (imported,) = find_imports(programs[0]).values()
    assert imported == ("whorl", "nothing_of_that_name")
    with pytest.raises(ModuleNotFoundError):
        test_what_a_script_imports_is_there(programs[0])


def test_a_line_in_the_page_is_a_place_for_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """scripts/experiment-tables, with a place that is new and one that was filled before."""
    (program,) = find_programs((SCRIPTS / "experiment-tables").read_text(encoding="utf-8"))
    drawn: list[str] = []
    monkeypatch.setattr("whorl.plots.experiment", lambda result: result)
    monkeypatch.setattr("whorl.plots.save", lambda chart, path, scale: drawn.append(path.name))
    monkeypatch.chdir(tmp_path)
    stems = [f"2026-11-18-amd-epyc-{x}-experiment" for x in ("matching-cail", "migration")]
    for folder in ("docs", "benchmarks"):
        (tmp_path / folder).mkdir()
    for stem in stems:
        file = f"benchmarks/{stem}.json"
        (tmp_path / file).write_bytes((SCRIPTS.parent / file).read_bytes())
    page = tmp_path / "docs" / "experiment-results.md"
    new, known = (f"<!-- result: {stem} -->" for stem in stems)
    page.write_text(f"# Results\n\n{new}\n\nBetween.\n\n{known}\nold\n<!-- /result -->\n\nAfter.\n")
    exec(program, {})
    text = page.read_text(encoding="utf-8")
    first, second = text.split("\nBetween.\n")
    for part, stem, row in ((first, stems[0], "| rope, 512 |"), (second, stems[1], "| learned |")):
        sentence = json.loads((tmp_path / f"benchmarks/{stem}.json").read_text())["sentence"]
        assert f"<!-- result: {stem} -->\n\n> {sentence}\n" in part
        assert row in part
        assert "\n<!-- /result -->\n" in part
    assert "\nold\n" not in text
    assert text.endswith("\nAfter.\n")
    assert drawn == ["matching-cail.png", "migration.png"]
    assert all(f"](experiments/{name})" in text for name in drawn)
    exec(program, {})
    assert page.read_text(encoding="utf-8") == text
    capsys.readouterr()
    (tmp_path / f"benchmarks/{stems[1]}.json").rename("benchmarks/x-base-standard-experiment.json")
    page.write_text(f"{new}\n")
    exec(program, {})
    assert "add <!-- result: x-base-standard-experiment -->" in capsys.readouterr().out
    page.write_text(f"{known}\n")
    with pytest.raises(SystemExit, match=r"has a place for .*-migration-experiment.json, which is"):
        exec(program, {})


def test_it_sees_a_function_that_is_gone() -> None:
    program = "from whorl import plots\nplots.save\nplots.draw_all(plots.theme)"
    assert {attribute for _, attribute in find_uses(program)} == {"save", "draw_all", "theme"}
    with pytest.raises(AssertionError, match=r"whorl\.plots has no draw_all"):
        test_what_a_script_imports_is_there(program)
    assert find_uses("import re\nfor re in 'ab':\n    re.nothing") == set()
