"""Trained length, largest distance and effects of longer texts for a group of layers."""

from dataclasses import dataclass

from torch import Tensor

from whorl.configs import ConfigError, LayerGroup, ModelPositions
from whorl.scaling import Description, Proportional
from whorl.scaling.aliasing import Alias, find_alias

from .pairs import CompletePairs, measure_angle_error

__all__ = [
    "LengthReport",
    "count_complete_in_training",
    "find_extension_start",
    "find_trained_context",
    "limit_by_window",
    "list_out_of_distribution",
    "measure_length",
]

#: Lengths from which the publisher of a family extends, by model type and claimed context.
#: Qwen3: 8,192 of the 40,960 tokens are for the prompt (model card of Qwen3-8B).
_PUBLISHED_STARTS = {("qwen3", 40_960): 32_768, ("qwen3_moe", 40_960): 32_768}

_SLACK = 1 + 1e-9


@dataclass(frozen=True)
class LengthReport:
    """What texts of ``length`` tokens do to the angles; a window limits the distance.

    new: pairs with out-of-distribution angles; first: the fastest of them; excess: the largest
    ratio of an angle to the largest one of training. None if not known.
    float32_error: of an angle near the end, in radians. alike: see ``whorl.scaling.aliasing``.
    """

    length: int
    distance: int
    new: int | None
    first: int | None
    excess: float | None
    float32_error: float
    alike: Alias | None


def find_trained_context(model: ModelPositions, group: LayerGroup, given: int | None) -> int | None:
    """The trained length before any scaling; None if the config does not say.

    A config with a factor alone ("linear") claims the extended length and does not say the trained
    one, which factor and claim do not determine either.
    """
    assert group.rotation is not None
    scaling = group.rotation.options.get("scaling")
    own: int | None = getattr(scaling, "original_context", None)
    plain = scaling is None or (isinstance(scaling, Proportional) and scaling.factor == 1)
    told = model.trained_context != model.context
    known = own or (model.trained_context if plain or told else None)
    if given is None or known == given:
        return known
    if own is not None:
        raise ConfigError(
            f"trained must be {own}, as the config says, or be left out; got trained={given}."
        )
    return given


def find_extension_start(model: ModelPositions, group: LayerGroup, given: int | None) -> int | None:
    """The length that an extension multiplies: that of the publisher, else the trained length."""
    known = find_trained_context(model, group, given)
    assert group.rotation is not None
    if given is not None or group.rotation.options.get("scaling") is not None:
        return known
    model_type = model.model_type if model.part is None else model.part.model_type
    return _PUBLISHED_STARTS.get((model_type or "", model.context or 0), known)


def limit_by_window(tokens: int | None, window: int | None) -> int | None:
    """The largest distance between a query and a visible key."""
    return tokens if tokens is None or window is None else min(tokens, window)


def count_complete_in_training(description: Description, tokens: int) -> CompletePairs:
    """Pairs that complete a rotation within ``tokens``, with the frequencies before scaling."""
    pairs = [p for p in description.pairs if p.status != "unused" and p.wavelength is not None]
    never = [p.index for p in pairs if p.wavelength is not None and p.wavelength > tokens]
    return CompletePairs(tokens, len(pairs) - len(never), len(never), never[0] if never else None)


def list_out_of_distribution(
    description: Description, trained: int, length: int
) -> list[tuple[int, float]]:
    """Pairs whose angles at ``length`` exceed those of training, with the ratio of the two.

    Only pairs count whose unscaled wavelength is longer than the trained length: the others took
    every angle in training.
    """
    ratios = [
        (pair.index, length / (trained * pair.factor))
        for pair in description.pairs
        if pair.factor and pair.wavelength and pair.wavelength > trained
    ]
    return [(index, ratio) for index, ratio in ratios if ratio > _SLACK]


def measure_length(
    inv_freq: Tensor,
    description: Description,
    trained: int | None,
    window: int | None,
    length: int,
) -> LengthReport:
    """Effects of texts of ``length`` tokens.

    inv_freq: the frequencies at that length, float64 [P].
    """
    distance = length if window is None else min(length, window)
    seen = limit_by_window(trained, window)
    beyond = [] if seen is None else list_out_of_distribution(description, seen, distance)
    return LengthReport(
        length,
        distance,
        new=None if seen is None else len(beyond),
        first=beyond[0][0] if beyond else None,
        excess=max(ratio for _, ratio in beyond) if beyond else None,
        float32_error=measure_angle_error(inv_freq, length),
        alike=find_alias(inv_freq, distance),
    )
