"""Changes of a model that can be undone: another class for a module, another module or config."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

__all__ = ["Change", "ClassChange", "ConfigChange", "ModuleChange"]

_IMPLEMENTATION = "_attn_implementation_internal"


class Change(Protocol):
    """One change, which ``revert`` undoes exactly."""

    def apply(self) -> None:
        """Make the change."""
        ...

    def revert(self) -> None:
        """Undo it."""
        ...


@dataclass
class ClassChange:
    """Gives a module another class, a subclass of its own, and attributes that this class needs.

    Parameters, hooks and the place in the model stay as they are. Attributes stay out of the
    module's lists of parameters and submodules, so that nothing of whorl is saved with the model.
    """

    module: nn.Module
    new: type[nn.Module]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.old = type(self.module)

    def apply(self) -> None:
        self.module.__class__ = self.new
        for name, value in self.attributes.items():
            object.__setattr__(self.module, name, value)

    def revert(self) -> None:
        for name in self.attributes:
            object.__delattr__(self.module, name)
        self.module.__class__ = self.old


@dataclass
class ModuleChange:
    """Puts another module in the place of one."""

    parent: nn.Module
    name: str
    new: nn.Module

    def __post_init__(self) -> None:
        self.old = getattr(self.parent, self.name)

    def apply(self) -> None:
        setattr(self.parent, self.name, self.new)

    def revert(self) -> None:
        setattr(self.parent, self.name, self.old)


@dataclass
class ConfigChange:
    """Gives a model a copy of its config, with another attention implementation.

    A copy, because models may share a config, and the others are to stay as they are. What is set
    in the copy is in the original after ``revert``. Configs that are parts of it, as that of the
    text is, are copies too, once ``replace_parts`` knows them.
    """

    model: nn.Module
    old: Any
    implementation: str

    def __post_init__(self) -> None:
        self.new = copy.copy(self.old)
        setattr(self.new, _IMPLEMENTATION, self.implementation)
        self.parts: Sequence[ConfigChange] = ()

    def replace_parts(self, changes: "Sequence[ConfigChange]") -> None:
        """Let the copy refer to the copies of its parts, which are among ``changes``."""
        self.parts = changes
        copies = {id(change.old): change.new for change in changes}
        for name, value in vars(self.new).items():
            vars(self.new)[name] = copies.get(id(value), value)

    def apply(self) -> None:
        self._replace(self.old, self.new)

    def revert(self) -> None:
        originals = {id(change.new): change.old for change in self.parts}
        values = {name: originals.get(id(value), value) for name, value in vars(self.new).items()}
        vars(self.old).update({**values, _IMPLEMENTATION: vars(self.old)[_IMPLEMENTATION]})
        self._replace(self.new, self.old)

    def _replace(self, here: Any, there: Any) -> None:
        for module in self.model.modules():
            if vars(module).get("config") is here:
                module.config = there
