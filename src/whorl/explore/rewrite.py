"""The config that asks for what the sliders show, in the dialects of transformers 4 and 5.

Nothing is offered that ``read_config`` would not read back as the same frequencies, as whorl reads
it and, unless transformers does not read the config as published either, as transformers does.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from whorl.configs import LayerGroup, ModelPositions, Parity, Rotation, read_config
from whorl.configs.huggingface.write import (
    DIALECTS,
    Dialect,
    explain_loss,
    find_dialect,
    write_config,
    write_dialect_lines,
)
from whorl.configs.inspection.extension import (
    collect_parameters,
    has_one_dictionary,
    write_lines_by_dialect,
)

from .choices import METHODS, Choice, changed, extended
from .state import Subject

__all__ = ["Rewritten", "rewritten"]

_LEAN = {"table": "on_the_fly", "table_length": 0}


@dataclass(frozen=True)
class Rewritten:
    """The whole config with a choice written into it, in each dialect that has words for it.

    dialect: that of the config as published. why: the reason, where there is no config.
    """

    configs: Mapping[Dialect, dict[str, Any]] = field(default_factory=dict)
    dialect: Dialect | None = None
    why: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any] | None:
        """In the dialect of the config as published, else in the other."""
        return next((self.configs[one] for one in self.order if one in self.configs), None)

    @property
    def order(self) -> list[Dialect]:
        """The dialects, that of the config as published first."""
        return sorted(DIALECTS, key=lambda one: one != self.dialect)


def rewritten(subject: Subject, index: int, choice: Choice, trained: int | None) -> Rewritten:
    """The config that asks for ``choice`` in the layers of group ``index``."""
    model = subject.model
    assert model is not None
    if model.kind not in ("transformers", "mlx"):
        only = f"this is a config of {model.kind}; whorl writes those of transformers only."
        return Rewritten(why=only)
    keys = subject.data if model.part is None else model.part.keys
    dialect = find_dialect(subject.data, keys)
    group = changed(subject, index, choice, trained)
    model, lines, why = _lines(subject, model, index, choice, trained)
    written = {
        each: write_config(subject.data, _path(model, subject.data), found)
        for each, found in lines.items()
        if found is not None
    }
    if choice.own:
        written[dialect] = dict(subject.data)
    configs = {
        each: data
        for each, data in written.items()
        if (choice.own and each == dialect) or _same(subject, data, index, group)
    }
    if not configs:
        why = why or "transformers' keys cannot say this so that it reads back the same."
        return Rewritten(dialect=dialect, why=why)
    lost = dialect == "transformers 4" and dialect not in configs
    ropes = [one.parameters for one in model.groups]
    warnings = (explain_loss(ropes, _model_type(model)),) if lost else ()
    return Rewritten(configs, dialect, warnings=warnings)


def _model_type(model: ModelPositions) -> str | None:
    return model.model_type if model.part is None else model.part.model_type


def _path(model: ModelPositions, data: Mapping[str, Any]) -> list[str]:
    """The keys that lead to the part that the model was read from."""
    where = "" if model.part is None else model.part.where
    path, inside = where.split(".") if where else [], data
    for name in path:
        inside = inside.get(name, None)
        if not isinstance(inside, dict):  # the keys of the part stand beside the others
            return []
    return path


def _lines(
    subject: Subject,
    model: ModelPositions,
    index: int,
    choice: Choice,
    trained: int | None,
) -> tuple[ModelPositions, Mapping[Dialect, dict[str, Any] | None], str | None]:
    """The model with the chosen base and parameters, the keys to set, or why there are none."""
    data = subject.data if model.part is None else model.part.keys
    # A model in which the group has the chosen base, so that all of its parameters say so.
    base = dataclasses.replace(choice, method="config")
    rebased = changed(subject, index, base, trained)
    rebased = dataclasses.replace(rebased, parameters=_parameters(rebased, choice))
    shared = _shared(model, data)
    groups = [
        dataclasses.replace(one, parameters=rebased.parameters) if shared and one.rotation else one
        for one in model.groups
    ]
    groups[index] = rebased
    model = dataclasses.replace(model, groups=tuple(groups))
    if choice.method in METHODS:
        ropes, kind = collect_parameters(model, data, {}), _model_type(model)
        return (
            model,
            {each: write_dialect_lines(data, kind, ropes, each) for each in DIALECTS},
            None,
        )
    extension = extended(subject, rebased, choice, trained)
    lines = write_lines_by_dialect(model, data, {id(rebased): extension})
    if extension.parameters is not None:
        groups[index] = dataclasses.replace(rebased, parameters=extension.parameters)
    return dataclasses.replace(model, groups=tuple(groups)), lines, extension.why


def _shared(model: ModelPositions, data: Mapping[str, Any]) -> bool:
    """Whether all layers that rotate have one dictionary of parameters."""
    return has_one_dictionary([one for one in model.groups if one.rotation is not None], data)


def _parameters(group: LayerGroup, choice: Choice) -> dict[str, Any]:
    found = dict(group.parameters)
    if choice.method == "none":
        kept = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
        found = {"rope_type": "default"} | {k: v for k, v in found.items() if k in kept}
    if choice.base is not None:
        found["rope_theta"] = choice.base
    return found


def _same(subject: Subject, data: dict[str, Any], index: int, group: LayerGroup) -> bool:
    """Whether the config, written and read again, turns the layers as the chart shows.

    Layers with parameters of their own must turn as before.
    """
    model = subject.model
    assert model is not None
    keys = subject.data if model.part is None else model.part.keys
    shared = _shared(model, keys)
    wanted = [one.rotation for one in model.groups]
    wanted[index] = group.rotation
    again = json.loads(json.dumps(data))
    for parity in (None, "transformers"):
        read = _rotations(again, parity)
        if parity is not None and _rotations(dict(subject.data), parity) is None:
            break  # transformers has no code for it as it stands
        if read is None or len(read) != len(wanted):
            return False
        chosen = [index] if shared else range(len(wanted))
        if not all(_alike(wanted[n], read[n]) for n in chosen):
            return False
    return True


def _rotations(data: dict[str, Any], parity: Parity | None) -> list[Rotation | None] | None:
    try:
        return [one.rotation for one in read_config(data, parity=parity).groups]
    except ValueError:
        return None


def _alike(one: Rotation | None, other: Rotation | None) -> bool:
    """Whether two rotations have the same frequencies in short texts and in long ones."""
    if one is None or other is None:
        return one is other
    try:
        ours: Any = one.build(**_LEAN)
        theirs: Any = other.build(**_LEAN)
        for length in (None, 1 << 20):
            a, b = ours.frequencies(length), theirs.frequencies(length)
            if not torch.allclose(a.inv_freq, b.inv_freq, rtol=1e-6, atol=0.0):
                return False
            if abs(float(a.attention_scale) - float(b.attention_scale)) > 1e-6:
                return False
    except (ValueError, LookupError, RuntimeError):
        return False
    return True
