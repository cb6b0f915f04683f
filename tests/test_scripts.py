"""What the Python inside scripts/* imports is there: most scripts run only once in a while."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def find_programs(text: str) -> list[str]:
    """The Python programs that a shell script holds between <<'PY' and PY."""
    return [part.split("\n", 1)[1].split("\nPY\n")[0] for part in text.split("<<'PY'")[1:]]


def find_imports(program: str) -> set[tuple[str, str | None]]:
    """Module and name of every import, name None where it is the module itself."""
    found: set[tuple[str, str | None]] = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, None) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in sorted(SCRIPTS.iterdir())
    for number, program in enumerate(find_programs(path.read_text(encoding="utf-8")))
]


def test_the_scripts_hold_programs() -> None:
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_script_imports_is_there(program: str) -> None:
    for module, name in sorted(find_imports(program), key=str):
        loaded = importlib.import_module(module)
        if name is not None and not hasattr(loaded, name):
            importlib.import_module(f"{module}.{name}")


def test_it_sees_an_import_that_is_gone() -> None:
    programs = find_programs("python - <<'PY'\nfrom whorl import nothing_of_that_name\nPY\n")
    ((module, name),) = find_imports(programs[0])
    assert (module, name) == ("whorl", "nothing_of_that_name")
    with pytest.raises(ModuleNotFoundError):
        test_what_a_script_imports_is_there(programs[0])
