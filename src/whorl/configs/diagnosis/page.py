"""The sections of docs/doctor.md, made from the rules; ``scripts/doctor-page`` writes them."""

from collections.abc import Iterator
from types import ModuleType

from whorl._support.markdown import render_table

from .engine import RULES, DiagnosisRule
from .rules import SUBJECTS

__all__ = ["render_rules"]


def render_rules() -> str:
    """A Markdown table of all rules, then a section for each rule, ordered by subject."""
    chosen = [(module, list(_select_rules(module))) for module in SUBJECTS]
    rows = [(f"[{r.id}](#{r.id})", r.severity, r.what) for _, rules in chosen for r in rules]
    parts = [render_table(("rule", "severity", "what"), rows, numbers=False)]
    for module, rules in chosen:
        parts.append(f"## {_get_title(module)}")
        parts += map(_render_section, rules)
    return "\n\n".join(parts)


def _select_rules(module: ModuleType) -> Iterator[DiagnosisRule]:
    """The rules that a module of rules/ defines."""
    return (rule for rule in RULES.values() if rule.check.__module__ == module.__name__)


def _get_title(module: ModuleType) -> str:
    """The heading of a subject: the first line of its module's docstring."""
    return (module.__doc__ or "").splitlines()[0].rstrip(".")


def _render_section(rule: DiagnosisRule) -> str:
    links = ", ".join(f"[{_name_link(link)}]({link})" for link in rule.seen)
    return "\n\n".join(
        (
            f"### {rule.id}",
            f"*{rule.severity}.* {rule.what} {rule.why}",
            f"Remedy: {rule.remedy}\n\nSeen in: {links}.",
            f"- finds `{rule.trigger}`\n- not `{rule.near_miss}`",
        )
    )


def _name_link(link: str) -> str:
    """A link as people cite it: huggingface/transformers#38224."""
    for kind in ("/issues/", "/pull/"):
        repository, found, number = link.removeprefix("https://github.com/").partition(kind)
        if found:
            return f"{repository}#{number}"
    return link.removeprefix("https://").removeprefix("arxiv.org/abs/").partition("#")[0]
