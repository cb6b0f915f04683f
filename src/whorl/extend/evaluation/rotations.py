"""Other frequencies for the rotary modules of a loaded transformers model.

A rotary module of transformers multiplies positions by its buffer ``inv_freq`` and cos and sin by
``attention_scaling``. Replacing both gives the model any scaling, also one that its config cannot
express. A scaling that follows the length of the text gets the frequencies of the length that is
evaluated, as if the whole text had been read at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from whorl._support.words import quote
from whorl.configs import LayerGroup, ModelPositions
from whorl.configs.inspection.extension import name_model
from whorl.scaling import Frequencies, Scaling

__all__ = ["compute_frequencies", "find_rotary_modules", "select_group", "use_frequencies"]


def select_group(found: ModelPositions) -> LayerGroup:
    """The layers that rotate; ValueError unless all of them rotate alike."""
    rotating = [group for group in found.groups if group.rotation is not None]
    if not rotating:
        raise ValueError(
            f"the model must have rotary positions; {name_model(found)} {found.unrotated}, so there"
            " are no frequencies to change."
        )
    first = rotating[0]
    if any(group.rotation != first.rotation for group in rotating):
        raise ValueError(
            f"all layers of the model must rotate alike; those of {name_model(found)} have several"
            " kinds of rotation, which an evaluation on weights does not support yet."
        )
    if first.softmax_scale != 1 or first.rotation is None or first.rotation.encoding != "rope":
        raise ValueError(
            f"the model must rotate by one position per token and scale scores by 1/sqrt(D) alone;"
            f" {name_model(found)} does not, and an evaluation on weights does not support it yet."
        )
    return first


def compute_frequencies(group: LayerGroup, scaling: Scaling | None, length: int) -> Frequencies:
    """Frequencies of ``group`` with a scaling in a text of ``length`` tokens.

    None is the scaling of the published config.
    """
    assert group.rotation is not None
    more = {} if scaling is None else {"scaling": scaling}
    return group.rotation.build_without_tables(**more).frequencies(length)


def find_rotary_modules(model: nn.Module, pairs: int) -> list[Any]:
    """The modules that compute cos and sin of a model; ValueError if they have another form."""
    modules: list[Any] = list(model.modules())
    found = [
        module
        for module in modules
        if isinstance(getattr(module, "inv_freq", None), Tensor)
        and isinstance(getattr(module, "attention_scaling", None), (int, float))
    ]
    wrong = [list(module.inv_freq.shape) for module in found if module.inv_freq.shape != (pairs,)]
    if not found or wrong:
        what = f"inv_freq of the shape {quote(wrong[0])}" if wrong else "no module with inv_freq"
        raise ValueError(
            f"the model must compute its angles from inv_freq, one number for each of {pairs}"
            f" pairs; {type(model).__name__} has {what}."
        )
    return found


@contextmanager
def use_frequencies(modules: Sequence[Any], frequencies: Frequencies) -> Iterator[None]:
    """Let rotary modules use other frequencies in a with block."""
    names = ("inv_freq", "attention_scaling", "rope_type")
    before = [{n: getattr(module, n) for n in names if hasattr(module, n)} for module in modules]
    inv_freq = frequencies.inv_freq
    try:
        for module in modules:
            module.inv_freq = inv_freq.to(module.inv_freq.device, module.inv_freq.dtype)
            module.attention_scaling = float(frequencies.attention_scale)
            if hasattr(module, "rope_type"):  # else "dynamic" computes them again
                module.rope_type = "default"
        yield
    finally:
        for module, values in zip(modules, before, strict=True):
            for name, value in values.items():
                setattr(module, name, value)
