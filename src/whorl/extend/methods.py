"""Every method of extension, with the factor that the target asks for.

With s = target / trained length, most methods have the factor s. NTK with factor s divides only the
slowest pair by s; pairs between it and the first with a wavelength longer than the trained length
are divided by less, and so have out-of-distribution angles at the target. ``raised_base`` is NTK
with the smallest factor that avoids this:

    s^((P - 1) / c)     P pairs, c the first whose wavelength exceeds the trained length

``dynamic_ntk`` gets the smallest factor of at least 1 that gives the same base at the target.
``none`` is direct extrapolation: the rotation as published, on longer texts.
"""

from collections.abc import Callable, Sequence

from whorl import scaling as scalings
from whorl._support.words import quote, suggest_name
from whorl.configs import ConfigError, LayerGroup, ModelPositions
from whorl.configs.inspection.extension import (
    NOT_BY_FACTOR,
    ModelExtension,
    extend,
    replace_scaling,
)
from whorl.configs.inspection.lengths import limit_by_window
from whorl.configs.inspection.pairs import compute_wavelengths
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
    model: ModelPositions, groups: Sequence[LayerGroup], name: str, trained: int, target: int
) -> list[ModelExtension]:
    """Extend groups of layers from the trained length to the target, all by the same method."""
    factor = target / trained
    made = []
    for group in groups:
        make = _choose_scaling(group, groups, name, target)
        if make is None:
            made.append(extend(model, group, name, factor, trained))
        else:
            made.append(replace_scaling(model, group, name, factor, trained, make))
    return made


def _choose_scaling(
    group: LayerGroup, groups: Sequence[LayerGroup], name: str, target: int
) -> Callable[[int], Scaling] | None:
    """A function from the trained length to the scaling; None for methods of that factor."""
    assert group.rotation is not None
    if name == "none":
        published: Scaling = group.rotation.options.get("scaling") or NTK(1.0)
        return lambda trained: published
    if name == "raised_base":
        return lambda trained: NTK(_compute_raised_factor(groups, trained, target))
    if name == "dynamic_ntk":
        return lambda trained: _make_dynamic_ntk(groups, trained, target)
    return None


def _make_dynamic_ntk(groups: Sequence[LayerGroup], trained: int, target: int) -> DynamicNTK:
    """Dynamic NTK whose 1 + f (s - 1) at the target is the raised factor."""
    wanted = _compute_raised_factor(groups, trained, target)
    return DynamicNTK(max(1.0, (wanted - 1) / (target / trained - 1)), trained)


def _compute_raised_factor(groups: Sequence[LayerGroup], trained: int, target: int) -> float:
    """The smallest factor of NTK without out-of-distribution angles at the target.

    It is one for all groups, because they may share their parameters. In layers with a window no
    distance exceeds it. If no layer needs a larger base, the ratio of the lengths.
    """
    found = []
    for group in groups:
        assert group.rotation is not None
        seen, distance = (
            limit_by_window(trained, group.window),
            limit_by_window(target, group.window),
        )
        assert seen is not None
        assert distance is not None
        unscaled = group.rotation.build_without_tables(scaling=None).frequencies().inv_freq
        lengths = compute_wavelengths(unscaled)
        slow = [n for n, length in enumerate(lengths) if length is not None and length > seen]
        if not slow or distance <= seen:
            continue
        if slow[0] == 0:
            raise ConfigError(
                "the fastest pair has a wavelength longer than the trained length, and a larger"
                " base does not change that pair"
            )
        found.append((distance / seen) ** ((len(lengths) - 1) / slow[0]))
    # A little more, because the rounded quotient could be a little too small.
    return float(max(found) * (1 + 1e-12)) if found else target / trained
