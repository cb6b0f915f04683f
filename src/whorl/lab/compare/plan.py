"""What a comparison trains: the same model once per encoding and seed.

Runs of one comparison differ in the encoding, its learning rate and the seed, and in nothing else.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from whorl._support.words import suggest_name
from whorl.encodings import base
from whorl.lab.config import EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.encodings import format_title, split_spec
from whorl.lab.evaluate import SCALINGS, add_scaling, supports_scaling
from whorl.lab.rates import choose_learning_rate

__all__ = ["BUDGETS", "BudgetName", "ComparisonPlan", "PlannedRun"]

BudgetName = Literal["quick", "standard", "full"]

_QUICK_ENCODINGS = ("nope", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "xpos")


@dataclass(frozen=True)
class PlannedRun:
    """One run: its folder's name, its config, and scalings to evaluate it with."""

    name: str
    config: RunConfig
    scalings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """Encodings by name, or compositions such as "learned+rope"; scalings go to those that rotate.

    learning_rates: a grid that every encoding is trained at, instead of its own.
    """

    encodings: tuple[str, ...]
    scalings: tuple[str, ...] = ()
    seeds: int = 1
    learning_rates: tuple[float, ...] = ()
    base: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not self.encodings:
            raise ValueError("--encodings: name at least one, such as rope.")
        if len(set(self.encodings)) < len(self.encodings):
            raise ValueError(f"--encodings: each only once; got {', '.join(self.encodings)}.")
        known = base.names()
        for spec in self.encodings:
            for part in split_spec(spec):
                if part["name"] not in known:
                    guess = suggest_name(part["name"], known)
                    raise ValueError(
                        f"--encodings: {part['name']!r} is unknown{guess} Known:"
                        f" {', '.join(known)}; join several by +."
                    )
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(f"--seeds must be a whole number of at least 1; got {self.seeds!r}.")
        for name in self.scalings:
            add_scaling(RunConfig(), name)
        if self.scalings and not any(map(_has_rotation, self.encodings)):
            raise ValueError(
                f"--scalings {','.join(self.scalings)} change rotations, and none of"
                f" {', '.join(self.encodings)} rotates; add rope to --encodings."
            )

    @classmethod
    def of(
        cls,
        budget: BudgetName = "quick",
        *,
        encodings: Sequence[str] | None = None,
        scalings: Sequence[str] | None = None,
        seeds: int | None = None,
        base: RunConfig | None = None,
    ) -> "ComparisonPlan":
        """The plan of a budget, with what is given instead of its own choice."""
        plan = BUDGETS[budget]()
        changes: dict[str, Any] = {}
        if encodings is not None:
            changes["encodings"] = tuple(encodings)
            if scalings is None and not any(map(_has_rotation, encodings)):
                changes["scalings"] = ()
        if scalings is not None:
            changes["scalings"] = tuple(scalings)
        if seeds is not None:
            changes["seeds"] = seeds
        if base is not None:
            changes["base"] = base
        return dataclasses.replace(plan, **changes)

    def jobs(self) -> list[PlannedRun]:
        """Every run, the first seed of all encodings before the second."""
        jobs = []
        for seed in range(self.seeds):
            for spec in self.encodings:
                scalings = self.scalings if _has_rotation(spec) else ()
                for rate in self.learning_rates or (None,):
                    mark = "" if rate is None else f"-rate{rate:g}"
                    config = self._config(spec, seed, rate)
                    jobs.append(
                        PlannedRun(f"{format_title(spec)}{mark}-seed{seed}", config, scalings)
                    )
        return jobs

    def _config(self, spec: str, seed: int, rate: float | None) -> RunConfig:
        model = dataclasses.replace(self.base.model, encoding=spec)
        if rate is None:
            rate = choose_learning_rate(spec, model.width)
        training = dataclasses.replace(self.base.training, learning_rate=rate, seed=seed)
        return dataclasses.replace(self.base, model=model, training=training)


def _has_rotation(spec: str) -> bool:
    return any(supports_scaling(part["name"]) for part in split_spec(spec))


def _build_quick() -> ComparisonPlan:
    return ComparisonPlan(encodings=_QUICK_ENCODINGS, scalings=("yarn",))


def _build_standard() -> ComparisonPlan:
    """Every encoding and scaling on three seeds, at the size of quick."""
    rest = tuple(name for name in base.names() if name not in _QUICK_ENCODINGS)
    both = ("learned+rope", "rope+alibi")
    return ComparisonPlan(
        encodings=(*_QUICK_ENCODINGS, *rest, *both), scalings=tuple(SCALINGS), seeds=3
    )


def _build_full() -> ComparisonPlan:
    """The same on a model eight times as large, trained twice as long on twice the length."""
    small = _build_standard()
    shape = ModelConfig(layers=4, width=192, heads=6)
    training = TrainingConfig(length=256, batch=16, steps=1200, warmup=60)
    config = RunConfig(model=shape, training=training, evaluation=EvaluationConfig(windows=48))
    return dataclasses.replace(small, base=config)


BUDGETS = {"quick": _build_quick, "standard": _build_standard, "full": _build_full}
