"""The trained length that an extension starts from, and the rule that it was found by.

given        the caller names it
scaling      the config has a scaling that names the length it was extended from
published    the publisher of the family extends from another length than the config claims
config       the context length of a config without a scaling
"""

from dataclasses import dataclass
from typing import Any, Literal

from whorl.configs import ConfigError, LayerGroup, ModelPositions
from whorl.configs.inspection.extension import name_model
from whorl.configs.inspection.lengths import find_extension_start, find_trained_context
from whorl.configs.inspection.words import format_number
from whorl.scaling import Scaling

__all__ = ["TrainedLength", "describe_published_scaling", "find_trained_length"]


@dataclass(frozen=True)
class TrainedLength:
    """Tokens that an extension starts from, the rule they were found by, and why in words."""

    tokens: int
    rule: Literal["given", "scaling", "published", "config"]
    why: str

    def to_dict(self) -> dict[str, Any]:
        return vars(self).copy()


def find_trained_length(
    model: ModelPositions, group: LayerGroup, given: int | None
) -> TrainedLength:
    """The trained length of these layers; an error says what to pass if the config is silent."""
    assert group.rotation is not None
    start = find_extension_start(model, group, given)
    scaling: Scaling | None = group.rotation.options.get("scaling")
    if start is None:
        raise ConfigError(_explain_missing(model, scaling))
    tokens = format_number(start)
    if scaling is not None and getattr(scaling, "original_context", None) is not None:
        why = (
            f"The config has a scaling already, {describe_published_scaling(scaling)}. The trained"
            f" length is the {tokens} tokens from which that starts; a method replaces the scaling"
            " and starts there too. Training after the scaling is not counted."
        )
        return TrainedLength(start, "scaling", why)
    if given is not None:
        return TrainedLength(start, "given", f"The trained length of {tokens} tokens was given.")
    if start != find_trained_context(model, group, None):
        claimed = format_number(model.context or start)
        why = (
            f"The config claims {claimed} tokens, but the published recipe of {name_model(model)}"
            f" extends from {tokens}, which is taken for the trained length."
        )
        return TrainedLength(start, "published", why)
    if scaling is not None:  # the config names both lengths
        why = (
            f"The config has a scaling already, {describe_published_scaling(scaling)}, and names a"
            f" trained length of {tokens} tokens; a method replaces the scaling and starts there."
        )
        return TrainedLength(start, "scaling", why)
    why = f"The config has no scaling and claims {tokens} tokens, the trained length."
    return TrainedLength(start, "config", why)


def describe_published_scaling(scaling: Scaling) -> str:
    """Name and factor of a scaling: "yarn by 4"."""
    factor = getattr(scaling, "factor", None)
    by = f" by {format_number(factor)}" if isinstance(factor, (int, float)) else ""
    return f"{scaling.name}{by}"


def _explain_missing(model: ModelPositions, scaling: Scaling | None) -> str:
    who, ask = name_model(model), "pass trained=N"
    if scaling is None:
        return (
            f"the config of {who} does not say the trained length, from which an extension"
            f" starts; {ask}."
        )
    claim = "" if model.context is None else f" and claims {format_number(model.context)} tokens"
    return (
        f"the config of {who} has a scaling already, {describe_published_scaling(scaling)},{claim}"
        f", from which the trained length does not follow; {ask}."
    )
