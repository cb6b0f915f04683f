"""Reading what other software writes down about positions: configs of models.

    source        a path, a folder, a dict or an object -> keys and values, and their dialect
    huggingface   the configs of transformers, old and new, with the quirks of each family
    gguf          the files of llama.cpp
    meta, mistral the params.json of their own releases
    mlx           the configs of mlx-lm
    model         the answer: which layers rotate how
    _written      the way back: a scaling in the words of transformers
    inspection    what a config means, and how other frameworks read it
    diagnosis     what is wrong with a config, and a corrected one

``read_config`` is the way in; ``RoPE.from_config`` builds one encoding of it.
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
        x: a file, a folder, a dict, or a config object of transformers; transformers itself is
            not needed for the others. Files: config.json of transformers or mlx-lm, params.json
            of Meta or Mistral, GGUF. Or what ``load`` made of one of these.
        parity: "transformers" repeats its mistakes where it has some; by default they are put
            right.

    >>> import whorl
    >>> found = whorl.read_config({"model_type": "llama", "hidden_size": 64,
    ...                            "num_attention_heads": 4, "rope_theta": 500000.0})
    >>> found.build().config.base
    500000.0
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

if not TYPE_CHECKING:  # a type checker that saw it would let any misspelt name pass

    def __getattr__(name: str) -> object:
        """The two rooms above this one, loaded when they are first asked for."""
        if name not in ("diagnosis", "inspection"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
        return import_module(f"{__name__}.{name}")
