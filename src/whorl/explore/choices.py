"""The values of the sliders: a scaling by name and factor, and a base, applied to a layer group.

Scalings that need only a factor are those of ``whorl inspect --extend``. LongRoPE has a factor for
every pair, which only a search over a trained model can find. Here it uses the lists of a config;
if the config has none, every pair gets the same factor past the trained length, and a note says so.
Proportional is not offered, because it does not rotate slow pairs, and a model must be trained so.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from whorl import scaling
from whorl.configs import ConfigError, LayerGroup, Rotation
from whorl.configs.inspection.extension import (
    ModelExtension,
    build_scaling,
    extend,
    replace_scaling,
)
from whorl.configs.inspection.lengths import find_extension_start
from whorl.configs.inspection.words import format_brief, format_number
from whorl.scaling import LongRoPE

from .state import ExploredConfig

__all__ = [
    "METHODS",
    "NOT_OFFERED",
    "TITLES",
    "Choice",
    "apply_choice",
    "describe_method",
    "extend_group",
    "find_least_factors",
    "list_methods",
]

METHODS = ("config", "none")
NOT_OFFERED = {
    "proportional": "Proportional cannot be chosen, because it does not rotate slow pairs, and a"
    " model must be trained that way; a config with it is shown with it."
}
TITLES = {
    "config": "as in the config",
    "none": "no scaling",
    "ntk": "NTK",
    "ntk_by_parts": "NTK by parts",
    "yarn": "YaRN",
    "llama3": "Llama 3",
    "longrope": "LongRoPE",
    "dynamic_linear": "dynamic linear",
    "dynamic_ntk": "dynamic NTK",
    "dynamic_yarn": "dynamic YaRN",
}


@dataclass(frozen=True)
class Choice:
    """A scaling by name and factor, and a base; None leaves the config's value.

    method: "config" leaves the config's scaling, "none" removes it.
    """

    method: str = "config"
    factor: float | None = None
    base: float | None = None

    @property
    def is_config(self) -> bool:
        """Whether the choice changes nothing in the config."""
        return self.method == "config" and self.base is None

    @property
    def label(self) -> str:
        words = TITLES.get(self.method, self.method)
        if self.method not in METHODS and self.factor is not None:
            words = f"{words} x {self.factor:g}"
        return words if self.base is None else f"{words}, base {format_brief(self.base)}"


def list_methods() -> list[str]:
    """Names of the scalings that can be chosen."""
    return [name for name in scaling.names() if name not in NOT_OFFERED]


@lru_cache(maxsize=1)
def find_least_factors() -> Mapping[str, float]:
    """The least factor, 1, of every scaling that accepts no smaller one."""
    found = {}
    for name in list_methods():
        try:
            if name == "longrope":
                LongRoPE([1.0], [0.5], 4096, factor=0.5)
            else:
                build_scaling(name, 0.5, 4096)
        except ValueError:
            found[name] = 1.0
    return found


@lru_cache(maxsize=64)
def apply_choice(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> LayerGroup:
    """The layer group with the chosen base and scaling."""
    assert explored.model is not None
    group = explored.groups[index]
    assert group.rotation is not None
    options, encoding = dict(group.rotation.options), group.rotation.encoding
    if choice.base is not None:
        if options.get("inv_freq") is not None:
            raise ConfigError(
                "explore: the frequencies of these layers are given as a list, so there is no base"
                " to change."
            )
        options["base"] = choice.base
    group = dataclasses.replace(group, rotation=Rotation(encoding, options))
    if choice.method == "config":
        return group
    if choice.method == "none":
        options["scaling"] = None
    else:
        options["scaling"] = extend_group(explored, group, choice, trained).scaling
    return dataclasses.replace(group, rotation=Rotation(encoding, options))


def extend_group(
    explored: ExploredConfig, group: LayerGroup, choice: Choice, trained: int | None
) -> ModelExtension:
    """The extension of a choice, for a group that has the chosen base already."""
    assert explored.model is not None
    if choice.factor is None:
        raise ConfigError("explore: an extension needs a factor; enter one.")
    tokens = find_extension_start(explored.model, group, trained)
    if choice.method != "longrope":
        return extend(explored.model, group, choice.method, choice.factor, tokens)
    by = choice.factor
    return replace_scaling(
        explored.model,
        group,
        "longrope",
        by,
        tokens,
        lambda given: _make_longrope(group, by, given),
    )


def describe_method(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> str | None:
    """A note about a method that needs one, or None."""
    if choice.method != "longrope" or explored.model is None or choice.factor is None:
        return None
    group = explored.groups[index]
    if _find_longrope(group) is not None:
        return (
            "LongRoPE: the factor of each pair comes from the config; the factor that you choose"
            " changes the attention scale only."
        )
    tokens = find_extension_start(explored.model, group, trained)
    if tokens is None:
        return None
    limit = format_number(tokens)
    return (
        f"LongRoPE: this config has no list of factors, so past {limit} tokens the frequency of"
        f" every pair is divided by {choice.factor:g}, and up to there it is not changed. A search"
        " over the model finds a factor for each pair."
    )


def _find_longrope(group: LayerGroup) -> LongRoPE | None:
    options: Any = {} if group.rotation is None else group.rotation.options
    found = options.get("scaling")
    return found if isinstance(found, LongRoPE) else None


def _make_longrope(group: LayerGroup, factor: float, tokens: int) -> LongRoPE:
    """LongRoPE with the lists of the config, or with equal factors for all pairs."""
    assert group.rotation is not None
    old = _find_longrope(group)
    if old is not None:  # its attention_factor belongs to the old factor
        return dataclasses.replace(
            old, factor=factor, attention_factor=None, long_attention_factor=None
        )
    options = group.rotation.options
    pairs = (options.get("rotary_dim") or options["head_dim"]) // 2
    if tokens < 2:
        raise ConfigError(
            "explore: LongRoPE needs a trained length of at least 2 tokens, because its attention"
            f" scale divides by the logarithm of it; got {tokens}."
        )
    return LongRoPE([1.0] * pairs, [factor] * pairs, tokens, factor=factor)
