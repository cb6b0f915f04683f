"""Every method of extension, with the factor that the target asks for.

With s = target / trained length, most methods have the factor s. NTK with factor s divides only the
slowest pair by s; pairs between it and the first with a wavelength longer than the trained length
are divided by less, and so have out-of-distribution angles at the target. ``raised_base`` is NTK
with the smallest factor that avoids this:

    s^((P - 1) / c)     P pairs, c the first whose wavelength exceeds the trained length

``dynamic_ntk`` gets the smallest factor of at least 1 that gives the same base at the target.
``none`` is direct extrapolation: the rotation as published, on longer texts.
"""

from collections.abc import Callable

from whorl import scaling as scalings
from whorl._support.words import quote, suggest_name
from whorl.configs import ConfigError, LayerGroup, ModelPositions
from whorl.configs.inspection.extension import (
    NOT_BY_FACTOR,
    ModelExtension,
    extend,
    replace_scaling,
)
from whorl.scaling import NTK, DynamicNTK, Scaling

__all__ = ["TITLES", "check_method", "extend_layers", "list_methods"]

#: What a method does, in a few words.
TITLES = {
    "none": "as published, on longer texts",
    "linear": "all pairs slower by the factor",
    "ntk": "base raised by the factor",
    "raised_base": "base raised until no angle is new",
    "ntk_by_parts": "slow pairs slower, fast pairs kept",
    "yarn": "NTK by parts, and sharper attention",
    "llama3": "long wavelengths slower, short ones kept",
    "dynamic_linear": "linear, by the length of the text",
    "dynamic_ntk": "NTK, by the length of the text",
    "dynamic_yarn": "YaRN, by the length of the text",
}
_OWN = ("none", "raised_base")


def list_methods() -> list[str]:
    """Names of all methods, direct extrapolation first."""
    return [*_OWN, *(name for name in scalings.names() if name not in NOT_BY_FACTOR)]


def check_method(name: str) -> None:
    """Refuse a name that is no method."""
    known = list_methods()
    if name in known:
        return
    if name in NOT_BY_FACTOR:
        raise ConfigError(
            f"method {quote(name)} cannot be planned from a config: {NOT_BY_FACTOR[name]}. Choose"
            f" one of {', '.join(known)}."
        )
    hint = suggest_name(name, known)
    raise ConfigError(f"method {quote(name)} is unknown{hint} Known: {', '.join(known)}.")


def extend_layers(
    model: ModelPositions, group: LayerGroup, name: str, trained: int, target: int
) -> ModelExtension:
    """Extend a group of layers from the trained length to the target by a method."""
    factor = target / trained
    make = _choose_scaling(group, name, factor)
    if make is None:
        return extend(model, group, name, factor, trained)
    return replace_scaling(model, group, name, factor, trained, make)


def _choose_scaling(group: LayerGroup, name: str, factor: float) -> Callable[[int], Scaling] | None:
    """A function from the trained length to the scaling; None for methods of that factor."""
    assert group.rotation is not None
    if name == "none":
        published: Scaling = group.rotation.options.get("scaling") or NTK(1.0)
        return lambda trained: published
    if name == "raised_base":
        return lambda trained: NTK(_compute_raised_factor(group, factor, trained))
    if name == "dynamic_ntk":
        return lambda trained: _make_dynamic_ntk(group, factor, trained)
    return None


def _make_dynamic_ntk(group: LayerGroup, factor: float, trained: int) -> DynamicNTK:
    """Dynamic NTK whose 1 + f (s - 1) at the target is the raised factor."""
    wanted = _compute_raised_factor(group, factor, trained)
    own = (wanted - 1) / (factor - 1) if factor > 1 else 1.0
    return DynamicNTK(max(1.0, own), trained)


def _compute_raised_factor(group: LayerGroup, factor: float, trained: int) -> float:
    """The smallest factor of NTK without out-of-distribution angles at factor x trained."""
    assert group.rotation is not None
    rope = group.rotation.build_without_tables(scaling=None)
    found = rope.describe(None, original_context=trained)
    seen = trained if group.window is None else min(trained, group.window)
    long = [p.index for p in found.pairs if p.wavelength is not None and p.wavelength > seen]
    if not long or group.window is not None:
        return factor
    if long[0] == 0:
        raise ConfigError(
            "the fastest pair has a wavelength longer than the trained length, and a larger base"
            " does not change that pair"
        )
    # A little more, because the rounded quotient could be a little too small.
    return float(factor ** ((len(found.pairs) - 1) / long[0]) * (1 + 1e-12))
