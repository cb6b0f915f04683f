"""The result of ``plan_extension`` as data.

ExtensionPlan           one model and one target
  TrainedLength         where the extension starts
  MethodReport          one method
    AngleReport         its angles
    FrameworkSupport    whether a framework runs it
  Recipe                what to write for the chosen method
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whorl.configs.huggingface.write import Dialect
from whorl.configs.model import convert_to_json
from whorl.scaling import Scaling

from .angles import AngleReport
from .recipes import Recipe
from .start import TrainedLength
from .support import FrameworkSupport

__all__ = ["ExtensionPlan", "MethodReport"]


@dataclass(frozen=True)
class MethodReport:
    """What one method does, and who runs it.

    scaling: that of the first extended group of layers; None for the rotation as published.
    lines: keys to set in config.json, by dialect; None if the dialect cannot express it.
    why: why no config.json can ask for it, if so.
    """

    name: str
    title: str
    scaling: Scaling | None
    angles: AngleReport
    support: tuple[FrameworkSupport, ...]
    lines: Mapping[Dialect, Mapping[str, Any] | None]
    why: str | None = None

    @property
    def run_by(self) -> tuple[str, ...]:
        """The frameworks that run it as it is meant."""
        return tuple(each.framework for each in self.support if each.runs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            **self.angles.to_dict(),
            "run_by": list(self.run_by),
            "support": [each.to_dict() for each in self.support],
            "lines": convert_to_json(dict(self.lines)),
            "why": self.why,
        }


@dataclass(frozen=True)
class ExtensionPlan:
    """How to make the context of a model longer; ``str`` gives a page of text.

    claimed: tokens that the config claims. target: tokens to extend to; factor: target over the
        trained length.
    claimed_already: whether the published config, which has a scaling, claims the target.
    methods: in the order of the rule. recommended: the first, None if no framework runs any.
    chosen: the method that ``recipes`` and ``configs`` are for.
    left_out: methods that cannot be planned from a config, with the reason.
    configs: the whole config with the chosen method, by dialect; dialect: that of the config.
    path: the file of the config, None if there is none.
    """

    source: str
    model_type: str | None
    trained: TrainedLength
    claimed: int | None
    target: int
    claimed_already: bool
    methods: tuple[MethodReport, ...]
    recommended: str | None
    chosen: str | None
    rule: str
    reason: str
    recipes: tuple[Recipe, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    dialect: Dialect | None = None
    path: Path | None = field(default=None, repr=False)
    configs: Mapping[Dialect, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def factor(self) -> float:
        return self.target / self.trained.tokens

    @property
    def verdict(self) -> tuple[str, str]:
        """The answer in two sentences: what to write, and what it costs."""
        from .words import write_verdict

        return write_verdict(self)

    def find_method(self, name: str | None) -> MethodReport | None:
        """The method of this name, None if there is none."""
        return next((each for each in self.methods if each.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the whole configs as numbers, strings, lists and dicts, for JSON."""
        found: dict[str, Any] = convert_to_json(
            {
                "source": self.source,
                "model_type": self.model_type,
                "verdict": list(self.verdict),
                "trained": self.trained.to_dict(),
                "claimed": self.claimed,
                "target": self.target,
                "factor": self.factor,
                "claimed_already": self.claimed_already,
                "recommended": self.recommended,
                "chosen": self.chosen,
                "rule": self.rule,
                "reason": self.reason,
                "methods": [each.to_dict() for each in self.methods],
                "recipes": [each.to_dict() for each in self.recipes],
                "left_out": dict(self.left_out),
                "dialect": self.dialect,
            }
        )
        return found

    def __str__(self) -> str:
        from .words import render_page

        return render_page(self)
