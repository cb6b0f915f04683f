"""Which layout do the weights of q and k have? evidence.py says how that can be known."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.types import Layout

from .evidence import (
    CROSSINGS,
    LAYOUTS,
    NO_SUMS,
    PAIRINGS,
    Crossing,
    Pairing,
    Probabilities,
    compute_crossed_probabilities,
    compute_probabilities,
    compute_products,
    compute_strength,
    compute_z,
    sum_agreement,
)
from .layers import AttentionLayer, find_layers
from .sizes import Stated, check_stated
from .tensor_names import SAY_PATTERN, Pattern, parse_patterns

__all__ = ["SURE", "Detection", "LayerFinding", "detect", "detect_layers", "list_layers"]

#: The probability from which on a layout is named.
SURE = 0.9
#: z of a second pairing, as a part of the first one's, below which it may be a trace of the first.
_TRACE = 0.25
_MOST_NAMED = 12

#: A function of layers done, layers in all and the name of the layer.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LayerFinding:
    """What one attention says: z for either layout, and what follows from them.

    not_finite: how many numbers looked at are NaN or infinite; their heads count for nothing.
    crossed_z: z for q in one layout and k in the other.
    """

    name: str
    layer: int | None
    z: dict[Layout, float]
    probabilities: Probabilities
    not_finite: int
    crossed_z: dict[Crossing, float]

    @property
    def layout(self) -> Layout | None:
        """The layout, None where the weights do not show one."""
        if self.probabilities.half >= SURE:
            return "half"
        return "interleaved" if self.probabilities.interleaved >= SURE else None

    @property
    def crossed(self) -> Crossing | None:
        """The layouts of q and k if the weights show that they differ."""
        found = compute_crossed_probabilities(self.z, self.crossed_z)
        return next((name for name, chance in found.items() if chance >= SURE), None)

    @property
    def confidence(self) -> float:
        """The probability of the likelier layout, or of the crossing if there is one."""
        crossed = max(compute_crossed_probabilities(self.z, self.crossed_z).values())
        likelier = max(self.probabilities.half, self.probabilities.interleaved)
        return max(likelier, crossed) if crossed >= SURE else likelier

    def to_dict(self) -> dict[str, Any]:
        found = {"layout": self.layout, "confidence": self.confidence, "crossed": self.crossed}
        return {**asdict(self), **found}


@dataclass(frozen=True)
class Detection(LayerFinding):
    """The same for all layers together, and each of them."""

    layers: tuple[LayerFinding, ...]

    @property
    def layout(self) -> Layout | None:
        """The layout of all layers, None where they do not show one, or are mixed."""
        return None if self.mixed else super().layout

    @property
    def crossed(self) -> Crossing | None:
        """The layouts of q and k if all layers together show that they differ."""
        return None if self.mixed else super().crossed

    @property
    def mixed(self) -> bool:
        """Whether the weights show more than one layout: in different layers, or in all."""
        return len(self.evident) > 1

    @property
    def evident(self) -> dict[Pairing, tuple[LayerFinding, ...]]:
        """Every pairing that the weights show, with the layers that show it by themselves.

        Shown is what a layer or all of them together are named, and two that are both strong in all
        of them together, even if no layer is clear.
        """
        every: list[tuple[Pairing, float]] = [*self.z.items(), *self.crossed_z.items()]
        least = _TRACE * max(z for _, z in every)
        strong = {name for name, z in every if z > least and compute_strength(name, z) >= SURE}
        whole = {super().layout, super().crossed} | (strong if len(strong) > 1 else set())
        found: dict[Pairing, tuple[LayerFinding, ...]] = {}
        for name, _ in every:
            mine = tuple(one for one in self.layers if name in (one.layout, one.crossed))
            if mine or name in whole:
                found[name] = mine
        return found

    def in_words(self) -> str:
        """What the weights show, such as "half in layers 0, 2; interleaved in layers 1, 3"."""
        evident = self.evident
        if not evident:
            return "neither layout"
        if not self.mixed:
            return next(iter(evident))
        return "; ".join(
            f"{name} in {list_layers(layers) if layers else 'all layers together'}"
            for name, layers in evident.items()
        )

    def to_dict(self) -> dict[str, Any]:
        layers = [layer.to_dict() for layer in self.layers]
        named = {name: [one.name for one in mine] for name, mine in self.evident.items()}
        more = {"layers": layers, "mixed": self.mixed, "evident": named}
        return {**LayerFinding.to_dict(self), **more}


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
    layers = find_layers(source, parse_patterns(patterns), check_stated(stated))
    if not layers:
        raise ValueError(
            f"detect: {str(source)!r} holds no layer with the weights of both q and k that read the"
            f" same input; if they have names of their own, {SAY_PATTERN} q=REGEX and k=REGEX."
        )
    return detect_layers(layers, progress=progress)


def detect_layers(
    layers: Sequence[AttentionLayer], *, progress: Progress | None = None
) -> Detection:
    """Judge every layer, and all of them together."""
    whole = dict.fromkeys(PAIRINGS, NO_SUMS)
    found: list[LayerFinding] = []
    for done, layer in enumerate(layers):
        if progress is not None:
            progress(done, len(layers), layer.name)
        mine = dict.fromkeys(PAIRINGS, NO_SUMS)
        odd: list[int] = []
        for q, k in layer.heads():
            products = compute_products(
                _count_non_finite(q, odd), next(_count_non_finite([k], odd))
            )
            for name, sums in sum_agreement(products).items():
                mine[name] = mine[name] + sums
                whole[name] = whole[name] + sums
        found.append(
            LayerFinding(layer.name, layer.number, **_compute_statistics(mine), not_finite=sum(odd))
        )
    not_finite = sum(layer.not_finite for layer in found)
    judged = _compute_statistics(whole)
    return Detection("all layers", None, **judged, not_finite=not_finite, layers=tuple(found))


def _compute_statistics(sums: Mapping[Pairing, Tensor]) -> dict[str, Any]:
    """z of layouts and of crossings, and the probabilities of layouts, by the names of fields."""
    z: dict[Layout, float] = {name: compute_z(sums[name]) for name in LAYOUTS}
    crossed: dict[Crossing, float] = {name: compute_z(sums[name]) for name in CROSSINGS}
    return {"z": z, "probabilities": compute_probabilities(z), "crossed_z": crossed}


def _count_non_finite(heads: Iterable[Tensor], odd: list[int]) -> Iterator[Tensor]:
    """Heads as they come, with the number in each that is not finite put down."""
    for rows in heads:
        odd.append(rows.numel() - int(torch.isfinite(rows).sum()))
        yield rows


def list_layers(layers: Sequence[LayerFinding]) -> str:
    """Layers by their numbers, such as "layers 0, 2-5", or by their names if they have none."""
    numbers = [one.layer for one in layers if one.layer is not None]
    if len(set(numbers)) < len(layers):  # some have two attentions in a layer
        names = [quote(one.name) for one in layers]
    else:
        names = []
        for number in numbers:
            first = int(names[-1].split("-")[0]) if names else number
            last = int(names[-1].split("-")[-1]) if names else number
            if names and number == last + 1:
                names[-1] = f"{first}-{number}"
            else:
                names.append(str(number))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    word = "layer" if len(layers) == 1 else "layers"
    return f"{word} {', '.join(names[:_MOST_NAMED])}{more}"
