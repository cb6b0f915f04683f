"""Tasks against a solver that reads the printed text, written from their description alone."""

import hashlib
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from whorl.lab.tasks import TASK_NAMES, SyntheticTask, get_task

TASKS = [get_task(name) for name in TASK_NAMES]
every_task = pytest.mark.parametrize("posed", TASKS, ids=TASK_NAMES)


def solve(name: str, seen: str) -> str:
    """The byte after ``seen``, whose earlier answers may be hidden."""
    if name == "passkey":
        (key,) = re.findall(r"the key is (\d{5})\. ", seen)
        _, given = seen.split("the key? ")
        return str(key[len(given)])
    if name == "recall":
        pairs = re.findall(r"([a-z]{2})([0-9]) ", seen[: seen.index("?")])
        values = dict(pairs)
        assert len(values) == len(pairs), "a key is said twice"
        return str(values[seen[-2:]])
    string, given = seen.strip().split("=" if name == "parity" else "|")
    upto = len(given)
    if name == "parity":
        return "01"[string[: upto + 1].count("1") % 2]
    return string[upto] if name == "copy" else string[len(string) - 1 - upto]


def mistakes(name: str, row: Tensor, asked: Tensor) -> int:
    """How many answers the solver, shown no earlier answer, would give otherwise."""
    text = bytes(row.tolist()).decode("ascii")
    hidden = "".join("_" if ask else c for c, ask in zip(text, asked.tolist(), strict=True))
    places = asked.nonzero().flatten().tolist()
    return sum(solve(name, hidden[:at]) != text[at] for at in places)


def texts(posed: SyntheticTask, count: int, length: int, seed: int = 0) -> list[str]:
    return [
        bytes(row.tolist()).decode("ascii") for row in posed.make_examples(count, length, seed)[0]
    ]


def answers(posed: SyntheticTask, count: int, length: int) -> list[str]:
    tokens, asked = posed.make_examples(count, length, seed=5)
    return [chr(token) for token in tokens[asked].tolist()]


def test_names() -> None:
    assert TASK_NAMES == ("passkey", "copy", "reverse", "parity", "recall")
    assert tuple(posed.name for posed in TASKS) == TASK_NAMES
    assert all(posed.title and "_" not in posed.title for posed in TASKS)


@every_task
@given(more=st.integers(0, 150), seed=st.integers(0, 2**63), count=st.integers(1, 4))
def test_answers_follow_from_what_stands_before(
    posed: SyntheticTask, more: int, seed: int, count: int
) -> None:
    length = posed.shortest + more
    tokens, asked = posed.make_examples(count, length, seed)
    assert tokens.shape == asked.shape == (count, length)
    assert (tokens.dtype, asked.dtype) == (torch.int64, torch.bool)
    assert tokens.min() >= 32
    assert tokens.max() < 127
    assert asked[:, -1].all()
    for row, ask in zip(tokens, asked, strict=True):
        assert mistakes(posed.name, row, ask) == 0


@every_task
@pytest.mark.parametrize("length", [2047, 2048])
def test_long_rows(posed: SyntheticTask, length: int) -> None:
    tokens, asked = posed.make_examples(2, length, seed=1)
    assert tokens.shape == (2, length)
    assert sum(mistakes(posed.name, *pair) for pair in zip(tokens, asked, strict=True)) == 0


@every_task
def test_the_solver_sees_a_wrong_answer(posed: SyntheticTask) -> None:
    tokens, asked = posed.make_examples(1, 64, seed=0)
    row = tokens[0].clone()
    row[-1] = ord("0") if row[-1] != ord("0") else ord("1")
    assert mistakes(posed.name, row, asked[0]) == 1


@every_task
def test_only_the_arguments_matter(posed: SyntheticTask) -> None:
    tokens, asked = posed.make_examples(8, 65, seed=3)
    torch.manual_seed(9)
    posed.make_examples(3, 80, seed=4)
    again = pickle.loads(pickle.dumps(posed)).make_examples(8, 65, seed=3)
    assert torch.equal(tokens, again[0])
    assert torch.equal(asked, again[1])
    assert not torch.equal(tokens, posed.make_examples(8, 65, seed=4)[0])
    assert len({bytes(row.tolist()) for row in tokens}) == 8


# Runs of different versions are compared, so that these may not change.
DIGESTS = {
    "passkey": "f7e7cb9d269f0f80",
    "copy": "543dd6b42a97007b",
    "reverse": "7868413b66c80490",
    "parity": "44c75c242d0520c3",
    "recall": "ad88d4782f68508e",
}


def digest(posed: SyntheticTask) -> str:
    total = hashlib.sha256()
    for length in (64, 65, 200):
        tokens, asked = posed.make_examples(4, length, seed=7)
        total.update(bytes(tokens.flatten().tolist()) + bytes(asked.flatten().tolist()))
    return total.hexdigest()[:16]


@every_task
def test_rows_stay_what_they_were(posed: SyntheticTask) -> None:
    assert digest(posed) == DIGESTS[posed.name]


