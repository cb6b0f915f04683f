"""The config that asks for what the sliders show, in the schema of transformers 5.

Nothing is offered that ``read_config`` would not read back as the same frequencies.
"""

import copy
import dataclasses
import json
from typing import Any

import torch

from whorl.configs import LayerGroup, ModelPositions, read_config
from whorl.inspection.extension import flat, patches

from .choices import METHODS, Choice, changed, extended
from .state import Subject

__all__ = ["rewritten"]

#: Where families keep bases and scalings; the new rope_parameters take the place of all of them.
_OLD = (
    *("rope_theta", "rope_scaling", "rope_parameters", "rotary_emb_base"),
    *("global_rope_theta", "local_rope_theta", "rope_local_base_freq"),
)
_LEAN = {"table": "on_the_fly", "table_length": 0}


def rewritten(
    subject: Subject, index: int, choice: Choice, trained: int | None
) -> tuple[dict[str, Any] | None, str | None]:
    """The whole config with the choice written into it, or the reason why there is none."""
    model = subject.model
    assert model is not None
    if model.kind not in ("transformers", "mlx"):
        return None, f"this is a config of {model.kind}; whorl writes those of transformers only."
    if choice.own:
        return dict(subject.data), None
    group = changed(subject, index, choice, trained)
    patch, why = _patch(subject, model, index, choice, trained)
    if patch is None:
        return None, why
    data = copy.deepcopy(dict(subject.data))
    places = _places(model, data)
    for place in places:
        for key in _OLD:
            place.pop(key, None)
    places[-1].update(patch)
    if not _same(data, index, group):
        return None, "transformers' keys cannot say this so that it reads back the same."
    return data, None


def _places(model: ModelPositions, data: dict[str, Any]) -> list[dict[str, Any]]:
    """The config and what lies within it, down to the part that the model was read from."""
    found = [data]
    where = "" if model.part is None else model.part.where
    for name in where.split(".") if where else []:
        inside = found[-1].get(name)
        if not isinstance(inside, dict):  # the keys of the part stand beside the others
            return [data]
        found.append(inside)
    return found


def _patch(
    subject: Subject,
    model: ModelPositions,
    index: int,
    choice: Choice,
    trained: int | None,
) -> tuple[dict[str, Any] | None, str | None]:
    """The keys to set."""
    data = subject.data if model.part is None else model.part.keys
    # A model in which the group has the chosen base, so that all of its parameters say so.
    base = dataclasses.replace(choice, method="config")
    rebased = changed(subject, index, base, trained)
    rebased = dataclasses.replace(rebased, parameters=_parameters(rebased, choice))
    groups = tuple(rebased if n == index else one for n, one in enumerate(model.groups))
    model = dataclasses.replace(model, groups=groups)
    if choice.method not in METHODS:
        found = {id(rebased): extended(subject, rebased, choice, trained)}
        patch, _ = patches(model, data, found)
        return patch, None if patch else next(iter(found.values())).why
    turning = [one for one in groups if one.rotation is not None]
    if flat(turning, data):
        return {"rope_parameters": dict(rebased.parameters)}, None
    nested = {one.name: dict(one.parameters) for one in turning if one.name is not None}
    return {"rope_parameters": nested}, None


def _parameters(group: LayerGroup, choice: Choice) -> dict[str, Any]:
    found = dict(group.parameters)
    if choice.method == "none":
        kept = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
        found = {"rope_type": "default"} | {k: v for k, v in found.items() if k in kept}
    if choice.base is not None:
        found["rope_theta"] = choice.base
    return found


def _same(data: dict[str, Any], index: int, group: LayerGroup) -> bool:
    """Whether the config, written and read again, turns these layers as the chart shows."""
    try:
        model = read_config(json.loads(json.dumps(data)))
        again = model.groups[index].rotation
        if again is None or group.rotation is None:
            return False
        one: Any = group.rotation.build(**_LEAN)
        other: Any = again.build(**_LEAN)
        for length in (None, 1 << 20):
            a, b = one.frequencies(length), other.frequencies(length)
            if not torch.allclose(a.inv_freq, b.inv_freq, rtol=1e-6, atol=0.0):
                return False
            if abs(float(a.attention_scale) - float(b.attention_scale)) > 1e-6:
                return False
    except (ValueError, LookupError, RuntimeError):
        return False
    return True
