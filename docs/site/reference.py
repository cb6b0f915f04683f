"""The API reference, from docstrings.

A page in docs/api/ says what it is about and has a comment for the names that follow there:

    <!-- api: whorl.positions -->                 all names of __all__
    <!-- api: whorl.configs read_config load -->  these

While the site is built, the comment becomes directives of autodoc. Docstrings are plain text with
``code``, sections such as "Args:" and examples; they are made into reStructuredText here, so that
no author has to know what | or * would mean in it.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_origin

MARK = re.compile(r"^<!-- api: ([\w.]+)((?: \w+)*) -->$", re.MULTILINE)
SECTION = re.compile(r"(Args|Raises|Returns|Attributes):")
ENTRY = re.compile(r"    (\*{0,2}\w+(?:, \*{0,2}\w+)*): ?(.*)")


def find_names(module: str, listed: str) -> list[str]:
    """The names of a comment: those that it lists, or all that the module exports."""
    if listed.split():
        return listed.split()
    home = importlib.import_module(module)
    return [n for n in home.__all__ if not isinstance(getattr(home, n), ModuleType)]


def render_directive(module: str, name: str) -> str:
    """The directive of autodoc for one name."""
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing):
        return f".. autoclass:: {module}.{name}\n   :members:\n   :show-inheritance:\n"
    # A Literal can be called and has a name, as far as Python knows.
    called = callable(thing) and hasattr(thing, "__name__") and get_origin(thing) is None
    kind = "autofunction" if called else "autodata"
    return f".. {kind}:: {module}.{name}\n"


def expand_marks(text: str) -> str:
    """A page of docs/api/ with directives in place of its comments."""

    def replace(found: re.Match[str]) -> str:
        names = find_names(found[1], found[2])
        directives = "\n".join(render_directive(found[1], name) for name in names)
        return f"```{{eval-rst}}\n{directives}```"

    return MARK.sub(replace, text)


def escape(text: str) -> str:
    """A line of prose in which nothing but ``code`` has a meaning."""
    parts = re.split(r"(``.+?``)", text)
    parts[::2] = [re.sub(r"([\\*`|_])", r"\\\1", part) for part in parts[::2]]
    for n in range(2, len(parts), 2):
        if re.match(r"\w", parts[n]):  # a space that is not shown, after ``code``
            parts[n] = "\\ " + parts[n]
    return "".join(parts)


def convert_docstring(lines: list[str]) -> Iterator[str]:
    """The lines of a docstring as reStructuredText."""
    section = example = literal = False
    for line in lines:
        if not line.strip():
            section = example = literal = False
            yield ""
        elif example or line.startswith(">>>"):
            example = True
            yield line
        elif SECTION.fullmatch(line):
            section = True
            yield from (f"**{line}**", "")
        elif section and (found := ENTRY.fullmatch(line)):
            yield from ("", f"``{found[1]}``", f"    {escape(found[2])}")
        elif section:
            yield f"    {escape(line.strip())}"
        elif line.startswith("    "):
            if not literal:
                yield from ("", "::", "")
            literal = True
            yield line
        else:
            if literal:
                literal = False
                yield ""
            yield escape(line)


def change_docstring(
    app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """Convert a docstring for autodoc, in place; constants do not have that of their type."""
    own = callable(thing) or isinstance(thing, property)
    same = lines[:1] == (type(thing).__doc__ or "").splitlines()[:1]
    lines[:] = [] if same and not own else convert_docstring(lines)


def skip_member(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Leave out what has no docstring of its own: fields of named tuples."""
    return skip or str(getattr(thing, "__doc__", "")).startswith("Alias for field number")


def add_reference(app: Any, name: str, source: list[str]) -> None:
    """Put the reference into a page that is read."""
    if name.startswith("docs/api/"):
        source[0] = expand_marks(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", add_reference)
    app.connect("autodoc-process-docstring", change_docstring)
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
