"""Synthetic tasks: puzzles written in bytes whose answers stand elsewhere in the same row.

    passkey  "... a grey owl counts spoons. the key is 48213. ... the key? 48213"
    copy     "   qzkeq|qzkeq"     the letters again
    reverse  "   qzkeq|qekzq"     the letters from the last to the first
    parity   "   01101=01001"     are the ones up to here odd? for every bit
    recall   "ab7 qx3 mo0 ?mo0"   a value by its key

(the answers, which are asked for, are 48213, what follows | and =, and the digit after ?mo).

Mohtashami and Jaggi 2023, Landmark Attention, https://arxiv.org/abs/2305.16300: passkey.
Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization in
Transformers, https://arxiv.org/abs/2305.19466: copy, reverse, parity. Anil et al. 2022, Exploring
Length Generalization in Large Language Models, https://arxiv.org/abs/2207.04901: parity.
Graves et al. 2014, Neural Turing Machines, https://arxiv.org/abs/1410.5401, and Ba et al. 2016,
Using Fast Weights to Attend to the Recent Past, https://arxiv.org/abs/1610.06258: recall; Arora et
al. 2023, Zoology, https://arxiv.org/abs/2312.04927: with many questions a row.

Departures, and why:

- Strings of copy, reverse and parity have any size from 1 to what the row can hold, with blanks
  before them. If all were equally long, the source of an answer would always lie equally far back,
  and training would reward that one distance. So a row of twice the length has three quarters of
  its answers in strings longer than any at the single length.
- Parity is asked for after every bit. The parity of a whole string does not change when its bits
  change places, so it tests counting rather than positions, and it gives one bit to learn from.
- Recall asks several keys a row, each at most once. A key is two letters, so there are 676; past
  that many pairs, blanks between pairs and questions grow instead.

A decoder sees the answers before the one it predicts; an encoder sees none. In copy, reverse and
recall that changes little. In parity a decoder needs the last answer and one bit, an encoder all
bits so far, which is harder.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from ._checks import check_choice, check_count

__all__ = ["TASK_NAMES", "SyntheticTask", "get_task"]

TASK_NAMES = ("passkey", "copy", "reverse", "parity", "recall")

#: Tokens and which of them are asked for, from count, length and random bits.
TaskWriter = Callable[[int, int, "RandomBits"], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SyntheticTask:
    """A puzzle that can be posed at any length from ``shortest`` on.

    chance: how often an answer token is guessed right.

    >>> tokens, asked = task("copy").examples(count=1, length=16, seed=0)
    >>> bytes(tokens[0].tolist())
    b'         llo|llo'
    >>> asked[0].nonzero().flatten().tolist()
    [13, 14, 15]
    """

    name: str
    title: str
    shortest: int
    chance: float
    write: TaskWriter = field(repr=False)

    def examples(self, count: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
        """``count`` rows of ``length`` tokens, the same for the same arguments on every machine.

        Returns:
            tokens [count, length], int64, bytes; asked [count, length], bool, True at answers: at
            least one a row, the last token among them.
        """
        check_count(f"{self.name}: count", count)
        check_count(f"{self.name}: length", length)
        check_count(f"{self.name}: seed", seed, least=0)
        if length < self.shortest:
            raise ValueError(
                f"{self.name}: length must be at least {self.shortest}, because a shorter row"
                f" cannot hold a question and its answer; got {length}. Train or evaluate longer."
            )
        return self.write(count, length, RandomBits(self.name, count, length, seed))


def get_task(name: str) -> SyntheticTask:
    """The task of that name; ``NAMES`` lists them."""
    check_choice("task", name, TASK_NAMES)
    return _TASKS[name]


class RandomBits:
    """Random numbers from SHAKE-256, which no version of Python or torch will change."""

    def __init__(self, *parts: object) -> None:
        self.parts, self.calls = parts, 0

    def draw(self, rows: int, columns: int) -> Tensor:
        """[rows, columns], int64, uniform in 0..2^32-1; each call gives new ones.

        Taken modulo n, they are uneven by n / 2^32, far below what a run can show.
        """
        self.calls += 1
        source = hashlib.shake_256(repr((*self.parts, self.calls)).encode())
        raw = bytearray(source.digest(4 * rows * columns))
        places = torch.tensor([1, 1 << 8, 1 << 16, 1 << 24])  # little-endian on every machine
        quads = torch.frombuffer(raw, dtype=torch.uint8).view(rows, columns, 4)
        return (quads * places).sum(-1)


_SUBJECTS = "a grey owl|my aunt|the baker|one tall clerk|our ferry|the late moon|a tin robot|nobody"
_VERBS = "counts|paints|forgets|borrows|folds|weighs|buries|admires"
_OBJECTS = "spoons|wet maps|the stairs|a blue door|old bread|seven hats|the fog|small bells"
_FILLER = [
    f"{' '.join(words)}. "
    for words in product(_SUBJECTS.split("|"), _VERBS.split("|"), _OBJECTS.split("|"))
]
_STATEMENT, _QUESTION, _DIGITS = "the key is {}. ", "the key? {}", 5
_PASSKEY_LEAST = len((_STATEMENT + _QUESTION).format("0" * _DIGITS, "0" * _DIGITS))


def _write_passkey(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    """Blanks, sentences with the key among them, the question; whole sentences only."""
    room = length - _PASSKEY_LEAST
    most = room // min(map(len, _FILLER)) + 1
    heads = bits.draw(count, 2).tolist()  # key, place
    picks = (bits.draw(count, most) % len(_FILLER)).tolist()
    rows = bytearray()
    for (key_draw, place), row in zip(heads, picks, strict=True):
        sentences, left = [], room
        for pick in row:
            left -= len(_FILLER[pick])
            if left < 0:
                break
            sentences.append(_FILLER[pick])
        key = f"{key_draw % 10**_DIGITS:0{_DIGITS}}"
        sentences.insert(place % (len(sentences) + 1), _STATEMENT.format(key))
        text = "".join(sentences) + _QUESTION.format(key)
        rows += text.rjust(length).encode()
    tokens = torch.frombuffer(rows, dtype=torch.uint8).view(count, length).long()
    return tokens, (torch.arange(length) >= length - _DIGITS).repeat(count, 1)


def _write_copy(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    frame = _StringRows(count, length, bits)
    letters = bits.draw(count, length) % 26 + ord("a")
    return frame.fill(letters, "|", letters.gather(1, frame.same))


def _write_reverse(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    frame = _StringRows(count, length, bits)
    letters = bits.draw(count, length) % 26 + ord("a")
    return frame.fill(letters, "|", letters.gather(1, frame.mirrored))


def _write_parity(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    frame = _StringRows(count, length, bits)
    ones = bits.draw(count, length) % 2
    odd = (ones * frame.string).cumsum(1) % 2
    return frame.fill(ones + ord("0"), "=", odd.gather(1, frame.same) + ord("0"))


class _StringRows:
    """Where things stand in rows of the form "blanks, string, mark, answer".

    The answer is as long as the string; n, this length, differs from row to row. All [count,
    length]: string and answer are True there; same and mirrored are the columns where the source of
    an answer stands (0 where there is no answer).
    """

    def __init__(self, count: int, length: int, bits: RandomBits) -> None:
        most = (length - 1) // 2
        n = 1 + bits.draw(count, 1) % most  # [count, 1]
        column = torch.arange(length)
        self.mark = column == length - n - 1
        self.answer = column >= length - n
        self.string = (column >= length - 2 * n - 1) & (column < length - n - 1)
        self.same = (column - n - 1) * self.answer
        self.mirrored = (2 * (length - n - 1) - column) * self.answer

    def fill(self, string: Tensor, mark: str, answer: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.full_like(string, ord(" "))
        tokens = torch.where(self.string, string, tokens)
        tokens = torch.where(self.answer, answer, tokens)
        return tokens.masked_fill(self.mark, ord(mark)), self.answer


def _write_recall(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    """Two pairs to every question, each of four bytes."""
    units = length // 4
    questions = min(units // 3, 26 * 26)
    pairs = min(units - questions, 26 * 26)
    keys = bits.draw(count, 26 * 26).argsort(dim=1, stable=True)[:, :pairs]
    values = bits.draw(count, pairs) % 10
    chosen = bits.draw(count, pairs).argsort(dim=1, stable=True)[:, :questions]
    tokens = torch.full((count, length), ord(" "))
    said = tokens[:, : 4 * pairs].view(count, pairs, 4)  # "ab7 "
    put = tokens[:, length - 4 * questions :].view(count, questions, 4)  # "?ab7"
    said[..., :3] = _write_pairs(keys, values)
    put[..., 0] = ord("?")
    put[..., 1:] = _write_pairs(keys.gather(1, chosen), values.gather(1, chosen))
    asked = torch.zeros(count, length, dtype=torch.bool)
    asked[:, length - 4 * questions :].view(count, questions, 4)[..., 3] = True
    return tokens, asked


def _write_pairs(keys: Tensor, values: Tensor) -> Tensor:
    """[..., 3]: two letters and a digit."""
    return torch.stack((keys // 26 + ord("a"), keys % 26 + ord("a"), values + ord("0")), dim=-1)


_TASKS = {
    known.name: known
    for known in (
        SyntheticTask(
            "passkey", "repeat a number hidden in filler", _PASSKEY_LEAST, 1 / 10, _write_passkey
        ),
        SyntheticTask("copy", "write a string again", 3, 1 / 26, _write_copy),
        SyntheticTask("reverse", "write a string backwards", 3, 1 / 26, _write_reverse),
        SyntheticTask(
            "parity", "after every bit, say if the ones so far are odd", 3, 1 / 2, _write_parity
        ),
        SyntheticTask("recall", "find values by their keys", 12, 1 / 10, _write_recall),
    )
}
