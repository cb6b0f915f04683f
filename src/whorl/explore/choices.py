"""What the sliders ask for: a scaling by name and factor, and a base, put into a group of layers.

Scalings that a factor determines are those of ``whorl inspect --extend``. LongRoPE has a factor for
every pair, which only a search over a trained model finds. Here it takes the lists that a config
has; where it has none, every pair gets the same one past the trained length, and the note says so.
Proportional is not offered: it leaves out slow pairs, and a model must be trained that way.
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

from .state import Subject

__all__ = [
    "METHODS",
    "NOT_OFFERED",
    "TITLES",
    "Choice",
    "changed",
    "extended",
    "least_factors",
    "methods",
    "note",
]

METHODS = ("config", "none")
NOT_OFFERED = {
    "proportional": "Proportional is not here, because it leaves out slow pairs, and a model must"
    " be trained that way; a config that has it shows it."
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
    """A scaling by name and factor, and a base; None for what the config has.

    method: "config" keeps the config's scaling, "none" takes it away.
    """

    method: str = "config"
    factor: float | None = None
    base: float | None = None

    @property
    def own(self) -> bool:
        """Whether this is the config as it stands."""
        return self.method == "config" and self.base is None

    @property
    def label(self) -> str:
        words = TITLES.get(self.method, self.method)
        if self.method not in METHODS and self.factor is not None:
            words = f"{words} x {self.factor:g}"
        return words if self.base is None else f"{words}, base {format_brief(self.base)}"


def methods() -> list[str]:
    """Scalings that can be chosen."""
    return [name for name in scaling.names() if name not in NOT_OFFERED]


@lru_cache(maxsize=1)
def least_factors() -> Mapping[str, float]:
    """1 for every scaling that stretches only; those that are not here take less too."""
    found = {}
    for name in methods():
        try:
            if name == "longrope":
                LongRoPE([1.0], [0.5], 4096, factor=0.5)
            else:
                build_scaling(name, 0.5, 4096)
        except ValueError:
            found[name] = 1.0
    return found


@lru_cache(maxsize=64)
def changed(subject: Subject, index: int, choice: Choice, trained: int | None) -> LayerGroup:
    """The group with the chosen base and scaling."""
    assert subject.model is not None
    group = subject.groups[index]
    assert group.rotation is not None
    options, encoding = dict(group.rotation.options), group.rotation.encoding
    if choice.base is not None:
        if options.get("inv_freq") is not None:
            raise ConfigError(
                "explore: the frequencies of these layers are a list of their own, so there is no"
                " base to change."
            )
        options["base"] = choice.base
    group = dataclasses.replace(group, rotation=Rotation(encoding, options))
    if choice.method == "config":
        return group
    if choice.method == "none":
        options["scaling"] = None
    else:
        options["scaling"] = extended(subject, group, choice, trained).scaling
    return dataclasses.replace(group, rotation=Rotation(encoding, options))


def extended(
    subject: Subject, group: LayerGroup, choice: Choice, trained: int | None
) -> ModelExtension:
    """The extension that a choice asks for, in a group that has its base already."""
    assert subject.model is not None
    if choice.factor is None:
        raise ConfigError("explore: an extension needs factor.")
    tokens = find_extension_start(subject.model, group, trained)
    if choice.method != "longrope":
        return extend(subject.model, group, choice.method, choice.factor, tokens)
    by = choice.factor
    return replace_scaling(
        subject.model, group, "longrope", by, tokens, lambda given: _longrope(group, by, given)
    )


def note(subject: Subject, index: int, choice: Choice, trained: int | None) -> str | None:
    """What the name of a method does not say."""
    if choice.method != "longrope" or subject.model is None or choice.factor is None:
        return None
    group = subject.groups[index]
    if _lists(group) is not None:
        return (
            "LongRoPE: the factor of each pair is the config's; what you choose changes the"
            " attention scale only."
        )
    tokens = find_extension_start(subject.model, group, trained)
    if tokens is None:
        return None
    limit = format_number(tokens)
    return (
        f"LongRoPE: this config has no list of factors, so past {limit} tokens every pair is slowed"
        f" by {choice.factor:g}, and up to there by nothing. A search over the model"
        " finds a factor for each pair."
    )


def _lists(group: LayerGroup) -> LongRoPE | None:
    options: Any = {} if group.rotation is None else group.rotation.options
    found = options.get("scaling")
    return found if isinstance(found, LongRoPE) else None


def _longrope(group: LayerGroup, factor: float, tokens: int) -> LongRoPE:
    """The lists of the config, or equal factors."""
    assert group.rotation is not None
    old = _lists(group)
    if old is not None:  # an attention_factor would be that of the old factor
        return dataclasses.replace(
            old, factor=factor, attention_factor=None, long_attention_factor=None
        )
    options = group.rotation.options
    pairs = (options.get("rotary_dim") or options["head_dim"]) // 2
    if tokens < 2:
        raise ConfigError("explore: LongRoPE needs at least 2 tokens of training, for its scale.")
    return LongRoPE([1.0] * pairs, [factor] * pairs, tokens, factor=factor)
