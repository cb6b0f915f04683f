"""Synthetic tasks: rows of bytes in which a model must find an answer elsewhere in the row.

    passkey  "... a grey owl counts spoons. the key is 48213. ... the key? 48213"
    copy     "   qzkeq|qzkeq"     repeat the letters
    reverse  "   qzkeq|qekzq"     repeat the letters in reverse order
    parity   "   01101=01001"     for every bit: is the number of ones up to it odd?
    recall   "ab7 qx3 mo0 ?mo0"   the value of a key

The answers are 48213, what follows | and =, and the digit after ?mo.

Mohtashami and Jaggi 2023, Landmark Attention, https://arxiv.org/abs/2305.16300: passkey.
Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization in
Transformers, https://arxiv.org/abs/2305.19466: copy, reverse, parity. Anil et al. 2022, Exploring
Length Generalization in Large Language Models, https://arxiv.org/abs/2207.04901: parity.
Graves et al. 2014, Neural Turing Machines, https://arxiv.org/abs/1410.5401, and Ba et al. 2016,
Using Fast Weights to Attend to the Recent Past, https://arxiv.org/abs/1610.06258: recall; Arora et
al. 2023, Zoology, https://arxiv.org/abs/2312.04927: many questions in a row.

Differences from these papers:

- Strings of copy, reverse and parity have random lengths, from 1 to what fits into the row, with
  blanks before them. If all had the same length, the distance from an answer to its source would
  always be the same, and a model could learn that one distance. In a row of twice the length, three
  quarters of the answers are in strings longer than any in a row of the single length.
- Parity has an answer for every bit. The parity of a whole string does not depend on the order of
  its bits, so it would test counting, not positions, and give a single bit to learn from.
- Recall has several questions in a row, each for another key. A key has two letters, so there are
  676 keys; a row with space for more pairs has blanks instead.

A decoder knows the answers before the one that it predicts; an encoder knows none. In copy, reverse
and recall that makes little difference. In parity a decoder needs the last answer and one bit, an
encoder all bits so far, which is harder.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from ._checks import check_choice, check_count

__all__ = ["FILLER_SENTENCES", "TASK_NAMES", "RandomBits", "SyntheticTask", "get_task"]

TASK_NAMES = ("passkey", "copy", "reverse", "parity", "recall")

#: Function of count, length and random bits that returns tokens and which of them are answers.
TaskWriter = Callable[[int, int, "RandomBits"], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SyntheticTask:
    """A task with rows of any length from ``shortest`` on.

    chance: probability of guessing a token of an answer.

    >>> tokens, asked = get_task("copy").make_examples(count=1, length=16, seed=0)
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

    def make_examples(self, count: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
        """``count`` rows of ``length`` tokens, the same for the same arguments on every machine.

        Returns:
            tokens [count, length], int64: bytes. asked [count, length], bool: True at answers, of
            which every row has at least one, at its end.
        """
        check_count(f"{self.name}: count", count)
        check_count(f"{self.name}: length", length)
        check_count(f"{self.name}: seed", seed, least=0)
        if length < self.shortest:
            raise ValueError(
                f"{self.name}: length must be at least {self.shortest}, because a shorter row"
                f" cannot hold a question and its answer; got {length}."
            )
        return self.write(count, length, RandomBits(self.name, count, length, seed))


def get_task(name: str) -> SyntheticTask:
    """The task with that name; ``TASK_NAMES`` lists them."""
    check_choice("task", name, TASK_NAMES)
    return _TASKS[name]


class RandomBits:
    """Random numbers from SHAKE-256, the same in every version of Python and torch."""

    def __init__(self, *parts: object) -> None:
        self.parts, self.calls = parts, 0

    def draw(self, rows: int, columns: int) -> Tensor:
        """New random numbers [rows, columns], int64, uniform in 0 .. 2^32 - 1.

        Modulo n, their probabilities differ by n / 2^32, which no run can notice.
        """
        self.calls += 1
        source = hashlib.shake_256(repr((*self.parts, self.calls)).encode())
        raw = bytearray(source.digest(4 * rows * columns))
        weights = torch.tensor([1, 1 << 8, 1 << 16, 1 << 24])  # little-endian on every machine
        quads = torch.frombuffer(raw, dtype=torch.uint8).view(rows, columns, 4)
        return (quads * weights).sum(-1)


_SUBJECTS = "a grey owl|my aunt|the baker|one tall clerk|our ferry|the late moon|a tin robot|nobody"
_VERBS = "counts|paints|forgets|borrows|folds|weighs|buries|admires"
_OBJECTS = "spoons|wet maps|the stairs|a blue door|old bread|seven hats|the fog|small bells"
FILLER_SENTENCES = [
    f"{' '.join(words)}. "
    for words in product(_SUBJECTS.split("|"), _VERBS.split("|"), _OBJECTS.split("|"))
]
_STATEMENT, _QUESTION, _DIGITS = "the key is {}. ", "the key? {}", 5
_PASSKEY_LEAST = len((_STATEMENT + _QUESTION).format("0" * _DIGITS, "0" * _DIGITS))


def _write_passkey(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    """Rows of passkey: blanks, whole sentences with the key among them, the question."""
    room = length - _PASSKEY_LEAST
    most = room // min(map(len, FILLER_SENTENCES)) + 1
    heads = bits.draw(count, 2).tolist()  # key, number of its sentence
    picks = (bits.draw(count, most) % len(FILLER_SENTENCES)).tolist()
    rows = bytearray()
    for (key_draw, number), row in zip(heads, picks, strict=True):
        sentences, left = [], room
        for pick in row:
            left -= len(FILLER_SENTENCES[pick])
            if left < 0:
                break
            sentences.append(FILLER_SENTENCES[pick])
        key = f"{key_draw % 10**_DIGITS:0{_DIGITS}}"
        sentences.insert(number % (len(sentences) + 1), _STATEMENT.format(key))
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
    """Rows of the form "blanks, string, mark, answer", with string and answer equally long.

    All attributes are [count, length]. string, mark and answer: True in these columns. same and
    mirrored: for a column of the answer, the column of the string that it repeats, in the same
    order or in reverse; 0 elsewhere.
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
        """Tokens with these contents, and which of them are answers."""
        tokens = torch.full_like(string, ord(" "))
        tokens = torch.where(self.string, string, tokens)
        tokens = torch.where(self.answer, answer, tokens)
        return tokens.masked_fill(self.mark, ord(mark)), self.answer


def _write_recall(count: int, length: int, bits: RandomBits) -> tuple[Tensor, Tensor]:
    """Rows of recall: pairs, then half as many questions, each of four bytes."""
    units = length // 4
    questions = min(units // 3, 26 * 26)
    pairs = min(units - questions, 26 * 26)
    keys = bits.draw(count, 26 * 26).argsort(dim=1, stable=True)[:, :pairs]
    values = bits.draw(count, pairs) % 10
    chosen = bits.draw(count, pairs).argsort(dim=1, stable=True)[:, :questions]
    tokens = torch.full((count, length), ord(" "))
    pair_bytes = tokens[:, : 4 * pairs].view(count, pairs, 4)  # "ab7 "
    question_bytes = tokens[:, length - 4 * questions :].view(count, questions, 4)  # "?ab7"
    pair_bytes[..., :3] = _write_pairs(keys, values)
    question_bytes[..., 0] = ord("?")
    question_bytes[..., 1:] = _write_pairs(keys.gather(1, chosen), values.gather(1, chosen))
    asked = torch.zeros(count, length, dtype=torch.bool)
    asked[:, length - 4 * questions :].view(count, questions, 4)[..., 3] = True
    return tokens, asked


def _write_pairs(keys: Tensor, values: Tensor) -> Tensor:
    """Keys and values as bytes [..., 3]: two letters and a digit."""
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
