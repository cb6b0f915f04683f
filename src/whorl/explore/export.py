"""One page in one file: the charts of a model with every method in steps, or of two models.

The page has the scripts, the style and all numbers in it, so that it opens from a disk or a mail
without a server and without a network. Steps are computed by the functions of the live page.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import whorl
from whorl.configs import ConfigError
from whorl.configs.inspection import compare_models, inspect
from whorl.configs.inspection.lengths import find_extension_start

from .choices import TITLES, Choice, find_least_factors, list_methods
from .curves import LENGTH_LIMIT, build_view
from .report import build_report
from .state import ExploredConfig

__all__ = ["FACTORS", "build_document", "render_page"]

#: Factors of the steps, and the most layer groups that have them.
FACTORS = (2.0, 4.0, 8.0, 16.0)
_GROUP_LIMIT = 3
#: What a step has of the view of the live page, beside its curves.
_FROM_VIEW = ("length", "trained", "window", "distances", "why", "likeness", "envelopes", "heat")
_SCRIPTS = ("common.js", "charts.js", "heat.js", "views.js", "sides.js", "exported.js")


def build_document(
    models: Sequence[ExploredConfig], *, progress: Callable[[int, int, str], None] | None = None
) -> dict[str, Any]:
    """All numbers of the page: of one model with its steps, or of two models as published.

    One of two may be without rotary layers, and then has no curves.

    progress: called with the number of steps that are done, of all, and the model.
    """
    for each in models:
        if each.problem is not None:
            raise ConfigError(f"{each.name}: {each.problem}")
    document: dict[str, Any] = {"version": whorl.__version__, "difference": None}
    if len(models) == 2:
        found = compare_models(*(inspect(each.source) for each in models))
        names = [each.name for each in models]
        facts = [fact.to_dict() for fact in found.facts]
        differ = list(dict.fromkeys(fact["name"] for fact in facts if fact["differs"]))
        verdict = f"{' and '.join(names)} differ in {', '.join(differ)}."
        if not differ:
            verdict = f"{' and '.join(names)} treat positions alike."
        document["difference"] = {"verdict": verdict, "facts": facts}
    methods = list_methods() if len(models) == 1 else []
    return {
        **document,
        "titles": {name: TITLES.get(name, name) for name in ("config", *methods)},
        "factors": list(FACTORS),
        "models": [_build_model(each, methods, progress) for each in models],
    }


def render_page(document: dict[str, Any]) -> bytes:
    """The page with everything that it needs, as UTF-8."""
    static = files(__package__).joinpath("static")
    names = " and ".join(model["name"] for model in document["models"])
    data = json.dumps(document, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": escape(f"{names}: positions"),
        "style": static.joinpath("style.css").read_text("utf-8"),
        "script": "\n".join(_inline(static.joinpath(name).read_text("utf-8")) for name in _SCRIPTS),
        "data": data.replace("<", "\\u003c"),  # so that no text of a config ends the element
    }
    page = static.joinpath("exported.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page).encode("utf-8")


def _inline(script: str) -> str:
    """A module without its imports and exports, to stand in one script with the others."""
    script = re.sub(r"^import .*?;\n", "", script, flags=re.MULTILINE)
    return re.sub(r"^export ", "", script, flags=re.MULTILINE)


def _build_model(
    explored: ExploredConfig,
    methods: Sequence[str],
    progress: Callable[[int, int, str], None] | None,
) -> dict[str, Any]:
    rotating = [n for n, group in enumerate(explored.groups) if group.rotation is not None]
    if methods:
        explored.select_group(None)  # raises if no layers rotate
    report = build_report(explored)
    chosen = _choose_groups(explored, rotating)
    steps: dict[int, list[dict[str, Any]]] = {index: [] for index in chosen}
    total, done = len(chosen) * (1 + len(methods) * len(FACTORS)), 0
    for index in chosen:
        for step in _build_steps(explored, index, methods):
            steps[index].append(step)
            done += 1
            if progress is not None:
                progress(done, total, explored.name)
    titles = {group["index"]: group["title"] for group in report["groups"]}
    return {
        "name": explored.name,
        "verdict": report["verdict"],
        "notes": report["notes"],
        "facts": [group for group in report["groups"] if group["rotates"]],
        "findings": report["findings"],
        "first": explored.select_group(None)[0] if rotating else None,
        "groups": [
            {
                "index": index,
                "title": titles[index],
                "steps": steps[index],
            }
            for index in chosen
        ],
    }


def _choose_groups(explored: ExploredConfig, rotating: list[int]) -> list[int]:
    """The groups that the page has, the one that is shown first among them."""
    if not rotating:
        return []
    first = explored.select_group(None)[0]
    return sorted([first, *(n for n in rotating if n != first)][:_GROUP_LIMIT])


def _build_steps(
    explored: ExploredConfig, index: int, methods: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The config as published, and each method with each factor."""
    yield _build_step(explored, index, Choice(), None)
    model = explored.model
    assert model is not None
    start = find_extension_start(model, explored.groups[index], None)
    if start is None:  # the config does not say it, and every method needs it
        return
    for method in methods:
        for factor in FACTORS:
            if factor >= find_least_factors().get(method, 0.0):
                length = min(LENGTH_LIMIT, round(start * factor))
                yield _build_step(explored, index, Choice(method, factor), length)


def _build_step(
    explored: ExploredConfig, index: int, choice: Choice, length: int | None
) -> dict[str, Any]:
    """The numbers of the charts, the verdict, and what to write."""
    choices = () if choice.is_config else (choice,)
    step: dict[str, Any] = {"method": choice.method, "factor": choice.factor}
    view = build_view(explored, group=index, length=length, choices=choices)
    last = view["curves"][-1]
    if "error" in last:
        return {**step, "error": last["error"]}
    # Without the length, for which rules would search all distances, at every step.
    report = build_report(explored, group=index, choice=choice)
    unused = ("angles", "likeness", "inv_freq", "base")
    curves = [{k: v for k, v in each.items() if k not in unused} for each in view["curves"]]
    for curve in curves:
        curve["wavelengths"] = [_shorten(value) for value in curve["wavelengths"]]
        curve["factors"] = [_shorten(value) for value in curve["factors"]]
    return {
        **step,
        **{name: view[name] for name in _FROM_VIEW if name in view},
        "curves": curves,
        "verdict": report["verdict"],
        "findings": report["findings"],
        "configs": report["configs"],
        "dialect": report["dialect"],
        "warnings": report["warnings"],
        "why_no_config": report["why"],
    }


def _shorten(value: float | None) -> float | None:
    """A number with the digits that a chart shows."""
    return None if value is None else float(f"{value:.6g}")
