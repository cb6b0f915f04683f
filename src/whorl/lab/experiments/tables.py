"""The result of an experiment as tables: in Markdown, and for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whorl._support.markdown import render_table
from whorl.lab.compare.html import ReportTable
from whorl.lab.compare.tables import format_headline

from .definition import MeasureLabel

__all__ = ["build_terminal_tables", "list_tables", "render_brief", "render_markdown"]

_MISSING = "\u2013"
# Heads of columns that are no measures of the experiment.
_FACTS = {"parameters": "parameters", "step_seconds": "ms a step"}
# The measure that stands beside another one, at the trained length only.
_OTHERS = {"loss": "accuracy", "accuracy": "loss"}
_STYLES = {"lower": "blue", "higher": "magenta", "tied": "green", "not yet": "yellow"}


def list_tables(result: Mapping[str, Any]) -> list[ReportTable]:
    """All tables of a result: values and differences by section, then those of the experiment."""
    more = [
        ReportTable(one["title"], one["heads"], one["rows"], note=one["note"])
        for one in result["tables"]
    ]
    sections = dict.fromkeys(x.section for x in _read_labels(result) if x.id in result["judged"])
    built = []
    for section in sorted(sections):  # the one without a title first
        built += [_build_values(result, section), _build_differences(result, section)]
    return [*(table for table in built if table.rows), *more]


def render_markdown(result: Mapping[str, Any]) -> str:
    """The report as Markdown: question, sentence, tables, notes and environment."""
    parts = [f"# {result['experiment']}", result["question"], f"**{result['sentence']}**"]
    for table in list_tables(result):
        body = [
            [f"**{text}**" if (n, m) in table.bold else text for m, text in enumerate(row)]
            for n, row in enumerate(table.rows)
        ]
        parts += [f"{table.title}:", render_table(table.heads, body)]
        parts += [table.note] if table.note else []
    parts += _list_notes(result)
    parts.append(format_headline(result))
    return "\n\n".join(" ".join(x.split()) if "|" not in x else x for x in parts) + "\n"


def render_brief(result: Mapping[str, Any]) -> str:
    """What a page of documentation shows of a result: the sentence, its values, how it was made.

    With the tables of the experiment. The report has the rest: differences with their intervals,
    and notes.
    """
    parts = [f"> {result['sentence']}"]
    sections = dict.fromkeys(x.section for x in _read_labels(result) if x.id in result["judged"])
    for section in sorted(sections):
        table = _build_values(result, section)
        # A page is about what the rows do, not about the machine.
        keep = [n for n, head in enumerate(table.heads) if head not in _FACTS.values()]
        body = [
            [f"**{row[n]}**" if (m, n) in table.bold else row[n] for n in keep]
            for m, row in enumerate(table.rows)
        ]
        parts += [f"{table.title}:", render_table([table.heads[n] for n in keep], body)]
    for one in result["tables"]:
        parts += [f"{one['title']}:", render_table(one["heads"], one["rows"], numbers=False)]
        parts += [one["note"]] if one["note"] else []
    minutes = sum(row["facts"].get("seconds", 0) * len(row["seeds"]) for row in result["rows"]) / 60
    # Those that ran at the same time, and what else the machine did, are in them.
    spent = f" Runs of the full length took {minutes:.0f} minutes by the clock, added up."
    return "\n\n".join([*parts, format_headline(result) + spent * (minutes >= 1)]) + "\n"


def build_terminal_tables(result: Mapping[str, Any]) -> Iterator[Any]:
    """The result as objects that rich can print."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(result["question"])
    yield Text(f"{result['sentence']}\n", style="bold")
    for found in list_tables(result):
        if found.heads[-1] == "why":  # too wide for most terminals; the report has it
            found = found._replace(
                heads=found.heads[:-1], rows=[row[:-1] for row in found.rows], note=""
            )
        table = Table(title=found.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        for n, head in enumerate(found.heads):
            table.add_column(head, justify="right" if n else "left", overflow="fold")
        for n, row in enumerate(found.rows):
            styles = ["bold green" if (n, m) in found.bold else "" for m in range(len(row))]
            styles = [_STYLES.get(text, style) for text, style in zip(row, styles, strict=True)]
            table.add_row(*(Text(text, style) for text, style in zip(row, styles, strict=True)))
        if found.note:
            table.caption, table.caption_justify = Text(found.note, "dim italic"), "left"
        yield table
    for text in (*_list_notes(result), format_headline(result)):
        yield Text(text, style="dim")


def _build_values(result: Mapping[str, Any], section: str) -> ReportTable:
    """Means of the judged quantities by row, with half the interval over seeds."""
    measures = _select_measures(result, section)
    others = _find_other_measure(result, measures)
    columns = [*measures, *others]
    shown = [row for row in result["rows"] if any(one.id in row["values"] for one in measures)]
    facts = [("parameters", ",.0f"), ("step_seconds", ".1f")]
    facts = [x for x in facts if not section and any(x[0] in row["facts"] for row in shown)]
    bold = set()
    for m, measure in enumerate(columns, start=1):
        found = {n: _get_mean(row, measure) for n, row in enumerate(shown)}
        known = {n: value for n, value in found.items() if value is not None}
        if known:
            best = max(known.values()) if measure.accuracy else min(known.values())
            text = measure.format_value(best)
            bold |= {(n, m) for n, value in known.items() if measure.format_value(value) == text}
    rows = []
    for row in shown:
        cells = [_format_cell(row, measure) for measure in columns]
        for name, form in facts:
            value = row["facts"].get(name)
            scale = 1000 if name == "step_seconds" else 1
            cells.append(_MISSING if value is None else format(scale * value, form))
        rows.append([row["name"], *cells])
    heads = ["", *(_shorten_label(one, measures, result) for one in measures)]
    heads += [one.label for one in others]
    heads += [_FACTS[name] for name, _ in facts]
    count = len({seed for row in shown for seed in row["seeds"]})
    what = " and ".join(dict.fromkeys(one.quantity.replace("_", " ") for one in measures))
    several = f"mean of {count} seeds \u00b1 half the 95 % interval" if count > 1 else "one seed"
    note = _describe_timing(shown) if len(facts) > 1 else ""
    title = f"{section}: {what}" if section else what.capitalize()
    return ReportTable(f"{title}, {several}", heads, rows, frozenset(bold), note)


def _describe_timing(rows: Sequence[Mapping[str, Any]]) -> str:
    if all(row["facts"].get("timed_alone") for row in rows):
        return "Steps were timed after all runs, in turns, on one thread, with no run beside them."
    return "Steps are timed while other runs use the machine."


def _select_measures(result: Mapping[str, Any], section: str) -> list[MeasureLabel]:
    """Measures of the judged quantities of a section, which its table shows."""
    judged = {name.partition("@")[0] for name in result["judged"]}
    return [
        one
        for one in _read_labels(result)
        if one.quantity in judged
        and one.section == section
        and any(one.id in row["values"] for row in result["rows"])
    ]


def _find_other_measure(
    result: Mapping[str, Any], measures: Sequence[MeasureLabel]
) -> list[MeasureLabel]:
    """The accuracy at the trained length beside losses, the loss beside accuracies, if known."""
    wanted = [other for shown, other in _OTHERS.items() if shown in {x.quantity for x in measures}]
    found = [one for one in _read_labels(result) if one.id in {f"{key}@1" for key in wanted}]
    known = {key for row in result["rows"] for key in row["values"]}
    return [one for one in found if one not in measures and one.id in known and len(wanted) == 1]


def _read_labels(result: Mapping[str, Any]) -> list[MeasureLabel]:
    return [
        MeasureLabel(**{key: value for key, value in one.items() if key != "quantity"})
        for one in result["measures"]
    ]


def _shorten_label(
    measure: MeasureLabel, others: Sequence[MeasureLabel], result: Mapping[str, Any]
) -> str:
    """The head of a column: the length alone where all columns are lengths."""
    several = len({one.quantity for one in others}) > 1
    if measure.x is None or several:
        return measure.label
    trained = " (trained)" if measure.x == result["settings"].get("length") else ""
    return f"{measure.x:g}{trained}"


def _get_mean(row: Mapping[str, Any], measure: MeasureLabel) -> float | None:
    found = row["values"].get(measure.id, {}).get("mean")
    return None if found is None or found != found else float(found)


def _format_cell(row: Mapping[str, Any], measure: MeasureLabel) -> str:
    found = row["values"].get(measure.id, {})
    text = measure.format_value(_get_mean(row, measure))
    if found.get("low") is None or found.get("high") is None:
        return text
    half = (found["high"] - found["low"]) / 2
    return f"{text} \u00b1{100 * half:.1f}" if measure.accuracy else f"{text} \u00b1{half:.3f}"


def _build_differences(result: Mapping[str, Any], section: str) -> ReportTable:
    """Every contrast: the difference, its interval, that with a third of the steps, the outcome."""
    labels = {one.id: one for one in _read_labels(result) if one.section == section}
    rows = []
    for one in result["contrasts"]:
        if one["measure"] not in labels:
            continue
        label = labels[one["measure"]]
        value = _format_number(one["mean"], label)
        if one["low"] is not None and one["high"] is not None:
            low, high = (_format_number(one[key], label) for key in ("low", "high"))
            value += f" [{low}, {high}]"
        outcome = _MISSING if result["budget"] == "smoke" else one["outcome"]
        cells = [one["row"], one["against"], label.label, value]
        noise = f"\u00b1{label.format_difference(one['noise'])}" if one["noise"] else _MISSING
        third = _format_number(one["third"], label)
        rows.append([*cells, noise, third, outcome, one["reason"] or _MISSING])
    heads = ["row", "minus", "of the", "difference", "other seeds", "at 1/3", "outcome", "why"]
    note = (
        "Difference: mean and 95 % interval. Other seeds: how much they may change it, where the"
        " interval does not contain that. At 1/3: the difference with a third of the steps."
    )
    title = f"{section}: differences" if section else "Differences"
    return ReportTable(title, heads, rows, note=note)


def _format_number(value: float | None, label: MeasureLabel) -> str:
    if value is None or value != value:
        return _MISSING
    if label.accuracy:  # adding 0 makes a rounded -0 a 0
        return f"{round(100 * value, 1) + 0.0:+.1f}"
    return f"{round(value, 3) + 0.0:+.3f}"


def _list_notes(result: Mapping[str, Any]) -> list[str]:
    missing = [f"Not finished: {x['name']} ({x['reason']})." for x in result["unfinished"]]
    return [*missing, *map(str, result["notes"])]
