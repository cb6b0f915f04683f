"""The text of a fine-tuning: tokens for training, and the last tenth of them for validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.extend.evaluation.settings import cut_windows
from whorl.lab.integrity import compute_tensor_checksum

__all__ = ["TrainingText", "encode_text", "read_texts"]

_VALIDATION_ONE_IN = 10


@dataclass(frozen=True, eq=False)
class TrainingText:
    """Tokens of the texts.

    train [N], validation [M]: two parts that do not overlap. first: tokens that every sequence
    begins with. digest: changes if the tokens do.
    """

    train: Tensor
    validation: Tensor
    first: tuple[int, ...]
    digest: str

    def sample_windows(self, rows: int, length: int, source: torch.Generator) -> Tensor:
        """Random sequences [rows, length + 1] of the training part, each with a last target."""
        size = length + 1 - len(self.first)
        starts = torch.randint(len(self.train) - size + 1, (rows,), generator=source)
        tokens = self.train[starts.unsqueeze(1) + torch.arange(size)].long()
        return torch.cat((torch.tensor(self.first).long().expand(rows, -1), tokens), 1)

    def cut_validation(self, length: int, most: int) -> Tensor:
        """Up to ``most`` evenly spaced sequences [W, length + 1] of the validation part."""
        return cut_windows(self.validation.tolist(), list(self.first), length, most)

    def check_length(self, length: int, name: str) -> None:
        """Refuse a text without a training sequence of ``length`` tokens."""
        if len(self.train) < length + 1:
            raise ValueError(
                f"the text has {len(self.train):,} tokens for training, fewer than one sequence of"
                f" {length + 1:,}, {name} and the token after it. Give more text, or a shorter"
                " length."
            )


def read_texts(paths: Sequence[str | Path]) -> list[str]:
    """The texts of some files, which must be UTF-8."""
    if not paths:
        raise ValueError("texts must name at least one file of text to train on; got none.")
    found = []
    for path in map(Path, paths):
        try:
            found.append(path.read_text(encoding="utf-8"))
        except OSError as error:
            why = error.strerror or error
            raise ValueError(f"texts: {str(path)!r} cannot be read: {why}.") from None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"texts: {str(path)!r} must be UTF-8; byte {error.start:,} is not:"
                f" {quote(error.reason)}."
            ) from None
    return found


def encode_text(
    texts: Sequence[str], encode: Callable[[str], list[int]], first: Sequence[int], vocab: int
) -> TrainingText:
    """The tokens of texts, of each text the last tenth for validation."""
    train, validation = list[int](), list[int]()
    for text in texts:
        tokens = encode(text)
        end = len(tokens) - len(tokens) // _VALIDATION_ONE_IN
        train += tokens[:end]
        validation += tokens[end:]
    if train and max(train) >= vocab:
        raise ValueError(
            f"the tokenizer gives the token {max(train):,}, and the model has {vocab:,}; the"
            " tokenizer belongs to another model."
        )
    parts = torch.tensor(train), torch.tensor(validation)
    digest = compute_tensor_checksum(torch.cat(parts))
    return TrainingText(*parts, tuple(first), digest)
