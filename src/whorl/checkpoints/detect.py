"""Which layout do the weights of q and k have? evidence.py says how that can be known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl.kernels.ops import Layout

from .evidence import Probabilities, Sums, probabilities, sums_of, z_of
from .names import SAY_PATTERN, Pattern, patterns_of
from .sizes import Stated, stated_of
from .sources import Layer, layers_in

__all__ = ["SURE", "Detection", "LayerFinding", "detect", "detect_layers"]

#: The probability from which on a layout is named.
SURE = 0.9

#: A function of layers done, layers in all and the name of the layer.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LayerFinding:
    """What one attention says: z for either layout, and what follows from them.

    not_finite: how many numbers looked at are NaN or infinite; their heads count for nothing.
    """

    name: str
    layer: int | None
    z: dict[Layout, float]
    probabilities: Probabilities
    not_finite: int

    @property
    def layout(self) -> Layout | None:
        """The layout, None where the weights do not show one."""
        if self.probabilities.half >= SURE:
            return "half"
        return "interleaved" if self.probabilities.interleaved >= SURE else None

    @property
    def confidence(self) -> float:
        """The probability of the likelier layout."""
        return max(self.probabilities.half, self.probabilities.interleaved)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layout": self.layout, "confidence": self.confidence}


@dataclass(frozen=True)
class Detection(LayerFinding):
    """The same for all layers together, and each of them."""

    layers: tuple[LayerFinding, ...]

    def to_dict(self) -> dict[str, Any]:
        layers = [layer.to_dict() for layer in self.layers]
        return {**LayerFinding.to_dict(self), "layers": layers}


def detect(
    source: str | Path,
    *,
    patterns: Sequence[Pattern | str] = (),
    stated: Stated | None = None,
    progress: Progress | None = None,
) -> Detection:
    """Decide from the weights of q and k whether pairs are half a head apart or neighbours.

    Args:
        source: a .safetensors file, an index, a folder with one of them, or a GGUF file.
        patterns: names of q and k that are not known here, as "ROLE=REGEX".
        stated: sizes that win over the config, or stand in for it.

    Raises:
        ValueError: the source cannot be read, or holds no layer with both q and k.
    """
    layers = layers_in(source, patterns_of(patterns), stated_of(stated))
    if not layers:
        raise ValueError(
            f"detect: {str(source)!r} holds no layer with the weights of both q and k that read the"
            f" same input; if they have names of their own, {SAY_PATTERN} q=REGEX and k=REGEX."
        )
    return detect_layers(layers, progress=progress)


def detect_layers(
    layers: Sequence[Layer], *, most: int | None = None, progress: Progress | None = None
) -> Detection:
    """Judge layers, at most ``most`` of them, evenly spread."""
    if most is not None and len(layers) > most:
        layers = [layers[n * (len(layers) - 1) // (most - 1)] for n in range(most)]
    whole: dict[Layout, Sums] = {"half": Sums(), "interleaved": Sums()}
    found: list[LayerFinding] = []
    for done, layer in enumerate(layers):
        if progress is not None:
            progress(done, len(layers), layer.name)
        mine: dict[Layout, Sums] = {"half": Sums(), "interleaved": Sums()}
        odd: list[int] = []
        for q, k in layer.heads():
            for layout, sums in sums_of(_counted(q, odd), next(_counted([k], odd))).items():
                mine[layout] += sums
                whole[layout] += sums
        found.append(LayerFinding(layer.name, layer.number, *_judged(mine), sum(odd)))
    not_finite = sum(layer.not_finite for layer in found)
    return Detection("all layers", None, *_judged(whole), not_finite, tuple(found))


def _judged(sums: dict[Layout, Sums]) -> tuple[dict[Layout, float], Probabilities]:
    z = {layout: z_of(one) for layout, one in sums.items()}
    return z, probabilities(z)


def _counted(heads: Iterable[Tensor], odd: list[int]) -> Iterator[Tensor]:
    """Heads as they come, with the number in each that is not finite put down."""
    for rows in heads:
        odd.append(rows.numel() - int(torch.isfinite(rows).sum()))
        yield rows
