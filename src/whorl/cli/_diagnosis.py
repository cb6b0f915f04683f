"""Print a diagnosis to the terminal: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from whorl._support.documentation import build_page_address
from whorl._support.words import shorten

from ._output import Console

if TYPE_CHECKING:
    from whorl.configs.diagnosis import ConfigDiagnosis, DiagnosisRule, Finding

__all__ = ["Correction", "print_diagnosis", "print_rule", "print_rules"]

#: What a finding of each severity means, from worst to mildest.
_MEANINGS = {
    "error": "the model computes something else than the config says, or does not load",
    "warning": "some software reads the config differently, or text gets worse in some use",
    "note": "worth knowing; nothing needs to change",
}
_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}


@dataclass(frozen=True)
class Correction:
    """What ``--fix`` did: the file that it wrote, if any, the diff, and the new diagnosis."""

    path: Path | None
    changes: str
    remaining: ConfigDiagnosis

    def to_dict(self) -> dict[str, Any]:
        left = self.remaining.to_dict()
        return {
            "fixed": None if self.path is None else str(self.path),
            "diff": self.changes,
            "remaining": {name: left[name] for name in ("counts", "findings")},
        }


def print_diagnosis(target: str, found: ConfigDiagnosis, fixed: Correction | None) -> None:
    """Print the findings by severity, what ``--fix`` changed and what remains, and the counts."""
    console = Console(highlight=False)
    family = None if found.reading is None else found.reading.model_type
    console.print(Text(target, "bold") + Text(f"  {shorten(family)}" if family else "", "dim"))
    _print_findings(console, found)
    console.print()
    if fixed is not None and fixed.path is None:
        console.print("no finding here can be corrected automatically; no file was written.")
    if fixed is None or fixed.path is None:
        for sentence in _summarize(found, fixing=fixed is not None):
            console.print(sentence)
        return
    console.print(Syntax(fixed.changes.rstrip("\n"), "diff", background_color="default"))
    console.print(Text(f"\nwritten to {fixed.path}"))
    console.print(Text(f"before: {_count_by_severity(found)}."))
    if not fixed.remaining.findings:
        console.print(Text("the corrected config has no findings.", "green"))
        return
    console.print(Text(f"in the corrected config: {_count_by_severity(fixed.remaining)}."))
    _print_findings(console, fixed.remaining)


def _print_findings(console: Console, found: ConfigDiagnosis) -> None:
    for finding in found.findings:
        for line in _render_finding(finding):
            console.print(line)


def _render_finding(finding: Finding) -> Iterator[RenderableType]:
    yield Text()
    head = Text.assemble(
        (finding.severity, _STYLES[finding.severity]), "  ", (finding.rule, "bold")
    )
    yield head + Text(f"  {finding.where}" if finding.where else "", "dim")
    yield Padding(Text(finding.message), (0, 0, 0, 2))
    remedy = Table.grid(padding=(0, 1))
    remedy.add_row(Text("->", "dim"), Text(finding.remedy))
    yield Padding(remedy, (0, 0, 0, 2))


def _summarize(found: ConfigDiagnosis, fixing: bool) -> Iterator[Text]:
    if not found.findings:
        yield Text("nothing found.", "green")
        return
    fixable = sum(finding.fixable for finding in found.findings)
    more = f"; --fix corrects {fixable} of them" if fixable and not fixing else ""
    yield Text(f"{_count_by_severity(found)}{more}.")
    yield Text("whorl doctor --explain ID gives the reason and an example.", "dim")


def _count_by_severity(found: ConfigDiagnosis) -> str:
    """The number of findings of each severity: "2 errors, 1 note"."""
    from whorl.configs.diagnosis import SEVERITIES

    counts = [(len(found.select(severity)), severity) for severity in SEVERITIES]
    return ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n)


def print_rules(rules: Iterable[DiagnosisRule]) -> None:
    """Print one line for each rule, by severity, and in alphabetical order."""
    console = Console(highlight=False)
    sorted_rules = sorted(rules, key=lambda rule: rule.id)
    for severity, meaning in _MEANINGS.items():
        chosen = [rule for rule in sorted_rules if rule.severity == severity]
        console.print(
            Text.assemble((f"{severity}s", _STYLES[severity]), f" ({len(chosen)}): {meaning}")
        )
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for rule in chosen:
            table.add_row(f"  {rule.id}", Text(rule.what))
        console.print(table)
        console.print()
    console.print(Text("whorl doctor --explain ID gives the reason and an example.", "dim"))


def print_rule(rule: DiagnosisRule) -> None:
    """Print everything about one rule: what, why, remedy, links and examples."""
    console = Console(highlight=False)
    console.print(Text.assemble((rule.severity, _STYLES[rule.severity]), "  ", (rule.id, "bold")))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("what", rule.what), ("why", rule.why), ("remedy", rule.remedy)]
    rows += [("seen" if n == 0 else "", link) for n, link in enumerate(rule.seen)]
    rows += [("finds", str(rule.trigger)), ("not", str(rule.near_miss))]
    for name, text in (*rows, ("docs", build_page_address(rule.docs))):
        table.add_row(name, Text(text))
    console.print(Padding(table, (1, 0, 0, 0)))
