"""Values, order and texts of a comparison, for the page, the tables and the verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whorl.lab.tasks import TASK_NAMES, get_task

from .decisions import LEAST_GAIN, LEAST_SHARE
from .noise import ACCURACY_NOISE, compute_noise, find_deviation
from .statistics import estimate
from .thresholds import FLAT, HOLDS

__all__ = ["MISSING", "ComparisonView", "format_count", "join_names", "read_number"]

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
        norm = self.settings.get("qk_norm", "none")
        words = "" if norm == "none" else f", queries and keys normalized {norm} rotation"
        layers = format_count(self.settings["layers"], "layer")
        return f"{layers}, width {self.settings['width']}{words}"

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

        return sorted(self._split_repeated()[0], key=key)

    @property
    def repeated(self) -> list[str]:
        """Names of rows that are not shown, because a row of the same scaling has their numbers."""
        return [str(row["name"]) for row in self._split_repeated()[1]]

    def _split_repeated(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Rows to show, and rows with a scaling that repeat one, such as mrope+yarn on text."""
        shown: list[Mapping[str, Any]] = []
        repeated: list[Mapping[str, Any]] = []
        seen: list[tuple[Any, list[Any]]] = []
        for row in self.comparison["rows"]:
            means = [cell.get("mean") for cell in row["by_length"].values()]
            numbers = (row.get("scaling"), means)
            if row.get("scaling") and numbers in seen:
                repeated.append(row)
            else:
                shown.append(row)
                seen.append(numbers)
        return shown, repeated

    def count_rows(self) -> str:
        """How many encodings and scalings the rows are of: "8 encodings and 1 scaling"."""
        rows = self.comparison["rows"]
        encodings = {row["name"] for row in rows if not row.get("scaling")}
        scalings = {row["scaling"] for row in rows if row.get("scaling")}
        counts = [(len(encodings), "encoding"), (len(scalings), "scaling")]
        return " and ".join(format_count(*one) for one in counts if one[0]) or "no rows"

    def count_flat(self) -> str:
        """How many trained rows have a flat curve: "2 of 8 curves are flat"."""
        rows = [row for row in self.comparison["rows"] if not row.get("scaling")]
        flat = sum(map(self.is_flat, rows))
        return f"{flat} of {format_count(len(rows), 'curve')} {'is' if flat == 1 else 'are'} flat"

    def get_cell(self, row: Mapping[str, Any], length: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = row["by_length"].get(str(length)) or {}
        return found

    def get_value(self, row: Mapping[str, Any], length: int) -> float | None:
        return read_number(self.get_cell(row, length).get("mean"))

    def compute_degradation(self, row: Mapping[str, Any]) -> float | None:
        """How much worse a row is at the longest length than at the trained length."""
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
        return f"{100 * value:.1f} %" if self.is_accuracy else f"{value:.2f}"

    @property
    def other_measure(self) -> str:
        """The measure beside that of the columns: "accuracy", or "loss" beside accuracies."""
        return "loss" if self.is_accuracy else "accuracy"

    @property
    def has_other_measure(self) -> bool:
        """Whether any row has it; comparisons of earlier versions do not."""
        return any(self.get_other_measure(row) is not None for row in self.comparison["rows"])

    def get_other_measure(self, row: Mapping[str, Any]) -> float | None:
        """The other measure of a row, at the trained length."""
        return read_number(self.get_cell(row, self.trained_length).get(self.other_measure))

    def format_other_measure(self, value: float | None) -> str:
        if value is None:
            return MISSING
        return f"{value:.2f}" if self.is_accuracy else f"{100 * value:.1f} %"

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
            f"{claim['outcome']} ({format_count(seeds, 'seed')}, {format_count(layers, 'layer')})"
        )

    def format_change(self, row: Mapping[str, Any]) -> str:
        """Value at the longest length minus that at the trained length, with its sign."""
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
        """Title, heads and rows of differences paired by seed; None with fewer than three.

        An interval over two seeds is too wide to say anything.
        """
        rows = [row for row in self.rows if row.get("against")]
        seeds = len(self.settings["seeds"])
        if not rows or seeds < 3:
            return None
        name = rows[0]["against"]["name"]
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

    def list_steady(self) -> list[Mapping[str, Any]]:
        """Rows that keep their loss or accuracy at the longest length, the best there first.

        Where accuracy is measured, rows with less than half of the best accuracy at the trained
        length are left out: they have not learned the task. So are rows that predict text hardly
        better than token frequencies: what was not learned cannot be lost.
        """
        rows = self._list_learned()
        values = [
            (self.get_value(row, self.trained_length), self.get_value(row, self.longest))
            for row in rows
        ]
        return [rows[n] for n in self._find_steady(values)]

    def has_same_steady_rows(self) -> bool:
        """Whether the rows that keep their loss are those that did with a third of the steps."""
        rows = self._list_learned()
        ends = (self.trained_length, self.longest)
        values = [tuple(self._get_third(row, end) for end in ends) for row in rows]
        return [rows[n] for n in self._find_steady(values)] == self.list_steady()

    @property
    def guess(self) -> float | None:
        """The loss of token frequencies, or the accuracy of guessing; None if it is not known."""
        if not self.is_accuracy:
            return read_number(self.settings.get("frequencies_loss"))
        task = str(self.settings.get("task"))
        return get_task(task).chance if task in TASK_NAMES else None

    def has_learned(self, row: Mapping[str, Any]) -> bool:
        """Whether a row predicts better than guessing, also if it is not known.

        A row with a scaling has learned if the row that was trained has.
        """
        guess = self.guess
        names = {one["name"]: one for one in self.comparison["rows"]}
        value = self.get_value(names.get(row["trained_as"], row), self.trained_length)
        if guess is None:
            return True
        if self.is_accuracy:
            return value is not None and value > guess + LEAST_SHARE * (1 - guess)
        return value is not None and value < guess - LEAST_GAIN

    def _list_learned(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if self.has_learned(row)]

    def _find_steady(self, values: Sequence[tuple[float | None, ...]]) -> list[int]:
        """Indices of the pairs at the trained and the longest length that are nearly the same."""
        tops = [near for near, _ in values if near is not None]
        least = max(tops, default=0.0) / 2 if self.is_accuracy else -math.inf
        found = []
        for n, (near, far) in enumerate(values):
            if near is not None and far is not None and near >= least:
                worse = near - far if self.is_accuracy else far - near
                found += [n] if worse <= HOLDS[self.measure] else []
        return found

    def list_close(
        self, best: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], length: int
    ) -> list[Mapping[str, Any]]:
        """The ``rows`` that another seed could put before ``best`` at ``length``.

        With three seeds or more, those whose difference, paired by seed, is not surely different
        from 0. With fewer, those within what a seed may change, or what the two seeds differ by.
        """
        return [row for row in rows if row is not best and self._is_close(best, row, length)]

    def list_catching_up(
        self, best: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], length: int
    ) -> list[Mapping[str, Any]]:
        """The ``rows`` that three times as many steps may put before ``best`` at ``length``.

        Their distance would be 0, or what a seed may change, if it became smaller again as much as
        since a third of the steps; or, unless both curves are flat, if they gained as much again
        and the best one nothing.
        """
        return [row for row in rows if row is not best and self._is_catching_up(best, row, length)]

    def _is_close(self, best: Mapping[str, Any], row: Mapping[str, Any], length: int) -> bool:
        gap = self._compute_gap(best, row, length)
        if gap is None:
            return False
        ours, theirs = (self._get_by_seed(one, length) for one in (best, row))
        both = [theirs[seed] - ours[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if len(both) < 3:
            noise = self._compute_noise((best, row), length)
            # What two seeds differ by is two standard deviations of their mean.
            return gap <= (max(noise, abs(both[1] - both[0])) if len(both) == 2 else noise)
        found = estimate(both)
        return found.low is None or found.high is None or found.low <= 0.0 <= found.high

    def _is_catching_up(self, best: Mapping[str, Any], row: Mapping[str, Any], length: int) -> bool:
        gap = self._compute_gap(best, row, length)
        before = self._compute_gap(best, row, length, third=True)
        if gap is None or before is None:
            return False
        noise = self._compute_noise((best, row), length)
        if before > gap and 2 * gap - before <= noise:
            return True
        return not (self.is_flat(best) and self.is_flat(row)) and (
            gap - self._compute_gain(row, length) <= noise
        )

    def is_flat(self, row: Mapping[str, Any]) -> bool:
        """Whether the last tenth of the steps took less than 0.5 % of the validation loss away."""
        found = read_number(row.get("last_tenth"))
        return found is not None and found < FLAT

    def _compute_gain(self, row: Mapping[str, Any], length: int) -> float:
        """How much better ``row`` is than with a third of the steps; 0 if it is not known."""
        now, before = self.get_value(row, length), self._get_third(row, length)
        if now is None or before is None:
            return 0.0
        return now - before if self.is_accuracy else before - now

    def _compute_gap(
        self, best: Mapping[str, Any], row: Mapping[str, Any], length: int, *, third: bool = False
    ) -> float | None:
        """How much worse ``row`` is than ``best``; None if a value is missing."""
        read = self._get_third if third else self.get_value
        ours, theirs = read(best, length), read(row, length)
        if ours is None or theirs is None:
            return None
        return ours - theirs if self.is_accuracy else theirs - ours

    def _get_by_seed(self, row: Mapping[str, Any], length: int) -> dict[int, float]:
        """Finite values of a row by seed."""
        values = self.get_cell(row, length).get("seeds") or []
        seeds = row.get("seeds") or self.settings["seeds"]
        if len(seeds) != len(values):
            return {}
        pairs = zip(seeds, map(read_number, values), strict=True)
        return {seed: value for seed, value in pairs if value is not None}

    def _get_third(self, row: Mapping[str, Any], length: int) -> float | None:
        """The value of a row with a third of the steps."""
        return read_number((row.get("third") or {}).get(str(length)))

    def _compute_noise(
        self, rows: Sequence[Mapping[str, Any]], length: int, *, third: bool = False
    ) -> float:
        """How much other seeds may change the difference of two rows."""
        if self.is_accuracy:
            return ACCURACY_NOISE
        read = self._get_third if third else self.get_value
        names = {row["name"]: row for row in self.comparison["rows"]}
        parts = []
        for row in rows:
            trained = names.get(row["trained_as"], row)
            near, far = read(trained, min(length, self.trained_length)), read(row, length)
            rise = math.inf if near is None or far is None else far - near
            # A row that keeps its loss differs as little between seeds as one that does not rise.
            rise = 0.0 if rise <= HOLDS[self.measure] else rise
            parts.append((1.0, find_deviation(length / self.trained_length, rise)))
        counts = [len(self._get_by_seed(row, length)) for row in rows]
        return compute_noise(parts, max(1, min(counts)))

    def format_last_tenth(self, row: Mapping[str, Any]) -> str:
        """Change of the validation loss in the last tenth of the steps, such as "-0.4 %"."""
        improvement = read_number(row.get("last_tenth"))
        return MISSING if improvement is None else f"{round(-100 * improvement, 1) + 0.0:+.1f} %"

    def has_thirds(self) -> bool:
        """Whether every row was also trained with a third of the steps."""
        return all(row.get("third") for row in self.comparison["rows"])

    def is_settled(self, length: int) -> bool:
        """Whether the best row at ``length`` was also best with a third of the steps.

        A difference that another seed could reverse does not count.
        """
        rows = [row for row in self.rank_rows(length) if self.get_value(row, length) is not None]
        before = [self._get_third(row, length) for row in rows]
        known = [value for value in before if value is not None]
        if not rows:
            return True
        if len(known) < len(before):
            return False
        best = max(known) if self.is_accuracy else min(known)
        first = rows[before.index(best)]
        return abs(known[0] - best) <= self._compute_noise((rows[0], first), length, third=True)


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def read_number(value: Any) -> float | None:
    """``value`` if it is a finite number, else None, as in a run that diverged."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def join_names(names: Sequence[str], most: int, word: str = "and") -> str:
    """Names joined to a text with at most ``most`` entries, the last one a number.

    >>> join_names(["rope", "alibi", "t5"], most=3)
    'rope, alibi and t5'
    >>> join_names(["rope", "alibi", "t5"], most=2)
    'rope and 2 more'
    """
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
