"""Images with labels, at any resolution: scanned digits, and two marks on a grid.

digits    the 1,797 digits of scikit-learn, 8 x 8, in ten classes. Other resolutions are bilinear,
          with corner pixels at the corners. A seed chooses which 500 are for the test.
marks     noise with a light and a dark mark, each as large as a patch. The class is the direction
          from the first to the second, in eight sectors of 45 degrees. At other resolutions marks
          have as many pixels as before, and more cells to be in.

A batch depends on the seed and the step only.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.words import quote

from .model import derive_seed

__all__ = [
    "IMAGE_TASKS",
    "PATCH",
    "TRAINED_SIZE",
    "ImageBatch",
    "ImageTask",
    "interpolate_images",
    "load_digits",
    "make_marks",
    "open_image_task",
]

#: Pixels on each side of an image in training, and of a patch.
TRAINED_SIZE, PATCH = 8, 2
_TEST_DIGITS = 500
_TEST_MARKS = 1000
_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Images [B, 1, S, S] and their classes [B]."""

    images: Tensor
    labels: Tensor


class ImageTask(Protocol):
    """A source of images for training and test."""

    classes: int

    def get_batch(self, step: int, count: int) -> ImageBatch:
        """The batch of a training step, at the resolution of the training."""

    def get_test(self, size: int) -> ImageBatch:
        """All images of the test, with ``size`` pixels on each side."""


class _Digits:
    classes = 10

    def __init__(self, seed: int) -> None:
        self._seed, whole = seed, load_digits()
        source = torch.Generator().manual_seed(derive_seed(seed, "digits"))
        order = torch.randperm(len(whole.labels), generator=source)
        test, train = order[:_TEST_DIGITS], order[_TEST_DIGITS:]
        self._test = ImageBatch(whole.images[test], whole.labels[test])
        self._train = ImageBatch(whole.images[train], whole.labels[train])

    def get_batch(self, step: int, count: int) -> ImageBatch:
        source = torch.Generator().manual_seed(derive_seed(self._seed, "digits", step))
        chosen = torch.randint(len(self._train.labels), (count,), generator=source)
        return ImageBatch(self._train.images[chosen], self._train.labels[chosen])

    def get_test(self, size: int) -> ImageBatch:
        return ImageBatch(interpolate_images(self._test.images, size), self._test.labels)


class _Marks:
    classes = 8

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def get_batch(self, step: int, count: int) -> ImageBatch:
        return make_marks(count, TRAINED_SIZE, derive_seed(self._seed, "marks", step))

    def get_test(self, size: int) -> ImageBatch:
        return make_marks(_TEST_MARKS, size, derive_seed(self._seed, "marks", "test", size))


#: Tasks by name.
IMAGE_TASKS: dict[str, type[_Digits] | type[_Marks]] = {"digits": _Digits, "marks": _Marks}


def open_image_task(name: str, seed: int) -> ImageTask:
    """The task ``name`` with the images of a seed."""
    if name not in IMAGE_TASKS:
        raise ValueError(
            f"image task {quote(name)} is unknown; choose one of {', '.join(IMAGE_TASKS)}."
        )
    return IMAGE_TASKS[name](seed)


@cache
def load_digits() -> ImageBatch:
    """All digits of scikit-learn, with values from 0 to 1; they come with the library.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    for module in ("sklearn", "sklearn.datasets"):
        datasets = import_extra(module, by="the image task 'digits'", extra="tsne")
    found = datasets.load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return ImageBatch(images, torch.tensor(found.target, dtype=torch.long))


def interpolate_images(images: Tensor, size: int) -> Tensor:
    """Images [B, C, size, size] by bilinear interpolation; corner pixels stay at the corners."""
    if images.shape[-1] == size:
        return images
    return F.interpolate(images, (size, size), mode="bilinear", align_corners=True)


def make_marks(count: int, size: int, seed: int) -> ImageBatch:
    """Images of a light and a dark mark on noise, and the direction from the first to the second.

    Class 0 is to the right, 2 is down, 4 is to the left, 6 is up, and the odd ones are between. No
    direction lies on a border, because the tangent of 22.5 degrees is irrational.

    >>> make_marks(2, 8, seed=0).images.shape
    torch.Size([2, 1, 8, 8])
    """
    source = torch.Generator().manual_seed(seed)
    side = size // PATCH
    light = torch.randint(side * side, (count,), generator=source)
    dark = torch.randint(side * side - 1, (count,), generator=source)
    dark += dark >= light  # any cell but that of the light one
    cells = torch.zeros(count, side * side)
    cells.scatter_(1, light[:, None], 1.0).scatter_(1, dark[:, None], -1.0)
    images = cells.view(count, 1, side, side).repeat_interleave(PATCH, 2)
    images = images.repeat_interleave(PATCH, 3)  # [count, 1, size, size]
    images += _NOISE * torch.randn(images.shape, generator=source)
    down, right = (dark // side - light // side).double(), (dark % side - light % side).double()
    sector = torch.atan2(down, right) / (math.pi / 4)
    return ImageBatch(images, sector.round().long() % 8)
