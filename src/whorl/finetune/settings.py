"""Settings of a fine-tuning: the method of extension, the training, and what is trained."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from whorl._support.words import quote
from whorl.extend.methods import check_method

__all__ = ["FineTuning"]

Positions = Literal["all", "pose", "random"]
TrainingAttention = Literal["dense", "shifted-sparse"]
TrainedPrecision = Literal["float32", "bfloat16"]

_LARGEST_FACTOR = 1024.0
_VALIDATION_WINDOWS, _VALIDATION_TOKENS = 8, 2**16


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What a model is extended by, and how it is trained for it.

    method, factor: the method of extension, and the target over the trained length. method is None
        with drop_positions.
    trained: trained length in tokens, if the config does not say.
    length: tokens of a training sequence. None is the target, and the trained length where
        positions are skipped or dropped.
    batch, accumulation: sequences in a forward pass, and passes in a step.
    learning_rate: None is 2e-5 for a folder of transformers, as in YaRN and LongLoRA, and 1e-3 for
        a run of the lab, whose models are small.
    warmup: steps in which the rate rises in a line; after them it falls in a line to 0. None is a
        tenth of the steps, at most 20.
    clip: largest norm of the gradients.
    attention: of the training; the trained model is dense in any case.
    lora: rank of the matrices that train attention, beside embeddings and norms; None trains all.
    positions: "pose" skips positions between two chunks, "random" between any two tokens.
    drop_positions: take the rotation away, and train without it. Experimental.
    validation: windows of the target length whose last tokens are scored before and after; 0 for
        none. None is 8, or fewer if that is more than 65,536 tokens.
    """

    method: str | None = "yarn"
    factor: float = 4.0
    trained: int | None = None
    length: int | None = None
    steps: int = 200
    batch: int = 4
    accumulation: int = 1
    learning_rate: float | None = None
    warmup: int | None = None
    clip: float = 1.0
    seed: int = 0
    precision: TrainedPrecision = "float32"
    attention: TrainingAttention = "dense"
    lora: int | None = None
    positions: Positions = "all"
    drop_positions: bool = False
    validation: int | None = None

    def __post_init__(self) -> None:
        self._check_method()
        for name, least in (("steps", 1), ("batch", 1), ("accumulation", 1), ("seed", 0)):
            _check_count(name, getattr(self, name), least)
        optional = {"trained": 2, "length": 2, "warmup": 0, "lora": 1, "validation": 0}
        for name, least in optional.items():
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), least)
        _check_positive("clip", self.clip, math.inf)
        if self.learning_rate is not None:
            _check_positive("learning_rate", self.learning_rate, 10.0)
        _check_choice("precision", self.precision, get_args(TrainedPrecision))
        _check_choice("attention", self.attention, get_args(TrainingAttention))
        _check_choice("positions", self.positions, get_args(Positions))
        if self.positions == "pose" and self.method == "none":
            raise ValueError(
                "positions 'pose' needs a method that changes frequencies, such as linear or yarn,"
                " because skipped positions alone leave out-of-distribution angles; got method"
                " 'none'."
            )

    def _check_method(self) -> None:
        if self.drop_positions and (self.method is not None or self.positions != "all"):
            what = f"method {quote(self.method)}" if self.method else quote(self.positions)
            raise ValueError(
                "drop_positions takes the rotation away, so there are no frequencies or positions"
                f" to change; got {what} too. Leave one of them out."
            )
        if not self.drop_positions:
            if self.method is None:
                raise ValueError("method must be the name of a method, such as yarn; got None.")
            check_method(self.method)
        if not _is_number(self.factor) or not 1 < self.factor <= _LARGEST_FACTOR:
            raise ValueError(
                "factor must be the target over the trained length, a number greater than 1 and at"
                f" most {_LARGEST_FACTOR:g}; got {quote(self.factor)}."
            )

    @property
    def shortens(self) -> bool:
        """Whether training sequences are as long as the trained length by default."""
        return self.drop_positions or self.positions != "all"

    @property
    def warmup_steps(self) -> int:
        return min(20, self.steps // 10) if self.warmup is None else self.warmup

    def count_validation_windows(self, target: int) -> int:
        """The most windows of validation text for a target length."""
        if self.validation is not None:
            return self.validation
        return max(1, min(_VALIDATION_WINDOWS, _VALIDATION_TOKENS // target))

    def compute_rate_share(self, step: int) -> float:
        """Share of the learning rate in a step, counted from 1."""
        warmup = self.warmup_steps
        if step <= warmup:
            return step / warmup
        return max(0.0, (self.steps + 1 - step) / (self.steps + 1 - min(warmup, self.steps)))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _check_count(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {quote(value)}.")


def _check_positive(name: str, value: object, most: float) -> None:
    if not _is_number(value) or not 0 < float(value) <= most:  # type: ignore[arg-type]
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise ValueError(f"{name} must be a number greater than 0{limit}; got {quote(value)}.")


def _check_choice(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {quote(value)}.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
