"""Put whorl into a loaded transformers model, and take it out again.

A family says which modules of a model change and how (``families``); the changes are applied
together, or not at all. Parameters stay where they are, with their names.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.scaling import Scaling
from whorl.types import Impl, Precision

from .changes import Change, ConfigChange
from .families import find_family
from .interface import NAME
from .layouts import find_layout_problem
from .options import InstallOptions, KeyForm

__all__ = ["Installation", "install", "uninstall"]

_ATTRIBUTE = "whorl_installation"
#: Of models inside the installed one: the name of its class.
_PART = "whorl_part_of"
#: Layers whose weights ``install`` looks at; ``diagnose`` looks at all of them.
_JUDGED_LAYERS = 4


@dataclass(repr=False)
class Installation:
    """What ``install`` changed in a model; a context manager that takes it out at its end.

    family: how whorl calls this kind of model. changes: the modules and configs that are different.
    """

    model: PreTrainedModel
    family: str
    changes: list[Change]

    def __repr__(self) -> str:
        name = type(self.model).__name__
        count = sum(not isinstance(change, ConfigChange) for change in self.changes)
        return f"Installation({name}, family={self.family!r}, changes={count})"

    def __enter__(self) -> "Installation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if getattr(self.model, _ATTRIBUTE, None) is self:
            uninstall(self.model)

    def _apply(self) -> None:
        """Make every change, or none."""
        done = []
        try:
            for change in self.changes:
                change.apply()
                done.append(change)
        except BaseException:
            for change in reversed(done):
                change.revert()
            raise
        object.__setattr__(self.model, _ATTRIBUTE, self)
        for part in _list_parts(self.model):
            object.__setattr__(part, _PART, type(self.model).__name__)

    def _revert(self) -> None:
        for change in reversed(self.changes):
            change.revert()
        object.__delattr__(self.model, _ATTRIBUTE)
        for part in _list_parts(self.model):
            vars(part).pop(_PART, None)


def install(
    model: PreTrainedModel,
    encoding: Encoding | None = None,
    *,
    scaling: Scaling | None = None,
    precision: Precision = "float32",
    impl: Impl = "auto",
    keys: KeyForm = "rotated",
) -> Installation:
    """Let a loaded transformers model use whorl for positions and attention.

    Outputs stay the same within rounding, parameters and their names too. Models with a bias
    (BLOOM, MPT, T5) need less time and memory for long inputs, because no T x S matrix is built.

    Args:
        encoding: another encoding instead of the model's own, such as ``whorl.ALiBi(32)`` in a
            Llama. Its parameters, if any, do not become parameters of the model.
        scaling: for rotary models, another scaling instead of that in the config.
        precision: of the angles in rotary models. "float32" keeps the numbers of transformers,
            "float64" computes them exactly.
        impl: how whorl computes the angles of rotary models: "native" (C) or "reference" (PyTorch).
            "auto" leaves them to transformers where nothing else asks for other angles.
        keys: what rotary models cache. "unrotated" keys are rotated by attention at every step, for
            ``SinkCache``, ``UnrotatedCache`` and ``splice``; another encoding implies it.

    Returns what was changed. It can be used as a context manager, which uninstalls at its end:

        with whorl.hf.install(model):
            model.generate(...)

    Raises:
        ValueError: the model cannot be changed, with the reason; it is left as it was.
    """
    _check_model(model)
    options = InstallOptions(encoding, scaling, precision, impl, keys)
    family = find_family(model)
    _check_heads(model, encoding)
    with torch.random.fork_rng(devices=[]):  # encodings that are made here draw their first weights
        changes = family.plan(model, options)
    if not changes and family.changes_modules:
        raise ValueError(
            f"whorl.hf.install: {type(model).__name__} has no attention module of transformers'"
            f" {family.name}, which it should have; they were replaced or wrapped. Install first."
        )
    configs = [ConfigChange(model, config, NAME) for config in _list_configs(model)]
    for change in configs:
        change.replace_parts(configs)
    installation = Installation(model, family.name, [*changes, *configs])
    installation._apply()
    if encoding is None:
        _warn_of_layout(model)
    return installation


def uninstall(model: PreTrainedModel) -> None:
    """Undo ``install``: the model is exactly as before."""
    installation = getattr(model, _ATTRIBUTE, None)
    if installation is None:
        raise ValueError(
            f"whorl.hf.uninstall: {type(model).__name__} must be a model that whorl.hf.install"
            " changed; this one was not changed, or is uninstalled already."
        )
    installation._revert()


def _check_model(model: object) -> None:
    """Refuse what cannot be changed safely."""
    if not isinstance(model, PreTrainedModel):
        kind = type(model).__name__ if isinstance(model, nn.Module) else quote(model)
        raise TypeError(
            "whorl.hf.install: model must be a model of transformers, such as"
            f" AutoModel.from_pretrained(...) gives; got {kind}.{_find_remedy(model)}"
        )
    _refuse_installed(model)
    if _has_quantised_weights(model):
        raise ValueError(
            f"whorl.hf.install: {type(model).__name__} has quantised weights, which whorl has not"
            " been tried with. Load the model without quantization_config."
        )
    if getattr(model.config, "output_attentions", False):
        raise ValueError(
            "whorl.hf.install: output_attentions must not be set in the config, because"
            " transformers allows that with its own attention only; pass output_attentions=True to"
            " the calls that need the weights."
        )
    for name, module in model.named_modules():
        if hasattr(module, "_hf_hook"):
            raise ValueError(
                f"whorl.hf.install: {name or type(model).__name__} is dispatched or offloaded by"
                " accelerate, which keeps its own copy of the forward function. Load the model"
                " without device_map."
            )
    devices = {str(p.device) for p in model.parameters()}
    if len(devices) > 1:
        raise ValueError(
            "whorl.hf.install: all parameters must be on one device; got"
            f" {', '.join(sorted(devices))}."
        )


def _refuse_installed(model: PreTrainedModel) -> None:
    """Refuse a model with whorl in it, in one of its parts, or in what it is a part of."""
    for name, module in model.named_modules():
        if getattr(module, _ATTRIBUTE, None) is not None:
            raise ValueError(
                f"whorl.hf.install: {type(model).__name__} has whorl installed already"
                f"{f', in {name}' if name else ''}. Call whorl.hf.uninstall on it first."
            )
    if hasattr(model, _PART):
        raise ValueError(
            f"whorl.hf.install: {type(model).__name__} is a part of {getattr(model, _PART)}, which"
            " has whorl installed already. Call whorl.hf.uninstall on that first."
        )


def _list_parts(model: PreTrainedModel) -> list[PreTrainedModel]:
    """The models inside a model, as a text part or the model without its head."""
    return [m for m in model.modules() if isinstance(m, PreTrainedModel) and m is not model]


def _find_remedy(model: object) -> str:
    """What to do with a module that wraps a model of transformers."""
    if hasattr(model, "get_base_model"):
        return " Install in model.get_base_model(), or before peft wraps the model."
    if hasattr(model, "_orig_mod"):
        return " Install before torch.compile, in the model itself."
    if isinstance(getattr(model, "module", None), PreTrainedModel):
        return " Install in model.module."
    return ""


def _check_heads(model: PreTrainedModel, encoding: Encoding | None) -> None:
    """Refuse an encoding for another number of heads, which would fail at the first input."""
    heads = model.config.get_text_config().num_attention_heads
    for part in () if encoding is None else encoding.parts:
        known = getattr(part.config, "num_heads", heads)
        if known != heads:
            raise ValueError(
                f"whorl.hf.install: encoding must have num_heads={heads}, as"
                f" {type(model).__name__} has; got {known} in {quote(part)}."
            )


def _warn_of_layout(model: PreTrainedModel) -> None:
    """Warn of weights that show another layout than the model rotates in.

    No reason to refuse: the evidence is statistical, and outputs are the same without whorl.
    """
    problem = find_layout_problem(model, _JUDGED_LAYERS)
    if problem is not None:
        warnings.warn(
            f"whorl.hf.install: {type(model).__name__}: {problem}, so that its outputs are probably"
            " nonsense, with whorl or without. Convert the weights (whorl convert FOLDER OUT), or"
            " correct the config; whorl detect FOLDER shows the evidence for each layer.",
            stacklevel=3,
        )


def _has_quantised_weights(model: PreTrainedModel) -> bool:
    """Whether weights were loaded in a quantised form; those of a GGUF file are converted."""
    quantizer = getattr(model, "hf_quantizer", None)
    method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", None)
    return quantizer is not None and getattr(method, "value", method) != "gguf"


def _list_configs(model: PreTrainedModel) -> Iterator[Any]:
    """The config of the model and of every model in it, each once."""
    seen: list[Any] = []
    for module in model.modules():
        config = getattr(module, "config", None)
        if isinstance(module, PreTrainedModel) and not any(config is other for other in seen):
            seen.append(config)
            yield config
