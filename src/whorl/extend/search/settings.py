"""Settings of a search for factors."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from whorl._support.words import quote

__all__ = ["FactorSearch"]

Objective = Literal["text", "needles"]


@dataclass(frozen=True, kw_only=True)
class FactorSearch:
    """How long a search is, and what it minimizes.

    objective: "text", a factor for each pair by the loss of all tokens past the trained length, as
        in LongRoPE; "needles", factors from a critical pair on by the loss of the answers about
        statements that are put into the text, as in LongRoPE2.
    evaluations: candidates whose loss is computed. YaRN is tuned by as many.
    population: candidates of a generation; half as many of the best so far are their parents.
    windows: texts of the target length that an evaluation reads.
    minutes: a search that would take longer by the time of its first evaluation is refused.
    """

    objective: Objective = "text"
    evaluations: int = 96
    population: int = 16
    windows: int = 4
    seed: int = 0
    minutes: float = 60.0

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise ValueError(
                f"objective must be one of {', '.join(get_args(Objective))}; got"
                f" {quote(self.objective)}."
            )
        for name, least in (("evaluations", 1), ("population", 4), ("windows", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}; got {quote(value)}."
                )
        is_number = isinstance(self.minutes, (int, float)) and not isinstance(self.minutes, bool)
        if not is_number or not 0 < self.minutes < float("inf"):
            raise ValueError(f"minutes must be a number greater than 0; got {quote(self.minutes)}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
