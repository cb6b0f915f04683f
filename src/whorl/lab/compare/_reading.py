"""What the page and the tables read out of a comparison: values, order, verdicts, words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .thresholds import BREAKS, HOLDS, SEED_NOISE

__all__ = ["MISSING", "ComparisonView"]

MISSING = "\u2013"


@dataclass(frozen=True)
class ComparisonView:
    """A comparison, asked questions."""

    comparison: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.comparison["settings"]
        return found

    @property
    def accuracy(self) -> bool:
        return bool(self.settings["measure"] == "accuracy")

    @property
    def measure(self) -> str:
        return "accuracy" if self.accuracy else "loss"

    @property
    def unit(self) -> str:
        return str((self.comparison.get("corpus") or {}).get("unit") or "tokens")

    @property
    def nats(self) -> str:
        return f"nats per {self.unit.removesuffix('s')}"

    @property
    def shape(self) -> str:
        return f"{_format_count(self.settings['layers'], 'layer')}, width {self.settings['width']}"

    @property
    def near(self) -> int:
        return int(self.settings["length"])

    @property
    def far(self) -> int:
        return int(max(self.settings["lengths"]))

    @property
    def lengths(self) -> list[int]:
        return sorted(int(length) for length in self.settings["lengths"])

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Best at the longest length first; those without a value there last."""
        return self.ranked(self.far)

    def ranked(self, length: int) -> list[Mapping[str, Any]]:
        def key(row: Mapping[str, Any]) -> tuple[bool, float]:
            value = self.value(row, length)
            return value is None, 0.0 if value is None else -value if self.accuracy else value

        return sorted(self.comparison["rows"], key=key)

    def cell(self, row: Mapping[str, Any], length: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = row["by_length"].get(str(length)) or {}
        return found

    def value(self, row: Mapping[str, Any], length: int) -> float | None:
        return read_number(self.cell(row, length).get("mean"))

    def loss_of(self, row: Mapping[str, Any]) -> float | None:
        """How much worse the longest length is than the training length; below 0 is better."""
        near, far = self.value(row, self.near), self.value(row, self.far)
        if near is None or far is None:
            return None
        return near - far if self.accuracy else far - near

    def between(self, row: Mapping[str, Any], start: int, end: int) -> float | None:
        """Mean loss of tokens at positions start .. end - 1 in windows of the longest length."""
        found = row.get("by_position") or {}
        columns = (found.get(key, ()) for key in ("start", "end", "loss"))
        inside = [
            (b - a, loss) for a, b, loss in zip(*columns, strict=True) if start <= a and b <= end
        ]
        total = sum(width for width, _ in inside)
        return sum(width * loss for width, loss in inside) / total if total else None

    def words(self, value: float | None) -> str:
        if value is None:
            return MISSING
        return f"{value:.1%}" if self.accuracy else f"{value:.2f}"

    @property
    def has_speed(self) -> bool:
        return any(read_number(row.get("tokens_per_second")) for row in self.comparison["rows"])

    def speed(self, row: Mapping[str, Any]) -> str:
        """Blank where it was not measured; a dash for a row that has the weights of another."""
        value = read_number(row.get("tokens_per_second"))
        if value is None:
            return "" if row["trained_as"] == row["name"] else MISSING
        return f"{value:,.0f}"

    def outcome(self, claim: Mapping[str, Any]) -> str:
        seeds, layers = len(self.settings["seeds"]), self.settings["layers"]
        return (
            f"{claim['outcome']} ({_format_count(seeds, 'seed')}, {_format_count(layers, 'layer')})"
        )

    def change(self, row: Mapping[str, Any]) -> str:
        """The value at the longest length minus that at the training length, with its sign."""
        worse = self.loss_of(row)
        if worse is None:
            return MISSING
        # Adding 0 makes a rounded -0 a 0.
        if self.accuracy:
            return f"{round(-100 * worse, 1) + 0.0:+.1f}"
        return f"{round(worse, 2) + 0.0:+.2f}"

    def half_width(self, row: Mapping[str, Any], length: int) -> float | None:
        cell = self.cell(row, length)
        low, high = read_number(cell.get("low")), read_number(cell.get("high"))
        return None if low is None or high is None else (high - low) / 2

    def differences(self) -> tuple[str, list[str], list[list[str]]] | None:
        """Title, heads and rows of differences paired by seed; None where there is one seed."""
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
                [str(row["name"]), *(self._difference(row, length) for length in self.lengths)]
                for row in rows
            ],
        )

    def _difference(self, row: Mapping[str, Any], length: int) -> str:
        cell = row["against"]["by_length"].get(str(length)) or {}
        mean, low, high = (read_number(cell.get(key)) for key in ("mean", "low", "high"))
        if mean is None or low is None or high is None:
            return MISSING
        unit, digits = (100.0, 1) if self.accuracy else (1.0, 2)
        middle = round(unit * mean, digits) + 0.0  # no -0.00
        return f"{middle:+.{digits}f} \u00b1{unit * (high - low) / 2:.{digits}f}"

    def verdicts(self) -> dict[str, list[str]]:
        """Names of rows by what becomes of them: "holds", "weakens", "breaks" or "fails".

        A row fails if it has no finite value at the longest length, or, where accuracy is
        measured, if it reaches less than half of the best row's at the training length.
        """
        found: dict[str, list[str]] = {"holds": [], "weakens": [], "breaks": [], "fails": []}
        tops = [self.value(row, self.near) or 0.0 for row in self.comparison["rows"]]
        least = max(tops, default=0.0) / 2 if self.accuracy else -math.inf
        for row in self.rows:
            worse, near = self.loss_of(row), self.value(row, self.near)
            if worse is None or near is None or near < least:
                kind = "fails"
            elif worse <= HOLDS[self.measure]:
                kind = "holds"
            else:
                kind = "breaks" if worse > BREAKS[self.measure] else "weakens"
            found[kind].append(str(row["name"]))
        return found

    def summary(self) -> str:
        """The result in a few plain sentences."""
        rows = self.comparison["rows"]
        if not rows:
            return "No run has finished, so there is nothing to compare yet."
        named = f"{len(rows)} encodings and extensions" if len(rows) > 1 else "One encoding"
        sentences = [
            f"{named}: the same small model, trained for {self.settings['steps']} steps on"
            f" {self._task} {self.near} {self.unit}.",
            self._leader(self.near, f"At that length {{}} has the {self._most}"),
        ]
        if self.far > self.near:
            times = f"{self.far / self.near:g} times the training length"
            sentences.append(self._leader(self.far, f"At {self.far}, {times}, {{}} is best"))
            sentences += self._fates()
        return " ".join(sentence for sentence in sentences if sentence)

    @property
    def _most(self) -> str:
        return "highest accuracy" if self.accuracy else "lowest loss"

    @property
    def _task(self) -> str:
        task = self.settings["task"]
        return "texts of" if task == "text" else f"the task {task} at a length of"

    def _leader(self, length: int, start: str) -> str:
        rows = [row for row in self.ranked(length) if self.value(row, length) is not None]
        if not rows:
            return f"No row has a finite value at {length}."
        first = rows[0]
        text = f"{start.format(first['name'])} with {self.words(self.value(first, length))}"
        text += "" if self.accuracy else f" {self.nats}"
        interval = self.half_width(first, length) is not None
        close = [str(row["name"]) for row in rows[1:] if self._close(first, row, length)]
        if not close:
            return f"{text}."
        verb = "is" if len(close) == 1 else "are"
        near = f"{100 * SEED_NOISE:g} points" if self.accuracy else f"{SEED_NOISE:g} nats"
        why = "intervals overlap" if interval else f"within {near}"
        return f"{text}; {join_names(close, 4)} {verb} too close to call ({why})."

    def _close(self, best: Mapping[str, Any], row: Mapping[str, Any], length: int) -> bool:
        """Whether intervals overlap; without intervals, whether the values are near."""
        ours, theirs = self.value(best, length), self.value(row, length)
        assert ours is not None
        assert theirs is not None
        halves = (self.half_width(best, length), self.half_width(row, length))
        if halves[0] is None or halves[1] is None:
            return abs(ours - theirs) <= SEED_NOISE
        edges = ("low", "high") if self.accuracy else ("high", "low")
        ours = float(self.cell(best, length)[edges[0]])
        theirs = float(self.cell(row, length)[edges[1]])
        return theirs >= ours if self.accuracy else theirs <= ours

    def _fates(self) -> list[str]:
        hold, far = HOLDS[self.measure], BREAKS[self.measure]
        small, large = (
            (f"{hold * 100:g} points", f"{far * 100:g} points")
            if self.accuracy
            else (f"{hold:g} nats", f"{far:g} nats")
        )
        way = "a loss" if self.accuracy else "a rise"
        ends = {
            "holds": ("holds", "hold", f" ({way} of at most {small})."),
            "weakens": ("weakens", "weaken", f" (up to {large})."),
            "breaks": ("breaks", "break", f" (more than {large})."),
            "fails": (
                ("reaches", "reach", " less than half of the best accuracy at the training length.")
                if self.accuracy
                else ("has", "have", " no finite value there.")
            ),
        }
        return [
            f"{join_names(names, 7)} {ends[kind][len(names) > 1]}{ends[kind][2]}"
            for kind, names in self.verdicts().items()
            if names
        ]


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def read_number(value: Any) -> float | None:
    """A finite number, or None: a run that diverged has NaN, infinity or null."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def join_names(names: Sequence[str], most: int) -> str:
    """Names as words, at most ``most`` of them, the rest as a number.

    >>> listed(["rope", "alibi", "t5"], most=3)
    'rope, alibi and t5'
    >>> listed(["rope", "alibi", "t5"], most=2)
    'rope and 2 more'
    """
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
