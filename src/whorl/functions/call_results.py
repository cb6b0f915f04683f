"""Results of compared calls."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .far_positions import FarPositions
from .probe import FunctionProbe, NoAnswerError
from .results import PropertyResults

__all__ = ["NOT_REPEATED", "CallResults", "draw_vectors"]

#: Why a call cannot be compared with others.
NOT_REPEATED = "the same call again gives another result"


@dataclass
class CallResults:
    """Results of compared calls, and what the rules about mistakes need to know of them."""

    results: PropertyResults = field(default_factory=PropertyResults)
    far: FarPositions = field(default_factory=FarPositions)
    changed_dtypes: dict[str, str] = field(default_factory=dict)  # of the input -> of the result
    changed_inputs: list[str] = field(default_factory=list)  # names of arguments
    repeatable: bool = True  # whether equal calls in a row give equal results
    repeats_earlier_call: bool = False  # whether other positions get the result of an earlier call
    single_token_differs: bool = False  # whether a call of a single token is wrong
    wrong_start: int | None = None  # first position of a call whose result depends on its start
    counts_from_start: bool = False  # whether that call is rotated as positions 0, 1, ...
    changed_after: str = ""  # which earlier calls change a result
    batch_mates: str = ""  # which other rows of a batch change a result
    mates_are_copies: bool = False  # whether those are equal to the row itself
    compared_lengths: str = ""  # lengths of two calls that differ at the same positions
    short_result: Tensor | None = None  # result of a short call, if longer ones give the same

    def measure(self, name: str, step: Callable[[], None]) -> None:
        """Measure one property; if a call is refused, only this property is skipped."""
        try:
            step()
        except NoAnswerError as problem:
            self.results.skip(name, f"it {problem}")


def draw_vectors(probe: FunctionProbe, *shape: int, seed: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, probe.head_dim, generator=generator).double()
