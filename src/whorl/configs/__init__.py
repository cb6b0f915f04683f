"""Configs of models: what they say about positions, in the formats of other software.

    names               a path, a preset or a model in the local cache of Hugging Face
    source              a path, a folder, a dict or an object -> keys, values and the dialect
    huggingface         configs of transformers 4 and 5, with the special rules of each family
    gguf                files of llama.cpp
    meta, mistral       params.json of the releases of Meta and Mistral
    mlx                 configs of mlx-lm
    model               the result: which layers rotate by which frequencies
    _rope_parameters    the reverse: a scaling as rope_parameters of transformers
    inspection          what a config means, and how other frameworks read it
    diagnosis           mistakes in a config, and a corrected config

Start with ``read_config``; ``RoPE.from_config`` builds an encoding from the result.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whorl._support.words import quote

from . import gguf, huggingface, meta, mistral, mlx
from ._rope_parameters import RopeParameters, rope_parameters
from .model import (
    ConfigError,
    Kind,
    LayerGroup,
    ModelPositions,
    Note,
    Parity,
    Part,
    QueryScale,
    Rotation,
)
from .source import Document, load, parse

__all__ = [
    "ConfigError",
    "Document",
    "Kind",
    "LayerGroup",
    "ModelPositions",
    "Note",
    "Parity",
    "Part",
    "QueryScale",
    "RopeParameters",
    "Rotation",
    "load",
    "parse",
    "read_config",
    "rope_parameters",
]


def read_config(x: Any, *, parity: Parity | None = None) -> ModelPositions:
    """What a model does with positions, layer by layer.

    Args:
        x: a file, a folder, a dict, a config object of transformers (the only input that needs
            transformers), or a ``Document`` from ``load``. Files may be config.json of transformers
            or mlx-lm, params.json of Meta or Mistral, or GGUF. Where there is no such file: the
            name of a preset, or of a model in the local cache of Hugging Face.
        parity: "transformers" reads a config exactly as transformers does, with its mistakes; by
            default these are corrected.

    >>> import whorl
    >>> found = whorl.read_config({"model_type": "llama", "hidden_size": 64,
    ...                            "num_attention_heads": 4, "rope_theta": 500000.0})
    >>> found.build().config.base
    500000.0
    >>> whorl.read_config("Llama-3.1-8B").context
    131072
    """
    if parity not in (None, "transformers"):
        raise ConfigError(f"parity must be None or 'transformers'; got {quote(parity)}.")
    document = load(x)
    return _READERS[document.kind](document, parity)


_READERS: dict[Kind, Callable[[Document, Parity | None], ModelPositions]] = {
    "gguf": gguf.read,
    "meta": meta.read,
    "mistral": mistral.read,
    "mlx": mlx.read,
    "transformers": huggingface.read,
}

if not TYPE_CHECKING:  # with it, a type checker would accept any misspelt name

    def __getattr__(name: str) -> object:
        """The subpackages ``diagnosis`` and ``inspection``, imported at their first use."""
        if name not in ("diagnosis", "inspection"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
        return import_module(f"{__name__}.{name}")
