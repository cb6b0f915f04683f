"""All measurements of one function: properties, and facts for the rules about mistakes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from .identification import Identification
from .measured_function import MeasuredFunction, MeasuredRotation
from .probe import NoAnswerError
from .report import Measured, Mistake

__all__ = ["NOT_REPEATED", "Evidence", "Mistakes", "ResultDependence", "Rule"]

#: Why a call cannot be compared with others.
NOT_REPEATED = "the same call again gives another result"
ResultDependence = tuple[tuple[bool, bool], tuple[bool, bool]]


@dataclass
class FarPositions:
    """What the rules about mistakes need to know of results at far positions."""

    first_wrong: dict[str, int] = field(default_factory=dict)  # dtype -> position
    right_at_next: set[str] = field(default_factory=set)  # dtypes right at the next position
    excess: dict[str, float] = field(default_factory=dict)  # dtype -> error there / allowed error
    largest_errors: dict[str, float] = field(default_factory=dict)  # dtype -> of unit vectors
    from_rule: bool = False  # whether errors are differences from a rule, not from measurements
    #: Tokens of a call in which a position is wrong that is right in a short call, else 0.
    wrong_call_tokens: int = 0
    actual_position: int | None = None  # whose angles the first wrong position gets
    later_change: float = 0.0  # of a result, after calls in half precision
    seconds_per_token: float = 0.0  # in a long call
    not_judged_note: str = ""  # from which position on results cannot be judged

    @property
    def rounded_positions(self) -> dict[str, int]:
        """Dtypes whose first wrong position is one that half precision rounds, unlike the next."""
        gaps = (257, 2049)
        return {d: p for d, p in self.first_wrong.items() if p in gaps and d in self.right_at_next}


@dataclass
class Evidence:
    """All measurements of x, of queries or of keys.

    measured: property -> (Measured, limit). unmeasured: property -> reason. The other fields are
    what the rules about mistakes need to know of compared calls.
    """

    function: MeasuredFunction
    found: Identification
    base: float | None = None  # that the function should have
    measured: dict[str, tuple[Measured, float]] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    # Of queries only: whether result i depends on argument j, how keys differ, and what is wrong if
    # keys have fewer heads.
    dependence: ResultDependence | None = None
    differences: tuple[str, ...] = ()
    grouped_error: str = ""
    far: FarPositions = field(default_factory=FarPositions)
    changed_dtypes: dict[str, str] = field(default_factory=dict)  # of the input -> of the result
    changed_inputs: list[str] = field(default_factory=list)  # names of arguments
    repeats_earlier_call: bool = False  # whether other positions get the result of an earlier call
    single_token_differs: bool = False  # whether a call of a single token is wrong
    wrong_start: int | None = None  # first position of a call whose result depends on its start
    counts_from_start: bool = False  # whether that call is rotated as positions 0, 1, ...
    changed_after: str = ""  # which earlier calls change a result
    batch_mates: str = ""  # which other rows of a batch change a result
    mates_are_copies: bool = False  # whether those are equal to the row itself
    compared_lengths: str = ""  # lengths of two calls that differ at the same positions
    short_result: Tensor | None = None  # result of a short call, if longer ones give the same

    @property
    def rotation(self) -> MeasuredRotation | None:
        """The function, if it rotates pairs."""
        return self.function if isinstance(self.function, MeasuredRotation) else None

    @property
    def dtype(self) -> str:
        """The dtype in which the function is called."""
        return self.function.probe.form.dtype

    @property
    def known_far_error(self) -> float | None:
        """Largest error at far positions of results of unit vectors, if a rule predicts them."""
        return self.far.largest_errors.get(self.dtype) if self.far.from_rule else None

    @property
    def depends_on_call_length(self) -> bool:
        """Whether results depend on the length of a call, even of short ones."""
        return self.fails("length") and self.short_result is None

    @property
    def depends_on_context(self) -> bool:
        """Whether results depend on the largest position of a call."""
        return self.rotation is not None and self.rotation.lengths.constant_up_to is not None

    def add(self, name: str, error: float, limit: float | None = None) -> None:
        """Store a property that holds if error <= limit; by default, the limit of the function."""
        limit = self.function.limit if limit is None else limit
        self.record(name, error <= limit, error, limit)

    def record(self, name: str, ok: bool, error: float, limit: float) -> None:
        """Store a property that holds by another condition than error <= limit."""
        self.measured[name] = (Measured(ok, error), limit)

    def record_call_length(self) -> None:
        """Store that ``length`` fails if a far position is wrong only in a call of many tokens.

        Calls at the first positions may give the same at every length, so that it seems to hold.
        """
        if self.far.wrong_call_tokens and not self.fails("length"):
            self.measured["length"] = self.measured["far"]

    def skip(self, name: str, why: str) -> None:
        """Store why a property could not be measured."""
        self.unmeasured[name] = why

    def measure(self, name: str, step: "Callable[[Evidence], None]") -> None:
        """Measure one property; if a call is refused, only this property is skipped."""
        try:
            step(self)
        except NoAnswerError as problem:
            self.skip(name, f"it {problem}")

    def fails(self, name: str) -> bool:
        return name in self.measured and not self.measured[name][0].ok

    def error(self, name: str) -> float:
        return self.measured[name][0].error

    def replace_by(self, other: "Evidence", names: tuple[str, ...]) -> None:
        """Replace the results of some properties by those of another measurement."""
        self.measured |= {n: other.measured[n] for n in names if n in other.measured}
        self.unmeasured |= {n: other.unmeasured[n] for n in names if n in other.unmeasured}


#: What a rule about mistakes returns.
Mistakes = Iterator[Mistake]
Rule = Callable[[Evidence], Mistakes]
