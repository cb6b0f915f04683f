"""The contestants of the rotation benchmark."""

from whorl._support.words import quote

from .base import CallMode, Peer, PeerCall
from .mlx_fast import MLX
from .ort import OnnxRuntime
from .torch_peers import (
    HuggingFace,
    HuggingFaceCompiled,
    Meta,
    RotaryEmbeddingTorch,
    Torchtune,
)
from .whorl import Copy, Whorl

__all__ = ["ALL", "COPY", "NAMES", "OURS", "TITLES", "CallMode", "Peer", "PeerCall", "select_peers"]

COPY, OURS = Copy.name, Whorl.name

ALL: tuple[Peer, ...] = (
    HuggingFace(),
    HuggingFaceCompiled(),
    Meta(),
    RotaryEmbeddingTorch(),
    OnnxRuntime(),
    MLX(),
    Torchtune(),
)
NAMES = tuple(peer.name for peer in ALL)
TITLES = {peer.name: peer.title for peer in (Copy(), Whorl(), *ALL)}


def select_peers(names: tuple[str, ...] | None) -> tuple[Peer, ...]:
    """``copy_``, whorl and the peers with these names; None means all peers."""
    for name in names or ():
        if name not in NAMES:
            raise ValueError(f"peers: {quote(name)} is unknown; known: {', '.join(NAMES)}.")
    peers = ALL if names is None else tuple(peer for peer in ALL if peer.name in names)
    return (Copy(), Whorl(), *peers)
