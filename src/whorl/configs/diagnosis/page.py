"""The sections of docs/doctor.md, made from the rules; ``scripts/doctor-page`` writes them."""

from collections.abc import Iterator
from types import ModuleType

from whorl._support.markdown import render_table

from .engine import RULES, Rule
from .rules import SUBJECTS

__all__ = ["markdown"]


def markdown() -> str:
    """A table of all rules, then a section for each, by subject."""
    chosen = [(module, list(_rules_of(module))) for module in SUBJECTS]
    rows = [(f"[{r.id}](#{r.id})", r.severity, r.what) for _, rules in chosen for r in rules]
    parts = [render_table(("rule", "severity", "what"), rows, numbers=False)]
    for module, rules in chosen:
        parts.append(f"## {_title(module)}")
        parts += map(_section, rules)
    return "\n\n".join(parts)


def _rules_of(module: ModuleType) -> Iterator[Rule]:
    return (rule for rule in RULES.values() if rule.check.__module__ == module.__name__)


def _title(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0].rstrip(".")


def _section(rule: Rule) -> str:
    links = ", ".join(f"[{_name(link)}]({link})" for link in rule.seen)
    return "\n\n".join(
        (
            f"### {rule.id}",
            f"*{rule.severity}.* {rule.what} {rule.why}",
            f"Remedy: {rule.remedy}\n\nSeen in: {links}.",
            f"- finds `{rule.trigger}`\n- not `{rule.near_miss}`",
        )
    )


def _name(link: str) -> str:
    """A link as people cite it: huggingface/transformers#38224."""
    for kind in ("/issues/", "/pull/"):
        repository, found, number = link.removeprefix("https://github.com/").partition(kind)
        if found:
            return f"{repository}#{number}"
    return link.removeprefix("https://").removeprefix("arxiv.org/abs/").partition("#")[0]
