"""The config with the values of the sliders written into it, as transformers 4 and 5 read it.

A config is offered only if ``read_config`` reads it back as the same frequencies, in whorl's own
reading and in that of transformers (unless transformers cannot read the published config either).
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from whorl.configs import (
    Document,
    LayerGroup,
    ModelPositions,
    Parity,
    Rotation,
    read_config,
)
from whorl.configs.huggingface.write import (
    DIALECTS,
    Dialect,
    explain_loss,
    find_dialect,
    write_dialect_lines,
)
from whorl.configs.inspection.config_writer import ConfigWriter
from whorl.configs.inspection.extension import (
    collect_parameters,
    has_one_dictionary,
    write_lines_by_dialect,
)

from .choices import METHODS, Choice, apply_choice, extend_group
from .state import ExploredConfig

__all__ = ["RewrittenConfig", "rewrite_config"]


@dataclass(frozen=True)
class RewrittenConfig:
    """The whole config with a choice written into it, in each dialect that can express it.

    dialect: that of the config as published. why: the reason, if there is no config.
    """

    configs: Mapping[Dialect, dict[str, Any]] = field(default_factory=dict)
    dialect: Dialect | None = None
    why: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any] | None:
        """The config in the dialect of the published one, else in the other dialect."""
        return next((self.configs[one] for one in self.order if one in self.configs), None)

    @property
    def order(self) -> list[Dialect]:
        """The dialects, that of the config as published first."""
        return sorted(DIALECTS, key=lambda one: one != self.dialect)


def rewrite_config(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> RewrittenConfig:
    """The config that asks for ``choice`` in the layers of group ``index``."""
    model = explored.model
    assert model is not None
    if model.kind not in ("transformers", "mlx"):
        only = f"this is a config of {model.kind}; whorl writes only those of transformers."
        return RewrittenConfig(why=only)
    dialect = find_dialect(explored.data, explored.keys)
    group = apply_choice(explored, index, choice, trained)
    model, lines, why = _build_lines(explored, index, choice, trained)
    writer = ConfigWriter(Document(model.kind, dict(explored.data)), model)
    written = {each: writer.write(found) for each, found in lines.items() if found is not None}
    if choice.is_config:
        written[dialect] = dict(explored.data)
    configs = {
        each: data
        for each, data in written.items()
        if (choice.is_config and each == dialect) or _is_read_back(explored, data, index, group)
    }
    if not configs:
        why = why or "no keys of transformers are read back as these frequencies."
        return RewrittenConfig(dialect=dialect, why=why)
    lost = dialect == "transformers 4" and dialect not in configs
    ropes = [one.parameters for one in model.groups]
    warnings = (explain_loss(ropes, _get_model_type(model)),) if lost else ()
    return RewrittenConfig(configs, dialect, warnings=warnings)


def _get_model_type(model: ModelPositions) -> str | None:
    return model.model_type if model.part is None else model.part.model_type


def _build_lines(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> tuple[ModelPositions, Mapping[Dialect, dict[str, Any] | None], str | None]:
    """The model with the chosen base and parameters, the keys to set, and why there are none."""
    model, data = explored.model, explored.keys
    assert model is not None
    # The group with the chosen base, so that its parameters contain it.
    base = dataclasses.replace(choice, method="config")
    rebased = apply_choice(explored, index, base, trained)
    rebased = dataclasses.replace(rebased, parameters=_build_parameters(rebased, choice))
    shared = _has_shared_parameters(explored)
    groups = [
        dataclasses.replace(one, parameters=rebased.parameters) if shared and one.rotation else one
        for one in model.groups
    ]
    groups[index] = rebased
    model = dataclasses.replace(model, groups=tuple(groups))
    if choice.method in METHODS:
        ropes, kind = collect_parameters(model, data, {}), _get_model_type(model)
        return (
            model,
            {each: write_dialect_lines(data, kind, ropes, each) for each in DIALECTS},
            None,
        )
    extension = extend_group(explored, rebased, choice, trained)
    lines = write_lines_by_dialect(model, data, {id(rebased): extension})
    if extension.parameters is not None:
        groups[index] = dataclasses.replace(rebased, parameters=extension.parameters)
    return dataclasses.replace(model, groups=tuple(groups)), lines, extension.why


def _has_shared_parameters(explored: ExploredConfig) -> bool:
    """Whether all layers that rotate share one dictionary of parameters."""
    rotating = [one for one in explored.groups if one.rotation is not None]
    return has_one_dictionary(rotating, explored.keys)


def _build_parameters(group: LayerGroup, choice: Choice) -> dict[str, Any]:
    found = dict(group.parameters)
    if choice.method == "none":
        unscaled = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
        found = {"rope_type": "default"} | {k: v for k, v in found.items() if k in unscaled}
    if choice.base is not None:
        found["rope_theta"] = choice.base
    return found


def _is_read_back(
    explored: ExploredConfig, data: dict[str, Any], index: int, group: LayerGroup
) -> bool:
    """Whether the written config is read back with the frequencies that the chart shows.

    Layers with their own parameters must have the same frequencies as before.
    """
    shared = _has_shared_parameters(explored)
    wanted = [one.rotation for one in explored.groups]
    wanted[index] = group.rotation
    again = json.loads(json.dumps(data))
    for parity in (None, "transformers"):
        read = _read_rotations(again, parity)
        if parity is not None and _read_rotations(dict(explored.data), parity) is None:
            break  # transformers cannot read the published config either
        if read is None or len(read) != len(wanted):
            return False
        chosen = [index] if shared else range(len(wanted))
        if not all(_are_equal(wanted[n], read[n]) for n in chosen):
            return False
    return True


def _read_rotations(data: dict[str, Any], parity: Parity | None) -> list[Rotation | None] | None:
    try:
        return [one.rotation for one in read_config(data, parity=parity).groups]
    except ValueError:
        return None


def _are_equal(one: Rotation | None, other: Rotation | None) -> bool:
    """Whether two rotations have the same frequencies in short and in long contexts."""
    if one is None or other is None:
        return one is other
    try:
        for length in (None, 1 << 20):
            a, b = one.frequencies(length), other.frequencies(length)
            if not torch.allclose(a.inv_freq, b.inv_freq, rtol=1e-6, atol=0.0):
                return False
            if abs(float(a.attention_scale) - float(b.attention_scale)) > 1e-6:
                return False
    except (ValueError, LookupError, RuntimeError):
        return False
    return True
