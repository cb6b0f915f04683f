"""From what the caller has to a patient: load the config, read it, look for stored frequencies."""

import os
from pathlib import Path
from typing import Any

from whorl._support.words import quote
from whorl.configs import ConfigError, ModelPositions, load, presets, read_config
from whorl.configs.model import Parity
from whorl.configs.source import Document

from .checkpoint import Weights, config_beside, open_weights, refuse_pickle
from .patient import Patient

__all__ = ["admit"]


def admit(
    x: Any, length: int | None, weights: Weights | None = None
) -> tuple[Patient, Path | None]:
    """The patient, and the file that its config came from; ``weights``: where they are known."""
    if weights is not None:
        return _read(x, length, weights)
    if isinstance(x, str) and not x:
        raise ConfigError("doctor: the name of the model is empty; pass a path or a preset.")
    if isinstance(x, (str, Path)):
        refuse_pickle(Path(x))
    weights, x = Weights(), presets.resolve(x, "doctor")
    if isinstance(x, (str, Path)):
        path = Path(x)
        if path.suffix == ".safetensors":
            weights, x = open_weights(path), config_beside(path)
        elif os.path.isdir(path):  # unlike Path.is_dir, for names of any length
            weights = open_weights(path)
    if x is None:
        return Patient(None, {}, length=length, weights=weights), None
    return _read(x, length, weights)


def _read(x: Any, length: int | None, weights: Weights) -> tuple[Patient, Path | None]:
    document = load(x)
    reading, refusal = _reading(document, None)
    faithful, _ = _reading(document, "transformers")
    patient = Patient(
        document.kind,
        document.data,
        reading,
        faithful,
        refusal,
        length,
        weights,
    )
    return patient, document.path


def _reading(document: Document, parity: Parity | None) -> tuple[ModelPositions | None, str | None]:
    """What the config says, or why that cannot be read."""
    try:
        return read_config(document, parity=parity), None
    except ConfigError as error:
        return None, str(error)
    except Exception as error:  # a mistake of whorl, which must not cost the other findings
        name = type(error).__name__
        return None, f"whorl failed to read it ({name}: {quote(str(error))}); please report that."
