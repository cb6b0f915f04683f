"""Values, order, verdicts and sentences of a comparison, for the page and the tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .thresholds import BREAKS, HOLDS, SEED_NOISE

__all__ = ["MISSING", "ComparisonView"]

MISSING = "\u2013"


@dataclass(frozen=True)
class ComparisonView:
    """Values and texts of a comparison."""

    comparison: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.comparison["settings"]
        return found

    @property
    def is_accuracy(self) -> bool:
        return bool(self.settings["measure"] == "accuracy")

    @property
    def measure(self) -> str:
        return "accuracy" if self.is_accuracy else "loss"

    @property
    def unit(self) -> str:
        return str((self.comparison.get("corpus") or {}).get("unit") or "tokens")

    @property
    def loss_unit(self) -> str:
        return f"nats per {self.unit.removesuffix('s')}"

    @property
    def shape(self) -> str:
        return f"{_format_count(self.settings['layers'], 'layer')}, width {self.settings['width']}"

    @property
    def trained_length(self) -> int:
        return int(self.settings["length"])

    @property
    def longest(self) -> int:
        return int(max(self.settings["lengths"]))

    @property
    def lengths(self) -> list[int]:
        return sorted(int(length) for length in self.settings["lengths"])

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """All rows, the best at the longest length first, those without a value last."""
        return self.rank_rows(self.longest)

    def rank_rows(self, length: int) -> list[Mapping[str, Any]]:
        """All rows, the best at ``length`` first, those without a value last."""

        def key(row: Mapping[str, Any]) -> tuple[bool, float]:
            value = self.get_value(row, length)
            return value is None, 0.0 if value is None else -value if self.is_accuracy else value

        return sorted(self.comparison["rows"], key=key)

    def get_cell(self, row: Mapping[str, Any], length: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = row["by_length"].get(str(length)) or {}
        return found

    def get_value(self, row: Mapping[str, Any], length: int) -> float | None:
        return read_number(self.get_cell(row, length).get("mean"))

    def compute_degradation(self, row: Mapping[str, Any]) -> float | None:
        """How much worse a row is at the longest length than at the training length."""
        near, far = self.get_value(row, self.trained_length), self.get_value(row, self.longest)
        if near is None or far is None:
            return None
        return near - far if self.is_accuracy else far - near

    def average_loss_between(self, row: Mapping[str, Any], start: int, end: int) -> float | None:
        """Mean loss of tokens at positions start .. end - 1 in windows of the longest length."""
        found = row.get("by_position") or {}
        columns = (found.get(key, ()) for key in ("start", "end", "loss"))
        inside = [
            (b - a, loss) for a, b, loss in zip(*columns, strict=True) if start <= a and b <= end
        ]
        total = sum(width for width, _ in inside)
        return sum(width * loss for width, loss in inside) / total if total else None

    def format_value(self, value: float | None) -> str:
        if value is None:
            return MISSING
        return f"{value:.1%}" if self.is_accuracy else f"{value:.2f}"

    @property
    def has_speed(self) -> bool:
        return any(read_number(row.get("tokens_per_second")) for row in self.comparison["rows"])

    def format_speed(self, row: Mapping[str, Any]) -> str:
        """Tokens per second; blank if not measured, a dash for a row that was not trained."""
        value = read_number(row.get("tokens_per_second"))
        if value is None:
            return "" if row["trained_as"] == row["name"] else MISSING
        return f"{value:,.0f}"

    def describe_outcome(self, claim: Mapping[str, Any]) -> str:
        seeds, layers = len(self.settings["seeds"]), self.settings["layers"]
        return (
            f"{claim['outcome']} ({_format_count(seeds, 'seed')}, {_format_count(layers, 'layer')})"
        )

    def format_change(self, row: Mapping[str, Any]) -> str:
        """Value at the longest length minus that at the training length, with its sign."""
        worse = self.compute_degradation(row)
        if worse is None:
            return MISSING
        # Adding 0 makes a rounded -0 a 0.
        if self.is_accuracy:
            return f"{round(-100 * worse, 1) + 0.0:+.1f}"
        return f"{round(worse, 2) + 0.0:+.2f}"

    def compute_half_width(self, row: Mapping[str, Any], length: int) -> float | None:
        cell = self.get_cell(row, length)
        low, high = read_number(cell.get("low")), read_number(cell.get("high"))
        return None if low is None or high is None else (high - low) / 2

    def list_differences(self) -> tuple[str, list[str], list[list[str]]] | None:
        """Title, heads and rows of differences paired by seed; None if there is one seed."""
        rows = [row for row in self.rows if row.get("against")]
        if not rows:
            return None
        name, seeds = rows[0]["against"]["name"], len(self.settings["seeds"])
        title = f"Difference to {name}, paired by seed: mean and 95 % interval over {seeds} seeds"
        heads = ["encoding", *map(str, self.lengths)]
        return (
            title,
            heads,
            [
                [
                    str(row["name"]),
                    *(self._format_difference(row, length) for length in self.lengths),
                ]
                for row in rows
            ],
        )

    def _format_difference(self, row: Mapping[str, Any], length: int) -> str:
        cell = row["against"]["by_length"].get(str(length)) or {}
        mean, low, high = (read_number(cell.get(key)) for key in ("mean", "low", "high"))
        if mean is None or low is None or high is None:
            return MISSING
        unit, digits = (100.0, 1) if self.is_accuracy else (1.0, 2)
        middle = round(unit * mean, digits) + 0.0  # no -0.00
        return f"{middle:+.{digits}f} \u00b1{unit * (high - low) / 2:.{digits}f}"

    def group_by_verdict(self) -> dict[str, list[str]]:
        """Names of rows by verdict: "holds", "weakens", "breaks" or "fails".

        The verdict depends on the change from the training length to the longest one. A row fails
        if it has no finite value there or, where accuracy is measured, if its accuracy at the
        training length is less than half of the best.
        """
        found: dict[str, list[str]] = {"holds": [], "weakens": [], "breaks": [], "fails": []}
        tops = [self.get_value(row, self.trained_length) or 0.0 for row in self.comparison["rows"]]
        least = max(tops, default=0.0) / 2 if self.is_accuracy else -math.inf
        for row in self.rows:
            worse, near = self.compute_degradation(row), self.get_value(row, self.trained_length)
            if worse is None or near is None or near < least:
                kind = "fails"
            elif worse <= HOLDS[self.measure]:
                kind = "holds"
            else:
                kind = "breaks" if worse > BREAKS[self.measure] else "weakens"
            found[kind].append(str(row["name"]))
        return found

    def summarize(self) -> str:
        """The result in a few sentences."""
        rows = self.comparison["rows"]
        if not rows:
            return "No run has finished, so there is nothing to compare yet."
        named = f"{len(rows)} encodings and extensions" if len(rows) > 1 else "One encoding"
        sentences = [
            f"{named}: the same small model, trained for {self.settings['steps']} steps on"
            f" {self._task_words} {self.trained_length} {self.unit}.",
            self._describe_leader(
                self.trained_length, f"At that length {{}} has the {self._best_words}"
            ),
        ]
        if self.longest > self.trained_length:
            times = f"{self.longest / self.trained_length:g} times the training length"
            sentences.append(
                self._describe_leader(self.longest, f"At {self.longest}, {times}, {{}} is best")
            )
            sentences += self._describe_verdicts()
        return " ".join(sentence for sentence in sentences if sentence)

    @property
    def _best_words(self) -> str:
        return "highest accuracy" if self.is_accuracy else "lowest loss"

    @property
    def _task_words(self) -> str:
        task = self.settings["task"]
        return "texts of" if task == "text" else f"the task {task} at a length of"

    def _describe_leader(self, length: int, start: str) -> str:
        rows = [row for row in self.rank_rows(length) if self.get_value(row, length) is not None]
        if not rows:
            return f"No row has a finite value at {length}."
        first = rows[0]
        text = (
            f"{start.format(first['name'])} with {self.format_value(self.get_value(first, length))}"
        )
        text += "" if self.is_accuracy else f" {self.loss_unit}"
        interval = self.compute_half_width(first, length) is not None
        close = [str(row["name"]) for row in rows[1:] if self._is_close(first, row, length)]
        if not close:
            return f"{text}."
        verb = "is" if len(close) == 1 else "are"
        near = f"{100 * SEED_NOISE:g} points" if self.is_accuracy else f"{SEED_NOISE:g} nats"
        why = "intervals overlap" if interval else f"within {near}"
        return f"{text}; {join_names(close, 4)} {verb} too close to call ({why})."

    def _is_close(self, best: Mapping[str, Any], row: Mapping[str, Any], length: int) -> bool:
        """Whether the intervals of two rows overlap; without intervals, whether values are near."""
        ours, theirs = self.get_value(best, length), self.get_value(row, length)
        assert ours is not None
        assert theirs is not None
        halves = (self.compute_half_width(best, length), self.compute_half_width(row, length))
        if halves[0] is None or halves[1] is None:
            return abs(ours - theirs) <= SEED_NOISE
        edges = ("low", "high") if self.is_accuracy else ("high", "low")
        ours = float(self.get_cell(best, length)[edges[0]])
        theirs = float(self.get_cell(row, length)[edges[1]])
        return theirs >= ours if self.is_accuracy else theirs <= ours

    def _describe_verdicts(self) -> list[str]:
        hold, far = HOLDS[self.measure], BREAKS[self.measure]
        small, large = (
            (f"{hold * 100:g} points", f"{far * 100:g} points")
            if self.is_accuracy
            else (f"{hold:g} nats", f"{far:g} nats")
        )
        way = "a loss" if self.is_accuracy else "a rise"
        ends = {
            "holds": ("holds", "hold", f" ({way} of at most {small})."),
            "weakens": ("weakens", "weaken", f" (up to {large})."),
            "breaks": ("breaks", "break", f" (more than {large})."),
            "fails": (
                ("reaches", "reach", " less than half of the best accuracy at the training length.")
                if self.is_accuracy
                else ("has", "have", " no finite value there.")
            ),
        }
        return [
            f"{join_names(names, 7)} {ends[kind][len(names) > 1]}{ends[kind][2]}"
            for kind, names in self.group_by_verdict().items()
            if names
        ]


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def read_number(value: Any) -> float | None:
    """``value`` if it is a finite number, else None, as in a run that diverged."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def join_names(names: Sequence[str], most: int) -> str:
    """Names joined to a text with at most ``most`` entries, the last one a number.

    >>> join_names(["rope", "alibi", "t5"], most=3)
    'rope, alibi and t5'
    >>> join_names(["rope", "alibi", "t5"], most=2)
    'rope and 2 more'
    """
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