@pytest.mark.slow
def test_another_process_gives_the_same() -> None:
    code = (
        "import hashlib, torch\nfrom whorl.lab.tasks import TASK_NAMES, SyntheticTask, get_task\n"
        f"{inspect.getsource(digest)}\n"
        "torch.manual_seed(1)\n"
        "print(*(digest(get_task(name)) for name in reversed(TASK_NAMES)))"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == [digest(posed) for posed in reversed(TASKS)]


@every_task
def test_no_answer_is_likelier_than_another(posed: SyntheticTask) -> None:
    found = Counter(answers(posed, count=600, length=64))
    kinds, total = round(1 / posed.chance), found.total()
    assert len(found) == kinds
    expected = total / kinds
    # 5 standard deviations of a count that is binomial with p = 1 / kinds.
    bound = 5 * (expected * (1 - 1 / kinds)) ** 0.5
    assert max(abs(times - expected) for times in found.values()) < bound


def test_parity_is_even_half_of_the_time_at_every_bit() -> None:
    rows = [text.split("=")[1] for text in texts(get_task("parity"), 2000, 33)]
    for bit in (*range(8), -1):
        said = [row[bit] for row in rows if len(row) > bit]
        assert len(said) >= 900
        assert abs(said.count("1") / len(said) - 0.5) < 5 * 0.5 / len(said) ** 0.5


@pytest.mark.parametrize("name", ["copy", "reverse", "parity"])
@pytest.mark.parametrize(("length", "longest"), [(3, 1), (4, 1), (32, 15), (33, 16)])
def test_strings_have_every_length_that_fits_equally_often(
    name: str, length: int, longest: int
) -> None:
    found = Counter(len(re.split("[|=]", row)[1]) for row in texts(get_task(name), 1600, length))
    assert sorted(found) == list(range(1, longest + 1))
    expected = 1600 / longest
    assert all(abs(times - expected) <= 5 * expected**0.5 for times in found.values())


@pytest.mark.parametrize("name", ["copy", "reverse", "parity"])
def test_twice_the_row_has_mostly_longer_strings(name: str) -> None:
    """As the module says: three quarters of the answers."""
    sizes = [len(re.split("[|=]", row)[1]) for row in texts(get_task(name), 2000, 256)]
    longer = sum(size for size in sizes if size > 63)  # what 128 tokens can hold
    assert longer / sum(sizes) == pytest.approx(0.75, abs=0.03)


def test_the_key_stands_anywhere_and_once() -> None:
    rows = texts(get_task("passkey"), 400, 256)
    places = [row.index("the key is") for row in rows]
    room = 256 - get_task("passkey").shortest
    quarters = Counter(min(4 * place // room, 3) for place in places)
    assert min(quarters[quarter] for quarter in range(4)) > 50
    for row in rows:
        assert len(re.findall(r"\d", row)) == 10
        words, blanks = row.lstrip(), len(row) - len(row.lstrip())
        assert blanks < 40
        assert "  " not in words
    assert len(set(re.findall(r"[a-z ]+\. ", " ".join(rows)))) > 300


def test_longer_rows_hold_more_pairs_until_keys_run_out() -> None:
    def shape(length: int) -> tuple[int, int]:
        (row,) = texts(get_task("recall"), 1, length)
        pairs, *questions = row.split("?")
        assert len({question[:2] for question in questions}) == len(questions)
        return len(pairs.split()), len(questions)

    assert shape(12) == (2, 1)
    assert shape(15) == (2, 1)
    assert shape(128) == (22, 10)
    assert shape(2048) == (342, 170)
    assert shape(9000) == (676, 676)


def test_every_pair_is_asked_equally_often() -> None:
    asked: Counter[int] = Counter()
    for row in texts(get_task("recall"), 900, 36):
        pairs, *questions = row.split("?")
        asked.update(pairs.split().index(question) for question in questions)
    assert sorted(asked) == list(range(6))
    assert all(abs(times - 450) < 5 * 15 for times in asked.values())


@every_task
def test_errors(posed: SyntheticTask) -> None:
    least = posed.shortest
    with pytest.raises(
        ValueError,
        match=rf"^{posed.name}: length must be at least {least}, because a shorter row cannot hold"
        rf" a question and its answer; got {least - 1}\.$",
    ):
        posed.make_examples(1, least - 1, seed=0)
    for count, length, seed, message in [
        (0, 64, 0, "count must be a whole number of at least 1; got 0."),
        (1, 64.0, 0, "length must be a whole number of at least 1; got 64.0."),
        (1, 64, -1, "seed must be a whole number of at least 0; got -1."),
        (1, 64, True, "seed must be a whole number of at least 0; got True."),
    ]:
        with pytest.raises(ValueError, match=rf"^{posed.name}: {re.escape(message)}$"):
            posed.make_examples(count, length, seed)  # type: ignore[arg-type]


def test_unknown_task() -> None:
    known = re.escape(f"Known: {', '.join(TASK_NAMES)}.")
    with pytest.raises(
        ValueError, match=f"^task 'paskey' is unknown; did you mean 'passkey'\\? {known}$"
    ):
        get_task("paskey")
    with pytest.raises(ValueError, match=f"^task 'xyzzy' is unknown\\. {known}$"):
        get_task("xyzzy")
