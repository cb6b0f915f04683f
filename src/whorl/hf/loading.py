"""Install whorl in every model that is loaded, from ``enable`` until ``disable``.

All loaders of transformers call ``PreTrainedModel.from_pretrained``. It is replaced meanwhile by a
function that installs whorl in what it has loaded. The replacements of classes that transformers
offers (``register_patch_mapping``) are not used: LOG.md says why.
"""

import functools
import warnings
from types import TracebackType
from typing import Any

from transformers import PreTrainedModel

from whorl.encodings import Encoding
from whorl.scaling import Scaling
from whorl.types import Impl, Precision

from .installation import install
from .options import InstallOptions, KeyForm

__all__ = ["Loading", "disable", "enable"]


class Loading:
    """What ``enable`` returns: a context manager that calls ``disable`` at its end."""

    def __init__(self, options: InstallOptions) -> None:
        self.options = options
        self.stock: Any = PreTrainedModel.__dict__["from_pretrained"]

    def __enter__(self) -> "Loading":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _loading is self:
            disable()


_loading: Loading | None = None


def enable(
    encoding: Encoding | None = None,
    *,
    scaling: Scaling | None = None,
    precision: Precision = "float32",
    impl: Impl = "auto",
    keys: KeyForm = "rotated",
) -> Loading:
    """Install whorl in every model that ``from_pretrained`` loads from now on.

    The options are those of ``whorl.hf.install``. A model that ``install`` refuses is loaded as
    without whorl, with a warning that says why. Models loaded before or built from a config are not
    changed; those loaded meanwhile stay installed after ``disable``.

        with whorl.hf.enable():
            model = AutoModelForCausalLM.from_pretrained(...)
    """
    global _loading
    if _loading is not None:
        raise ValueError(
            "whorl.hf.enable: whorl is enabled already. Call whorl.hf.disable() before enabling it"
            " with other options."
        )
    options = InstallOptions(encoding, scaling, precision, impl, keys)
    _loading = Loading(options)
    load = _loading.stock.__func__

    @functools.wraps(load)
    def load_and_install(cls: type[PreTrainedModel], *args: Any, **kwargs: Any) -> Any:
        found = load(cls, *args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found  # with output_loading_info=True
        try:
            install(model, **vars(options))
        except ValueError as error:
            warnings.warn(f"{error} The model is loaded without whorl.", stacklevel=2)
        return found

    PreTrainedModel.from_pretrained = classmethod(load_and_install)
    return _loading


def disable() -> None:
    """Undo ``enable``: models that are loaded from now on are as transformers loads them."""
    global _loading
    if _loading is None:
        raise ValueError("whorl.hf.disable: whorl must be enabled; call whorl.hf.enable() before.")
    PreTrainedModel.from_pretrained = _loading.stock
    _loading = None
