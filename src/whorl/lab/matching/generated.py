"""Made triplets whose evidence is in the second half of long documents.

A document is a row of sentences such as "αβ: the fence was old. ". The two letters before the colon
are of one of six groups, of four letters each:

    first half of a document     every sentence has letters of any group, whatever the answer is
    second half of A, B, C       all sentences have letters of one group
                                 A and the nearer text have the same group, the other text another

So a reader of the first halves can only guess. Nor is it enough to look for shared letters: A has
other letters of a group than B and C have. A model must learn which letters belong together. It
need not know their order: encodings of positions are not expected to differ here, lengths are.
The triplets are the same on every machine.
"""

from torch import Tensor

from whorl.lab._checks import check_count
from whorl.lab.tasks import RandomBits

from .triplets import Triplet

__all__ = ["make_triplets"]

#: Letters of each group; the first two are for A, the others for B and C.
GROUPS = ("αβγδ", "εζηθ", "ικλμ", "νξοπ", "ρστυ", "φχψω")
_SUBJECTS = ("the fence", "a loan", "the roof", "one horse", "the well", "a lease", "her boat")
_ENDS = ("was old", "is lost", "came late", "broke", "was sold", "burned", "is his")
_SENTENCES = [f"{subject} {end}" for subject in _SUBJECTS for end in _ENDS]
_SHORTEST = len("xx: . ") + min(map(len, _SENTENCES))
_DRAWS = 4  # numbers for a sentence: words, group, two letters
_LEAST_LENGTH = 64


def make_triplets(count: int, length: int, seed: int) -> list[Triplet]:
    """``count`` triplets of documents of ``length`` characters, the same for the same arguments.

    >>> (one,) = make_triplets(1, 128, seed=0)
    >>> len(one.anchor), one.nearer in (0, 1)
    (128, True)
    """
    check_count("make_triplets: count", count)
    check_count("make_triplets: length", length, least=_LEAST_LENGTH)
    check_count("make_triplets: seed", seed, least=0)
    bits = RandomBits("matching", count, length, seed)
    heads = bits.draw(count, 3).tolist()
    most = length // _SHORTEST + 1
    draws = [bits.draw(count, most * _DRAWS).view(count, most, _DRAWS) for _ in range(3)]
    found = []
    for n, (one, other, swap) in enumerate(heads):
        group = one % len(GROUPS)
        another = (group + 1 + other % (len(GROUPS) - 1)) % len(GROUPS)
        anchor = _write_document(draws[0][n], length, group, 0)
        nearer = _write_document(draws[1][n], length, group, 2)
        further = _write_document(draws[2][n], length, another, 2)
        if swap % 2:
            found.append(Triplet(anchor, further, nearer, 1))
        else:
            found.append(Triplet(anchor, nearer, further, 0))
    return found


def _write_document(draws: Tensor, length: int, group: int, begin: int) -> str:
    """A document; begin: 0 for the first two letters of each group, 2 for the last two."""
    text = ""
    for words, other, *picks in draws.tolist():
        if len(text) >= length:
            break
        chosen = GROUPS[other % len(GROUPS) if 2 * len(text) < length else group]
        letters = "".join(chosen[begin + pick % 2] for pick in picks)
        text += f"{letters}: {_SENTENCES[words % len(_SENTENCES)]}. "
    return text[:length]
