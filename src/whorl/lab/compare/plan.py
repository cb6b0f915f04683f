"""Plan of a comparison: the same model with each encoding and seed.

The runs of a comparison differ in the encoding, its learning rates and the seed only. Each is
trained twice, the other time with a third of the steps: what differs between the two has not
settled yet.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from whorl._support.words import quote, suggest_name
from whorl.encodings import base
from whorl.lab.config import EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.encodings import format_title
from whorl.lab.evaluate import SCALINGS, add_scaling, supports_scaling
from whorl.lab.rates import set_learning_rates
from whorl.lab.runs import Run
from whorl.lab.specs import name_folder, parse_spec

__all__ = [
    "BUDGETS",
    "SHORT_SUFFIX",
    "BudgetName",
    "ComparisonPlan",
    "PlannedRun",
    "shorten_run",
]

BudgetName = Literal["quick", "standard", "converged", "full"]

#: End of the names of runs with a third of the steps.
SHORT_SUFFIX = "-third"

# Rows whose difference from RoPE at the trained length is after 1800 steps what it is after 10,800,
# within 0.1 nats. Those of NoPE, which learns slowly, and of YaRN are not.
_QUICK_ENCODINGS = (
    "sinusoidal",
    "learned",
    "rope",
    "alibi",
    "t5",
    "kerple",
    "xpos",
    "transformer_xl",
)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan: the name of its folder, its config, and scalings for the evaluation."""

    name: str
    config: RunConfig
    scalings: tuple[str, ...] = ()
    worker: ClassVar[str] = "whorl.lab.worker"

    def is_finished(self, folder: Path, about: Mapping[str, Any]) -> bool:
        """Whether ``folder`` has all results of the run on the corpus ``about``."""
        return Run(folder).is_finished(self.config, about, self.scalings)

    def build_request(self, folder: Path) -> dict[str, Any]:
        """What the worker needs to train the run in ``folder``."""
        scalings = list(self.scalings)
        return {"folder": str(folder), "config": self.config.to_dict(), "scalings": scalings}


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """Encodings to compare, and how.

    encodings: names, compositions such as "learned+rope", or specs with options such as
    "rope(base=100)", which also name the rows. scalings: rotary encodings without a scaling of
    their own are also evaluated with each of them. learning_rates: every encoding is trained with
    each of them for the matrices of its layers, instead of the rate from the trials. rates: other
    learning rates of some encodings, by option of ``TrainingConfig``. thirds: whether
    each run is also trained with a third of the steps.
    """

    encodings: tuple[str, ...]
    scalings: tuple[str, ...] = ()
    seeds: int = 1
    learning_rates: tuple[float, ...] = ()
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    thirds: bool = True
    base: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not self.encodings:
            raise ValueError("encodings must have at least one name, such as rope.")
        parsed = [parse_spec(spec, "encodings") for spec in self.encodings]
        if any(spec in parsed[:n] for n, spec in enumerate(parsed)):
            raise ValueError(f"encodings must differ; got {', '.join(self.encodings)}.")
        known = base.names()
        for spec in parsed:
            for part in spec:
                if part["name"] not in known:
                    guess = suggest_name(part["name"], known)
                    raise ValueError(
                        f"encodings: {quote(part['name'])} is unknown{guess} Known:"
                        f" {', '.join(known)}; join several by +."
                    )
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(
                f"seeds must be a whole number of at least 1; got {quote(self.seeds)}."
            )
        if self.base.start.folder is not None:
            raise ValueError(
                "start: a comparison trains every encoding from new weights; leave [start] out, or"
                " use whorl train --from."
            )
        if self.base.training.stages:
            raise ValueError(
                "training.stages: a comparison trains at one length; leave the stages out, or use"
                " whorl train."
            )
        for name in self.scalings:
            add_scaling(RunConfig(), name)
        if self.scalings and not any(map(_has_rotation, self.encodings)):
            raise ValueError(
                f"scalings need a rotary encoding; got {', '.join(self.scalings)}, and encodings"
                f" {', '.join(self.encodings)}. Add rope, or leave the scalings out."
            )

    @classmethod
    def from_budget(
        cls,
        budget: BudgetName = "quick",
        *,
        encodings: Sequence[str] | None = None,
        scalings: Sequence[str] | None = None,
        seeds: int | None = None,
        base: RunConfig | None = None,
    ) -> "ComparisonPlan":
        """The plan of a budget, with the encodings, scalings, seeds or config given here."""
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

    def list_runs(self) -> list[PlannedRun]:
        """All runs, the first seed of all encodings before the second, short runs last."""
        runs = []
        for seed in range(self.seeds):
            for spec in self.encodings:
                scalings = self.scalings if _has_rotation(spec) else ()
                for rate in self.learning_rates or (None,):
                    mark = "" if rate is None else f"-rate{rate:g}"
                    name = f"{name_folder(format_title(spec))}{mark}-seed{seed}"
                    runs.append(PlannedRun(name, self._build_config(spec, seed, rate), scalings))
        short = [
            PlannedRun(run.name + SHORT_SUFFIX, shorten_run(run.config), run.scalings)
            for run in runs
        ]
        return [*runs, *short] if self.thirds else runs

    def _build_config(self, spec: str, seed: int, rate: float | None) -> RunConfig:
        model = dataclasses.replace(self.base.model, encoding=spec)
        training = dataclasses.replace(self.base.training, seed=seed)
        training = set_learning_rates(training, spec, model.width)
        found: dict[str, Any] = dict(self.rates.get(spec, {}))
        training = dataclasses.replace(training, **found)
        if rate is not None:
            training = dataclasses.replace(training, learning_rate=rate)
        return dataclasses.replace(self.base, model=model, training=training)


