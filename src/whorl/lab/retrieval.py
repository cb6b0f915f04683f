"""Texts with statements hidden in filler and a question about them at the end, for any tokenizer.

    passkey             The pass key is 48213.  ...  What is the pass key? The pass key is 48213
    several_keys        The amber key is 48213.  ...  The ivory key is 90417.  ...  What is the
                        amber key? The amber key is 48213
    variable_tracking   VAR KQX = 48213.  ...  VAR RTB = VAR KQX.  ...  Which variables have the
                        value 48213? They are KQX RTB ...

Mohtashami and Jaggi 2023, Landmark Attention, https://arxiv.org/abs/2305.16300: passkey. The other
two have the form of two of the 13 tasks of RULER, Hsieh et al. 2024,
https://arxiv.org/abs/2404.06654: four keys of which one is asked for (niah_multikey_1), and one
chain of four assignments after the first (vt). Words, filler and scores are our own, so that
numbers are not those of RULER: there a model writes its answer freely, here the right answer is
given token by token, and a token counts if it was the most probable one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise, takewhile

import torch
from torch import Tensor

from whorl._support.words import quote

from .tasks import FILLER_SENTENCES, RandomBits

__all__ = [
    "RETRIEVAL_FORMS",
    "RetrievalText",
    "build_retrieval_text",
    "check_form",
    "make_retrieval_rows",
]

RETRIEVAL_FORMS = ("passkey", "several_keys", "variable_tracking")
# Of rows to train on. With several_keys among them a small model learns neither soon: see LOG.md.
_TRAINED_FORMS = ("passkey",)

Encode = Callable[[str], list[int]]

_KEYS = 4
_HOPS = 4
_ADJECTIVES = (
    *("amber", "ivory", "brass", "cedar", "coral", "denim", "linen", "maple"),
    *("olive", "pearl", "satin", "slate", "straw", "topaz", "velvet", "walnut"),
)


@dataclass(frozen=True, eq=False)
class RetrievalText:
    """Tokens of a text that ends with its answers; spans: first token and end of each answer."""

    tokens: list[int]
    spans: tuple[tuple[int, int], ...]

    @property
    def first_answer(self) -> int:
        """Index of the first token of the answers."""
        return self.spans[0][0]


@dataclass(frozen=True)
class _Question:
    """Statements with their depths, a question, and its answers, each after a blank."""

    statements: tuple[tuple[float, str], ...]
    words: str
    answers: tuple[str, ...]


def build_retrieval_text(
    encode: Encode,
    form: str,
    count: int,
    depth: float,
    bits: RandomBits,
    start: Sequence[int] = (),
) -> RetrievalText:
    """A text of exactly ``count`` tokens, whose evidence is at ``depth``.

    Args:
        encode: tokens of a text, without any that mark its start.
        depth: 0 at the start of the text, 1 before the question. In several_keys it is that of the
            key that is asked for; in variable_tracking that of the first assignment, and the others
            are evenly spaced between there and the question.
        bits: decides keys, words and filler.
        start: tokens that every text begins with.

    Raises:
        ValueError: the statements and the question have more than ``count`` tokens.
    """
    question = _WRITERS[form](depth, bits)
    ending, spans = _encode_ending(encode, question)
    statements = [(depth, encode(words)) for depth, words in question.statements]
    room = count - len(start) - len(ending) - sum(len(tokens) for _, tokens in statements)
    if room < 0:
        raise ValueError(
            f"a {form} text must have at least {count - room} tokens with this tokenizer; got"
            f" {count}."
        )
    filler, bounds = _build_filler(encode, room, bits)
    tokens, done = list(start), 0
    for where, statement in sorted(statements, key=lambda pair: pair[0]):
        bound = min(bounds, key=lambda bound: abs(bound - where * room))
        tokens += [*filler[done:bound], *statement]
        done = bound
    tokens += filler[done:]
    before = len(tokens)
    shifted = tuple((first + before, end + before) for first, end in spans)
    return RetrievalText([*tokens, *ending], shifted)


def make_retrieval_rows(count: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of bytes to train on: passkey, at random depths.

    Returns:
        tokens [count, length], int64, and asked [count, length], bool: True at answers.
    """
    tokens = torch.empty(count, length, dtype=torch.int64)
    asked = torch.zeros(count, length, dtype=torch.bool)
    for row in range(count):
        bits = RandomBits("training", count, length, seed, row)
        depth = int(bits.draw(1, 1)) / 2**32
        form = _TRAINED_FORMS[(row + seed) % len(_TRAINED_FORMS)]
        text = build_retrieval_text(_encode_bytes, form, length, depth, bits)
        tokens[row] = torch.tensor(text.tokens)
        for first, end in text.spans:
            asked[row, first:end] = True
    return tokens, asked


