"""Reports as text: a table of properties, mistakes, and what the function computes."""

import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from whorl.scaling import from_dict

from .identification import Identification
from .properties import MEANINGS
from .report import CheckReport

__all__ = ["render_identification", "render_report"]

_LONGEST_LIST = 4
_UNDER: dict[str, Any] = {"subsequent_indent": " " * 16, "break_on_hyphens": False}


def render_report(report: CheckReport, width: int = 80) -> str:
    """The whole report in lines of at most ``width``."""
    count, held = len(report.properties), sum(found.ok for found in report.properties.values())
    wrong = len(report.diagnoses)
    verdict = f"{wrong} mistake{'s' if wrong > 1 else ''}" if wrong else "nothing is wrong"
    left = f", {len(report.unmeasured)} not measured" if report.unmeasured else ""
    head = f"{report.name}: {held} of {count} properties hold{left}, {verdict}"
    lines = [*textwrap.wrap(head, width, subsequent_indent="    "), ""]
    lines.append(f"   {'property':<12} {'error':>8} {'allowed':>8}  meaning")
    for name, (ok, error) in report.properties.items():
        mark = "ok" if ok else "NO"
        limit = report.limits[name]
        lines.append(f"{mark} {name:<12} {error:>8.1g} {limit:>8.2g}  {MEANINGS[name]}")
    for name, why in report.unmeasured.items():
        words = f"not measured: {why}" if name not in report.properties else f"not further: {why}"
        lines += textwrap.wrap(words, width, initial_indent=f"-- {name:<12} ", **_UNDER)
    if report.diagnoses:
        lines += ["", "What is wrong"]
        for diagnosis in report.diagnoses:
            lines += ["", *_wrap_mistake(diagnosis.id, diagnosis.words, width)]
    if report.identified is not None:
        lines += ["", "What it is", "", *_render_rows(report.identified, width)]
    return "\n".join(lines)


def render_identification(found: Identification, width: int = 80) -> str:
    """What was identified, in lines of at most ``width``."""
    return "\n".join([f"{found.name}", "", *_render_rows(found, width)])


def _render_rows(found: Identification, width: int) -> Iterator[str]:
    rows = list(_list_rows(found))
    column = max(len(name) for name, _ in rows) + 2
    for name, words in rows:
        yield from textwrap.wrap(
            words,
            width,
            initial_indent=f"{name:<{column}}",
            subsequent_indent=" " * column,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _list_rows(found: Identification) -> Iterator[tuple[str, str]]:
    if found.encoding is None:
        yield "rotation", "none: it is no rotation of pairs in a layout that whorl has"
    elif found.encoding == "nope":
        yield "rotation", "none: nothing rotates"
    if found.rotary_dim:
        yield from found.describe_parts().items()
        known = found.precision != "unknown"
        yield "precision", f"that of {found.precision}" if known else "that of no float type"
    if found.config is not None and found.encoding is not None:
        yield "whorl", render_call(found.encoding, found.config)
    if found.rotary_dim and found.encoding is not None:
        yield (
            "transformers",
            "nothing like it" if found.hf is None else _format_dictionary(found.hf),
        )
        judged = "within its own precision" if found.exact else "NOT the same"
        yield "difference", f"{found.error:.1g} on unit vectors: {judged}"
    for line in found.departs:
        yield "departs", line
    for line in found.notes:
        yield "note", line
    if found.asked:
        yield "asked with", found.asked


def render_call(encoding: str, config: Any) -> str:
    """The call of ``whorl.make`` that builds the encoding."""
    words = [f"{encoding!r}"]
    for name, value in config.items():
        text = _format_value(value)
        if name == "scaling":
            text = f"whorl.{from_dict(value)!r}"
            for option in value.values():
                if isinstance(option, (list, tuple)):
                    text = text.replace(repr(tuple(option)), _format_value(tuple(option)))
        words.append(f"{name}={text}")
    return f"whorl.make({', '.join(words)})"


def _format_value(value: Any, plain: Callable[[Any], str] = repr) -> str:
    """A value as ``plain`` gives it, or the ends of a long list."""
    if isinstance(value, (list, tuple)) and len(value) > _LONGEST_LIST:
        return f"[{value[0]:.6g}, {value[1]:.6g}, .. {len(value)} numbers .. {value[-1]:.6g}]"
    return plain(value)


def _format_dictionary(parameters: Any) -> str:
    words = [
        f"{json.dumps(name)}: {_format_value(value, json.dumps)}"
        for name, value in parameters.items()
    ]
    return f"{{{', '.join(words)}}}"


def _wrap_mistake(name: str, words: str, width: int) -> list[str]:
    lines = []
    for n, paragraph in enumerate(words.splitlines()):
        lines += textwrap.wrap(
            paragraph,
            width,
            initial_indent=f"{name}: " if n == 0 else "    ",
            subsequent_indent="    " if n == 0 else "        ",
            break_long_words=False,
        )
    return lines
