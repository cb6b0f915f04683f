"""A plan as tables for a terminal; needs rich, which the cli extra installs."""

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from whorl.configs.inspection.words import format_brief

from .report import ExtensionPlan, MethodReport
from .words import LEGEND, describe_runs, format_context, list_obstacles, list_recipes, write_title

__all__ = ["render_recipes", "render_terminal"]

_COLOURS = {"yes": "green", "no": "red", "?": "dim"}
#: Headings of frameworks, over two lines so that the table fits into 80 columns.
_HEADS = {
    "transformers 4": "trf.\n4",
    "transformers 5": "trf.\n5",
    "llama.cpp": "llama\n.cpp",
    "mlx-lm": "mlx\n-lm",
}


def render_terminal(plan: ExtensionPlan) -> list[RenderableType]:
    """What ``whorl extend`` prints, as renderables of rich."""
    first, second = plan.verdict
    lines: list[RenderableType] = [Text(write_title(plan), "bold"), Text(first), Text(second)]
    lines += ["", Text(plan.trained.why), "", _render_methods(plan)]
    lines += ["", Text(f"{LEGEND} trf.: transformers.", "dim")]
    lines += ["", Text(f"Order: {plan.rule}."), Text(plan.reason)]
    obstacles = list_obstacles(plan)
    if obstacles:
        lines += ["", Text("Who does not run what", "bold"), _render_rows(obstacles)]
    if plan.left_out:
        rows = list(plan.left_out.items())
        lines += ["", Text("Left out", "bold"), _render_rows(rows)]
    return [*lines, *render_recipes(plan)]


def _render_methods(plan: ExtensionPlan) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for name in ("effective\ncontext", "out of\npairs", "change\nrad", "attn.\nscale"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in plan.methods[0].support:
        table.add_column(_HEADS.get(each.framework, each.framework), no_wrap=True)
    for method in plan.methods:
        table.add_row(*_list_cells(method), style="bold" if method.name == plan.chosen else "")
    return table


def _list_cells(method: MethodReport) -> list[Text | str]:
    angles = method.angles
    new = f"{angles.out_of_distribution}/{angles.pairs}"
    runs = [describe_runs(each) for each in method.support]
    return [
        method.name,
        format_context(angles.effective_context),
        Text(new, "" if angles.out_of_distribution == 0 else "yellow"),
        format_brief(angles.angle_change),
        f"{angles.attention_scale:.4f}",
        *(Text(word, _COLOURS[word]) for word in runs),
    ]


def _render_rows(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return Padding(table, (0, 0, 0, 2))


def render_recipes(plan: ExtensionPlan) -> list[RenderableType]:
    """What to write for the chosen method, framework by framework."""
    lines: list[RenderableType] = []
    if plan.recipes:
        lines += ["", Text(f"What to write for {plan.chosen}", "bold")]
    for title, recipe, same in list_recipes(plan):
        lines += ["", Text(title, "bold")]
        if same is not None:
            lines.append(Text(f"the lines for {same}"))
        elif recipe.text is not None:
            lines.append(Text(recipe.text, overflow="fold"))
        if recipe.note is not None:
            lines.append(Text(recipe.note, "dim"))
    return lines