def check_form(name: str) -> None:
    """Raise ValueError unless ``name`` is a form."""
    if name not in RETRIEVAL_FORMS:
        raise ValueError(f"form {quote(name)} is unknown. Known: {', '.join(RETRIEVAL_FORMS)}.")


def _encode_bytes(text: str) -> list[int]:
    return list(text.encode())


def _encode_ending(encode: Encode, question: _Question) -> tuple[list[int], list[tuple[int, int]]]:
    """Tokens of the question with its answers, and where each answer begins and ends."""
    ends, words = [], question.words
    whole = encode("".join((words, *question.answers)))
    for answer in ("", *question.answers):
        words += answer
        # A tokenizer may join the last letters of one part to the next one.
        pairs = zip(encode(words), whole, strict=False)
        ends.append(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return whole, list(pairwise(ends))


def _build_filler(encode: Encode, room: int, bits: RandomBits) -> tuple[list[int], list[int]]:
    """``room`` tokens of random sentences, and where sentences end; the first one may be cut."""
    picks = (bits.draw(1, room // 4 + 8) % len(FILLER_SENTENCES))[0].tolist()
    known = {pick: encode(FILLER_SENTENCES[pick]) for pick in dict.fromkeys(picks)}
    sentences: list[list[int]] = []
    total = 0
    for pick in cycle(picks):
        if total >= room:
            break
        sentences.append(known[pick])
        total += len(known[pick])
    extra = total - room
    filler = [token for sentence in sentences for token in sentence][extra:]
    ends = accumulate((len(sentence) for sentence in sentences), initial=0)
    return filler, [max(0, end - extra) for end in ends]


def _write_passkey(depth: float, bits: RandomBits) -> _Question:
    (key,) = _draw_numbers(1, bits)
    statement = f"The pass key is {key}. "
    return _Question(((depth, statement),), "What is the pass key? The pass key is", (f" {key}",))


def _write_several_keys(depth: float, bits: RandomBits) -> _Question:
    order = bits.draw(1, len(_ADJECTIVES))[0].argsort(stable=True).tolist()
    names = [_ADJECTIVES[n] for n in order[:_KEYS]]
    depths = [depth, *(draw / 2**32 for draw in bits.draw(1, _KEYS - 1)[0].tolist())]
    numbers = _draw_numbers(_KEYS, bits)
    statements = tuple(
        (where, f"The {name} key is {number}. ")
        for where, name, number in zip(depths, names, numbers, strict=True)
    )
    words = f"What is the {names[0]} key? The {names[0]} key is"
    return _Question(statements, words, (f" {numbers[0]}",))


def _write_variable_tracking(depth: float, bits: RandomBits) -> _Question:
    (value,) = _draw_numbers(1, bits)
    codes = (bits.draw(1, 8 * (_HOPS + 1)) % 26**3)[0].tolist()
    names = [_format_name(code) for code in dict.fromkeys(codes)][: _HOPS + 1]
    sources = [str(value), *(f"VAR {name}" for name in names)]
    statements = tuple(
        (depth + (1 - depth) * n / (_HOPS + 1), f"VAR {name} = {source}. ")
        for n, (name, source) in enumerate(zip(names, sources, strict=False))
    )
    words = f"Which variables have the value {value}? They are"
    return _Question(statements, words, tuple(f" {name}" for name in names))


def _draw_numbers(count: int, bits: RandomBits) -> list[int]:
    """Numbers of five digits."""
    return [10_000 + draw % 90_000 for draw in bits.draw(1, count)[0].tolist()]


def _format_name(code: int) -> str:
    """A number below 26^3 as three capital letters."""
    return "".join(chr(ord("A") + code // 26**n % 26) for n in (2, 1, 0))


_WRITERS: dict[str, Callable[[float, RandomBits], _Question]] = {
    "passkey": _write_passkey,
    "several_keys": _write_several_keys,
    "variable_tracking": _write_variable_tracking,
}