def shorten_run(config: RunConfig) -> RunConfig:
    """The same run with a third of the steps, also of each stage; at most a tenth are warm-up."""
    training = config.training
    stages = tuple(dataclasses.replace(x, steps=max(1, x.steps // 3)) for x in training.stages)
    steps = sum(x.steps for x in stages) or max(1, training.steps // 3)
    warmup = min(training.warmup, steps // 10)
    shorter = dataclasses.replace(training, steps=steps, warmup=warmup, stages=stages)
    return dataclasses.replace(config, training=shorter)


def _has_rotation(spec: str) -> bool:
    """Whether ``spec`` has a rotation that a scaling can be applied to."""
    return any(
        supports_scaling(part["name"]) and "scaling" not in part
        for part in parse_spec(spec, "encodings")
    )


def _build_quick() -> ComparisonPlan:
    return ComparisonPlan(encodings=_QUICK_ENCODINGS, scalings=("dynamic_ntk",))


def _build_standard() -> ComparisonPlan:
    """All encodings and scalings in three seeds, at the size of quick."""
    rest = tuple(name for name in base.names() if name not in _QUICK_ENCODINGS)
    both = ("learned+rope", "rope+alibi")
    return ComparisonPlan(
        encodings=(*_QUICK_ENCODINGS, *rest, *both), scalings=tuple(SCALINGS), seeds=3
    )


def _build_converged() -> ComparisonPlan:
    """All encodings and scalings in two seeds, with six times the steps of quick."""
    plan = _build_standard()
    training = dataclasses.replace(plan.base.training, steps=6 * plan.base.training.steps)
    return dataclasses.replace(
        plan, seeds=2, base=dataclasses.replace(plan.base, training=training)
    )


def _build_full() -> ComparisonPlan:
    """All encodings and scalings in three seeds, with a larger model and twice the length."""
    small = _build_standard()
    shape = ModelConfig(layers=4, width=192, heads=6)
    training = TrainingConfig(length=256, batch=16, steps=3600, warmup=60)
    config = RunConfig(model=shape, training=training, evaluation=EvaluationConfig(windows=48))
    return dataclasses.replace(small, base=config)


BUDGETS = {
    "quick": _build_quick,
    "standard": _build_standard,
    "converged": _build_converged,
    "full": _build_full,
}
