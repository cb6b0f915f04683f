"""A diagnosis for the terminal: what is wrong, where, and what to do."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from whorl._support.documentation import documentation_page
from whorl.doctor import SEVERITIES, Diagnosis, Finding, Rule

__all__ = ["print_diagnosis", "print_rule", "print_rules"]

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}


def print_diagnosis(
    target: str, found: Diagnosis, changes: str, written: Path | None, *, fixing: bool
) -> None:
    """The findings by severity, the diff of ``--fix``, and a last line with the counts."""
    console = Console(highlight=False)
    family = None if found.reading is None else found.reading.model_type
    console.print(Text(target, "bold") + Text(f"  {family}" if family else "", "dim"))
    for severity in SEVERITIES:
        for finding in found.of(severity):
            for line in _finding(finding):
                console.print(line)
    console.print()
    if changes:
        console.print(Syntax(changes.rstrip("\n"), "diff", background_color="default"))
        console.print(Text(f"\nwritten to {written}"))
    elif fixing:
        console.print("nothing here has one safe correction; no file was written.")
    for sentence in _summary(found, fixing):
        console.print(sentence)


def _finding(finding: Finding) -> Iterator[RenderableType]:
    yield Text()
    head = Text.assemble(
        (finding.severity, _STYLES[finding.severity]), "  ", (finding.rule, "bold")
    )
    yield head + Text(f"  {finding.where}" if finding.where else "", "dim")
    yield Padding(Text(finding.message), (0, 0, 0, 2))
    remedy = Table.grid(padding=(0, 1))
    remedy.add_row(Text("->", "dim"), Text(finding.remedy))
    yield Padding(remedy, (0, 0, 0, 2))


def _summary(found: Diagnosis, fixing: bool) -> Iterator[Text]:
    if not found.findings:
        yield Text("nothing found.", "green")
        return
    counts = [(len(found.of(severity)), severity) for severity in SEVERITIES]
    words = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n]
    fixable = sum(finding.fixable for finding in found.findings)
    if fixable and not fixing:
        words[-1] += f"; --fix corrects {fixable} of them"
    yield Text(", ".join(words) + ".")
    yield Text("whorl doctor --explain ID says why, with an example.", "dim")


def print_rules(rules: Iterable[Rule]) -> None:
    """A line for each rule, the worst first."""
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for rule in sorted(rules, key=lambda rule: SEVERITIES.index(rule.severity)):
        severity = Text(rule.severity, _STYLES[rule.severity].removeprefix("bold "))
        table.add_row(severity, rule.id, Text(rule.what))
    console.print(table)


def print_rule(rule: Rule) -> None:
    """All that there is to say about a rule."""
    console = Console(highlight=False)
    console.print(Text.assemble((rule.severity, _STYLES[rule.severity]), "  ", (rule.id, "bold")))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("what", rule.what), ("why", rule.why), ("remedy", rule.remedy)]
    rows += [("seen" if n == 0 else "", link) for n, link in enumerate(rule.seen)]
    rows += [("finds", str(rule.trigger)), ("not", str(rule.near_miss))]
    for name, text in (*rows, ("docs", documentation_page(rule.docs))):
        table.add_row(name, Text(text))
    console.print(Padding(table, (1, 0, 0, 0)))
