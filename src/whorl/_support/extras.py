"""Import an optional dependency, or say which pip line brings it."""

import importlib
from typing import Any

__all__ = ["import_extra"]


def import_extra(module: str, *, by: str, extra: str) -> Any:
    """The imported ``module``; without it an error that names who needs it and what to install.

    >>> import_extra("json", by="whorl.plots", extra="plots").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # it is installed; something inside it is not
            raise
        message = f"{by} needs {module}: pip install 'whorl[{extra}]'."
        raise ModuleNotFoundError(message, name=module) from None
