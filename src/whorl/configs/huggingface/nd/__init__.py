"""Families that rotate by several coordinates, not by one position.

    mrope    text backbones, by time, row and column: MRoPE
    vision   vision encoders, by row and column of a patch, some by time too: AxialRoPE
    others   normalised, learned and atomic coordinates: AxialRoPE, or refused

A text backbone is read like other text models; ``add_axes`` then says which pair rotates by which
axis. Vision encoders and others share no parameters with text models and are read by ``read``.
"""

from whorl.configs._values import Keys
from whorl.configs.model import LayerGroup

from .mrope import MROPE, add_axes
from .others import OTHERS
from .vision import VISION_ENCODERS, read_vision_encoder

__all__ = ["BESIDE", "FAMILIES", "MROPE", "add_axes", "read"]

#: Model types that ``read`` reads.
FAMILIES: frozenset[str] = frozenset({*VISION_ENCODERS, *OTHERS})

#: Families that rotate something besides text, and a name for that part.
BESIDE: dict[str, str] = {"musicflamingo": "audio_time"}


def read(keys: Keys, model_type: str) -> tuple[LayerGroup, ...]:
    """The layers of one of ``FAMILIES``; ``keys`` include the defaults of its class."""
    if model_type in VISION_ENCODERS:
        return read_vision_encoder(keys, VISION_ENCODERS[model_type])
    return OTHERS[model_type](keys)
