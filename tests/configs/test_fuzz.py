"""Thousands of damaged configs: each gives a result or a ConfigError, with little work.

``TARGETS`` are what a config goes through; a new reader of configs adds its line.
"""

import json
import math
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.effort import MOST, TooMuchWorkError, bounded
from whorl.configs import ConfigError, ModelPositions, read_config
from whorl.configs.diagnosis import diagnose
from whorl.configs.inspection import inspect

from .mutations import case, seeds

QUICK, ALL = 1_000, 20_000
_LONGEST = 2_000  # of a message


def read_and_build(x: Any) -> None:
    """All that ``read_config`` promises: JSON of it, and every encoding with its frequencies."""
    found = read_config(x)
    json.dumps(found.to_dict(), allow_nan=False)
    for model in _with_parts(found):
        for group in model.groups:
            if group.rotation is None:
                continue
            encoding = group.rotation.build(table="on_the_fly", table_length=0)
            for context in (None, 2**20):
                values: Any = encoding.frequencies(context)  # type: ignore[operator]
                assert values.inv_freq.isfinite().all()
                assert math.isfinite(values.attention_scale)


def read_as_transformers(x: Any) -> None:
    read_config(x, parity="transformers").to_dict()


def look(x: Any) -> None:
    json.dumps(inspect(x, length=100_000).to_dict(), allow_nan=False)


def ask_the_doctor(x: Any) -> None:
    """Every rule gets through, and so does every correction."""
    found = diagnose(x, length=100_000)
    json.dumps(found.to_dict(), allow_nan=False)
    for one in (found, found.correct()):
        assert [f.message for f in one.findings if f.failed] == []
        assert all("whorl failed" not in f.message for f in one.findings)


TARGETS: dict[str, Callable[[Any], None]] = {
    "read_config": read_and_build,
    "read_config, parity": read_as_transformers,
    "inspect": look,
    "doctor": ask_the_doctor,
}


def _with_parts(found: ModelPositions) -> list[ModelPositions]:
    return [found, *(inner for part in found.parts.values() for inner in _with_parts(part))]


def outcome(target: Callable[[Any], None], x: Any, most: int | None = MOST) -> str:
    """What a target did with at most so many calls: "read", "refused", or how it failed."""
    try:
        with nullcontext() if most is None else bounded(most):
            target(x)
        return "read"
    except ConfigError as error:
        long = len(str(error)) > _LONGEST
        return f"a message of {len(str(error))} characters" if long else "refused"
    except TooMuchWorkError as error:
        return str(error)
    except Exception:
        return "".join(traceback.format_exc(limit=-3))


def run(numbers: range, folder: Path, counted: int = 1) -> Counter[str]:
    """Feed these cases to every target; fail with the first few stories.

    The calls of every ``counted``-th case are counted, which takes as long again.
    """
    counts: Counter[str] = Counter()
    stories: list[str] = []
    file = folder / "config"
    for number in numbers:
        one = case(number)
        given = one.given
        if one.content is not None:
            file.write_bytes(one.content)
            given = file
        for name, target in TARGETS.items():
            result = outcome(target, given, None if number % counted else MOST)
            counts[result if result in ("read", "refused") else "failed"] += 1
            if result not in ("read", "refused"):
                stories.append(f"case({number}), {name}: {result}")
    assert not stories, f"{len(stories)} failures, the first:\n" + "\n".join(stories[:5])
    return counts


def test_the_undamaged_ones_are_read() -> None:
    counts = Counter(outcome(read_and_build, seed) for seed in seeds())
    assert set(counts) == {"read", "refused"}
    # Some defaults of transformers cannot be applied: odd heads, sections that do not add up.
    assert counts["refused"] < 0.05 * counts.total()


def test_cases_are_always_the_same() -> None:
    for number in range(50):
        assert repr(case(number)) == repr(case(number))
    assert len({repr(case(number)) for number in range(200)}) > 150


def test_failures_are_seen() -> None:
    def crash(x: Any) -> None:
        raise KeyError(x)

    def babble(x: Any) -> None:
        raise ConfigError("a" * 10_000)

    def dawdle(x: Any) -> None:
        while True:
            try:
                abs(x)
            except Exception:
                break

    assert "KeyError: 3" in outcome(crash, 3)
    assert outcome(babble, 3) == "a message of 10000 characters"
    assert outcome(dawdle, 3, most=100) == "this makes more than 100 calls"


def test_a_thousand(tmp_path: Path) -> None:
    counts = run(range(QUICK), tmp_path, counted=4)
    # Neither is all refused nor all read: the damage reaches the readers.
    assert min(counts["read"], counts["refused"]) > 0.2 * counts.total()


BLOCKS = [pytest.param(0, marks=pytest.mark.slow)]
BLOCKS += [pytest.param(block, marks=pytest.mark.exhaustive) for block in range(1, 8)]


@pytest.mark.parametrize("block", BLOCKS)
def test_twenty_thousand(block: int, tmp_path: Path) -> None:
    size = ALL // 8
    run(range(QUICK + block * size, QUICK + (block + 1) * size), tmp_path, counted=8)
