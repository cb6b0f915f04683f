"""From a config to an ``Inspection``: read it, measure each group of layers, compare readings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from whorl._words import did_you_mean
from whorl.configs import ConfigError, LayerGroup, ModelPositions, presets, read_config
from whorl.configs.model import Parity
from whorl.configs.source import load

from .extension import Extension, called, described, patches, targets
from .extension import extend as put
from .frameworks import Case, Comparison, compare
from .lengths import at_length, span, trained_context, turns_in_training
from .pairs import turns, wavelengths
from .report import GroupReport, Inspection

__all__ = ["inspect"]

_LEAN = {"table": "on_the_fly", "table_length": 0}


def inspect(
    x: Any,
    *,
    length: int | None = None,
    extend: str | None = None,
    factor: float | None = None,
    trained: int | None = None,
    layer_type: str | None = None,
    parity: Parity | None = None,
) -> Inspection:
    """What the positions of a model are, and what a length or an extension would do to them.

    Args:
        x: what ``read_config`` takes, or the name of a preset; a file of that name wins.
        length: tokens that texts are to have.
        extend, factor: a scaling by name and the new length over the trained one; without factor,
            the smallest that ``length`` needs.
        trained: tokens of training texts, where the config does not say.
        layer_type: only the layers of this name.
        parity: as for ``read_config``.

    >>> found = inspect("llama-3.1-8b", length=131_072)
    >>> found.groups[0].description.reach
    65536
    """
    for name, value in (("length", length), ("trained", trained)):
        if value is not None and (type(value) is not int or not 0 < value <= 2**40):
            raise ConfigError(f"inspect: {name} must be a positive int of tokens; got {value!r}.")
    if factor is not None and extend is None:
        raise ConfigError("inspect: factor says how far to extend; name the scaling with extend=.")
    given, source = _found(x)
    model, data = read_config(given, parity=parity), _text_part(given)
    chosen = model.groups if layer_type is None else (model.group(layer_type),)
    turning = [group for group in chosen if group.rotation is not None]
    extensions: dict[int, Extension] = {}
    if extend is not None:
        if not turning:
            raise ConfigError(f"inspect: {called(model)} rotates nothing that could be extended.")
        for group in turning if layer_type is not None else targets(turning, data):
            tokens = trained_context(model, group, trained)
            by = _factor(length, factor, tokens)
            extensions[id(group)] = put(model, group, extend, by, tokens)
    reports = tuple(
        _report(model, group, data, length, trained, extensions.get(id(group))) for group in chosen
    )
    patch, old = patches(model, data, extensions)
    return Inspection(source, model, reports, length, patch, old)


def _found(x: Any) -> tuple[Any, str]:
    """What to read, and what to call it."""
    if not isinstance(x, (str, Path)):
        return x, type(x).__name__
    try:
        there = Path(x).exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if there:
        return x, str(x)
    known = presets.names()
    if str(x) in known:
        return presets.load(str(x)), str(x)
    raise ConfigError(
        f"inspect: there is no file {str(x)[:200]!r}, and no preset of that name"
        f"{did_you_mean(str(x)[:200], known)} Presets: {', '.join(known)}."
    )


def _text_part(given: Any) -> Mapping[str, Any]:
    data = load(given).data
    inner = data.get("text_config")
    return inner if isinstance(inner, dict) else data


def _factor(length: int | None, factor: float | None, trained: int | None) -> float:
    if factor is not None:
        return factor
    if length is None or trained is None:
        raise ConfigError(
            "inspect: an extension needs factor, the new length over the trained one (or length,"
            " from which it follows)."
        )
    return max(1.0, length / trained)


def _report(
    model: ModelPositions,
    group: LayerGroup,
    data: Mapping[str, Any],
    length: int | None,
    told: int | None,
    extension: Extension | None,
) -> GroupReport:
    if group.rotation is None:
        return GroupReport(group)
    rope: Any = group.rotation.build(**_LEAN)
    config, grid = rope.config, group.rotation.encoding == "axial_rope"
    now = length or model.context or model.trained_context
    found = rope.frequencies(None if grid else now)
    inv_freq: Tensor = found.inv_freq.detach().double().flatten()
    lengths = wavelengths(inv_freq)
    known = [value for value in lengths if value is not None]
    trained = None if grid else trained_context(model, group, told)
    seen, claimed = span(trained, group.window), span(model.context, group.window)
    description = None if grid else described(rope, now, trained)
    at = None
    if description is not None and length is not None:
        at = at_length(inv_freq, description, trained, group.window, length)
    base = getattr(config, "base", None)
    return GroupReport(
        group,
        encoding=group.rotation.encoding,
        layout=config.layout,
        base=None if isinstance(base, tuple) or getattr(config, "inv_freq", None) else base,
        head_dim=config.head_dim,
        rotated=config.width,
        pairs=len(inv_freq),
        unused=len(lengths) - len(known),
        fastest=min(known, default=None),
        slowest=max(known, default=None),
        attention_scale=float(found.attention_scale),
        trained_context=trained,
        trained=None if not description or not seen else turns_in_training(description, seen),
        claimed=None if grid or claimed is None else turns(inv_freq, claimed),
        description=description,
        at_length=at,
        extension=extension,
        frameworks=_frameworks(model, group, data, length),
        wavelengths=tuple(lengths),
    )


def _frameworks(
    model: ModelPositions, group: LayerGroup, data: Mapping[str, Any], length: int | None
) -> tuple[Comparison, ...]:
    """Readings of others: of configs in the form that they all start from, with one axis."""
    assert group.rotation is not None
    if model.kind not in ("transformers", "mlx") or group.rotation.encoding != "rope":
        return ()
    lengths = [length or model.context or model.trained_context or 2048]
    scaling = group.rotation.options.get("scaling")
    if length is None and scaling is not None and scaling.follows_length and scaling.short_up_to:
        lengths.insert(0, scaling.short_up_to)
    return compare(Case(model, group, data), lengths)
