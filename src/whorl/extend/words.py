"""Text for a plan: the verdict, and a page of plain text."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from whorl.configs.inspection.words import format_brief, format_number

from .recipes import Recipe
from .report import ExtensionPlan, MethodReport
from .support import FrameworkSupport

__all__ = [
    "LEGEND",
    "describe_runs",
    "describe_setting",
    "format_context",
    "list_obstacles",
    "list_recipes",
    "render_page",
    "write_title",
    "write_verdict",
]

LEGEND = (
    "Effective context: by angles, not measured. Out: pairs out of distribution at the target."
    " Change and scale: the largest change of an angle, in radians, and the attention scale, both"
    " within the trained length. Yes: runs it as it is meant; no: reads it otherwise, refuses it,"
    " or has no key for it; ?: not known."
)
_RUNS = {"runs": "yes", "unknown": "?"}


def write_title(plan: ExtensionPlan) -> str:
    """The model, the target, and what the numbers are."""
    target, times = format_number(plan.target), format_number(plan.factor)
    return f"{plan.source} to {target} tokens, {times}x: by angles, not measured"


def write_verdict(plan: ExtensionPlan) -> tuple[str, str]:
    """What to write, and what it costs."""
    chosen, target = plan.find_method(plan.chosen), format_number(plan.target)
    if chosen is None:
        return (
            f"No framework can run any method that takes this model to {target} tokens.",
            _explain_none(plan),
        )
    if plan.claimed_already and chosen.name == "none":
        return _describe_unchanged(plan, chosen)
    what = f"{chosen.name} ({describe_setting(chosen, plan)})"
    first = f"Write {what}: {_describe_angles(chosen)} at {target} tokens."
    return first, f"{_count_runners(chosen)}. Short texts: {_describe_change(chosen)}."


def describe_setting(method: MethodReport, plan: ExtensionPlan) -> str:
    """The number that a method is set by: "factor 4", or the new base."""
    if method.name == "none":
        return "rotation as published"
    lines = method.lines.get("transformers 5") or {}
    ropes = lines.get("rope_parameters") or {}
    if method.name in ("ntk", "raised_base") and "rope_theta" in ropes:
        return f"base {format_number(ropes['rope_theta'])}"
    factor = getattr(method.scaling, "factor", None)
    return f"factor {format_number(plan.factor if factor is None else factor)}"


def describe_runs(support: FrameworkSupport) -> str:
    """Whether a framework runs a method, in one short word."""
    return _RUNS.get(support.outcome, "no")


def format_context(tokens: int | None) -> str:
    """An effective context for a table."""
    return "unlimited" if tokens is None else format_number(tokens)


def list_obstacles(plan: ExtensionPlan) -> list[tuple[str, str]]:
    """Frameworks that do not run some methods: "vLLM: dynamic_ntk", and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for method in plan.methods:
        reasons: dict[str, list[str]] = {}
        for each in method.support:
            if each.why is not None:
                start = "not known: " if each.outcome == "unknown" else ""
                reasons.setdefault(f"{start}{each.why}", []).append(each.framework)
        for why, names in reasons.items():
            who = "all" if len(names) == len(method.support) else ", ".join(names)
            found.setdefault((who, why), []).append(method.name)
    return [(f"{', '.join(names)}: {who}", why) for (who, why), names in found.items()]


def list_recipes(plan: ExtensionPlan) -> Iterator[tuple[str, Recipe, str | None]]:
    """The title of each recipe, the recipe, and the framework that has the same text, if any."""
    seen: dict[str, str] = {}
    for recipe in plan.recipes:
        what = "config.json" if recipe.form == "lines" else "command"
        same = seen.get(recipe.text) if recipe.text is not None else None
        if recipe.text is not None and same is None:
            seen[recipe.text] = recipe.framework
        yield f"{recipe.framework}, {what}", recipe, same


def render_page(plan: ExtensionPlan, width: int = 90) -> str:
    """The whole plan as plain text."""
    blocks = ["\n".join(textwrap.fill(line, width) for line in (write_title(plan), *plan.verdict))]
    blocks.append(textwrap.fill(plan.trained.why, width))
    rows = [("method", "effective context", "out", "change", "scale", "run by")]
    for method in plan.methods:
        angles = method.angles
        rows.append(
            (
                method.name,
                format_context(angles.effective_context),
                f"{angles.out_of_distribution}/{angles.pairs}",
                format_brief(angles.angle_change),
                f"{angles.attention_scale:.4f}",
                ", ".join(method.run_by) or "nobody",
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    blocks.append("\n".join(lines))
    blocks.append(textwrap.fill(f"Order: {plan.rule}. {plan.reason}", width))
    for title, recipe, same in list_recipes(plan):
        text = f"as for {same}" if same is not None else recipe.text
        parts = [f"{title}:", *filter(None, [text, recipe.note and f"({recipe.note})"])]
        blocks.append("\n".join(parts))
    return "\n\n".join(blocks)


def _describe_angles(method: MethodReport) -> str:
    new = method.angles.out_of_distribution
    if not new:
        return "no pair is out of distribution"
    are = "is" if new == 1 else "are"
    return f"{new} of {method.angles.pairs} pairs {are} out of distribution"


def _describe_change(method: MethodReport) -> str:
    """What texts of the trained length notice."""
    angles, parts = method.angles, []
    if angles.angle_change:
        parts.append(f"angles off by up to {format_brief(angles.angle_change)} rad")
    if abs(angles.attention_scale - angles.published_scale) > 1e-9:
        before = "" if angles.published_scale == 1 else f"{angles.published_scale:.4g} to "
        parts.append(f"scale {before}{angles.attention_scale:.4g}")
    return ", ".join(parts) or "nothing changes"


def _count_runners(method: MethodReport) -> str:
    count, every = len(method.run_by), len(method.support)
    if not count:
        return "No framework runs it"
    return f"{f'All {every}' if count == every else f'{count} of {every}'} frameworks run it"


def _describe_unchanged(plan: ExtensionPlan, method: MethodReport) -> tuple[str, str]:
    claimed = format_number(plan.claimed or plan.target)
    first = f"Nothing to write: the published config has a scaling and claims {claimed} tokens."
    limit = method.angles.effective_context
    if limit is None or limit >= plan.target:
        return first, "By angles alone, no pair is out of distribution there."
    known = f"By angles alone it covers {format_number(limit)} tokens"
    return first, f"{known}; the rest relies on further training."


def _explain_none(plan: ExtensionPlan) -> str:
    reasons = Counter(each.why for each in plan.methods if each.why is not None)
    return (
        f"The reason: {reasons.most_common(1)[0][0]}."
        if reasons
        else "Their reading of this model is not known."
    )
