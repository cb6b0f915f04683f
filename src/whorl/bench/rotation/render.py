"""Parts of the Markdown pages that show a rotation report, and sentences about it."""

from typing import TYPE_CHECKING

from whorl.bench.render import count_targets, render_headline, render_markdown

from .tables import build_accuracy_table, build_loss_table, build_speed_tables

if TYPE_CHECKING:
    from .report import Report

__all__ = ["LEGEND", "render_readme_parts", "summarize_targets", "summarize_targets_and_losses"]

LEGEND = (
    "Medians of samples taken alternately. The number in a shape's name is the batch size for"
    " decode, else the length; training is forward + backward and is in the fresh rows. Bound once"
    " is a call that was prepared for its tensors before the timing. whorl in place is compared"
    " with each peer's fastest mode that accepts new tensors, every other mode with the same mode."
)


def render_readme_parts(report: "Report") -> dict[str, str]:
    """Markdown for the README files, by place: "speed", "halves", "accuracy", "losses"."""
    lost = build_loss_table(report)
    tables = [table for table in build_speed_tables(report, merged=True) if table.rows]
    full = [table for table in tables if table.title.startswith("float32")]
    halves = [table for table in tables if table not in full]
    speed = [
        render_headline(report),
        *_describe_best(report),
        *map(render_markdown, full),
        LEGEND,
        summarize_targets(report),
    ]
    return {
        "speed": "\n\n".join(speed),
        "halves": "\n\n".join(map(render_markdown, halves)),
        "accuracy": render_markdown(build_accuracy_table(report)),
        "losses": render_markdown(lost) if lost.rows else "None.",
    }


def _describe_best(report: "Report") -> list[str]:
    """A sentence with the most important figures, or nothing if they were not measured."""
    start = "prefill-4096 float32 in place, "
    found = {
        t.name.removeprefix(start): t.measured for t in report.check_targets() if t.ok is not None
    }
    wanted = ("time / copy_", "times faster than Hugging Face", "times faster than HF compiled")
    if not all(name in found for name in wanted):
        return []
    copy, eager, compiled = (found[name] for name in wanted)
    return [
        f"Rotating 4096 tokens in place in float32 takes {copy:.2g} of the time of copying them,"
        f" and is {eager:.0f} times faster than Hugging Face eager and {compiled:.0f} times faster"
        " than Hugging Face compiled."
    ]


def summarize_targets(report: "Report") -> str:
    """Sentences: how many targets were reached, comparisons lost, and which targets missed."""
    missed = [
        f"{t.name}: {t.measured:.3g} ({t.limit})" for t in report.check_targets() if t.ok is False
    ]
    return summarize_targets_and_losses(report) + (
        f" Missed: {'; '.join(missed)}." if missed else ""
    )


def summarize_targets_and_losses(report: "Report") -> str:
    """Sentences: how many targets were reached, and how many comparisons lost."""
    single = [loss for loss in report.find_losses() if loss.cell.endswith("/1")]
    more = len(report.find_losses()) - len(single)
    lost = "1 comparison" if len(single) == 1 else f"{len(single) or 'no'} comparisons"
    rest = f", on more threads in {more}" if more else ""
    return f"{count_targets(report)} Slower than a peer beyond noise in {lost}{rest}."
