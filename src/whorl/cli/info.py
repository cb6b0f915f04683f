"""``whorl info``: versions, the kernel in use and why, and the optional parts."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.table import Table
from rich.text import Text

import whorl

from ._output import JsonFlag, print_result

__all__ = ["info"]


def info(as_json: JsonFlag = False) -> None:
    """Show versions, the kernel in use and why, encodings and optional parts."""
    print_result(whorl.info.describe(), as_json, _render_page)


def _render_page(found: whorl.info.Info) -> Iterator[Table | Text]:
    yield _list_facts(found)
    yield Text()
    yield _list_packages(found)
    missing = [f"  {extra.install}" for extra in found.extras.values() if extra.install]
    if missing:
        yield Text("\n".join(["", "To add what is missing:", *missing]))


def _list_facts(found: whorl.info.Info) -> Table:
    cpu, library = found.cpu, found.native
    features = "not known here" if cpu.features is None else ", ".join(cpu.features) or "none"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, version in found.versions.items():
        table.add_row(name, version)
    table.add_row("cpu", Text(f"{cpu.model}, {cpu.cores} cores"))
    table.add_row("features", f"{features} [dim](of those the kernel can use)[/]")
    kernel = f", {library.threads} in the kernel" if library.in_use else ""
    table.add_row("threads", f"{found.threads} in torch{kernel}")
    table.add_row()
    table.add_row("impl='auto'", _describe_auto(found))
    if library.problem:
        table.add_row("why", Text(library.problem + "."))
    if library.library:
        table.add_row("library", Text(library.library))
    table.add_row("OpenMP", Text(library.openmp))
    table.add_row()
    table.add_row("encodings", ", ".join(found.encodings))
    table.add_row("scalings", ", ".join(found.scalings))
    return table


def _describe_auto(found: whorl.info.Info) -> str:
    if found.native.in_use:
        return f"[green]{found.auto}[/]: the C library, {found.native.instructions} instructions"
    return f"[yellow]{found.auto}[/]: plain PyTorch, without the C library"


def _list_packages(found: whorl.info.Info) -> Table:
    """One line for each optional package, with the extras that bring it."""
    table = Table("optional package", "version", "extra", box=box.SIMPLE_HEAD, show_edge=False)
    table.pad_edge = False
    versions = {p: v for extra in found.extras.values() for p, v in extra.packages.items()}
    for package, version in sorted(versions.items()):
        extras = ", ".join(name for name, e in found.extras.items() if package in e.packages)
        table.add_row(package, version or Text("missing", "yellow"), extras)
    return table
