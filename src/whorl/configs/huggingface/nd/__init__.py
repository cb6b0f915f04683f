"""Families that turn by several coordinates at once, not by one position.

    mrope    text backbones: time, row and column; MRoPE
    towers   vision towers, row and column of a patch (or time too); AxialRoPE
    others   all that is neither: normalised, learned and atomic coordinates; AxialRoPE, or refused

A text backbone is read as any other, and ``with_axes`` then says which pair turns by which axis.
The others have no parameters in common with text and are read by ``read``.
"""

from whorl.configs._values import Keys
from whorl.configs.model import LayerGroup

from .mrope import MROPE, add_axes
from .others import OTHERS
from .vision import VISION_ENCODERS, read_vision_encoder

__all__ = ["BESIDE", "FAMILIES", "MROPE", "add_axes", "read"]

#: Model types that ``read`` reads.
FAMILIES: frozenset[str] = frozenset({*VISION_ENCODERS, *OTHERS})

#: Those that rotate something beside their text, and the name of that part.
BESIDE: dict[str, str] = {"musicflamingo": "audio_time"}


def read(keys: Keys, model_type: str) -> tuple[LayerGroup, ...]:
    """The layers of one of ``FAMILIES``; ``keys`` hold its class defaults where it left any out."""
    if model_type in VISION_ENCODERS:
        return read_vision_encoder(keys, VISION_ENCODERS[model_type])
    return OTHERS[model_type](keys)
