"""Attention that several processes share: its heads, or its sequence.

    HeadParallel        tensor parallel: each process has some of the heads of a layer
    sharded_attention   context parallel: each process has some of the tokens of a sequence

Both run on any process group of torch.distributed, gloo on CPUs among them. docs/parallel.md says
how encodings work there, under FSDP2, and in the stages of a pipeline. Names are loaded when they
are first used, because torch's DTensor loads sympy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .heads import HeadParallel, ShardedHeads
    from .sequences import sharded_attention

__all__ = ["HeadParallel", "ShardedHeads", "sharded_attention"]

_FILES = {"HeadParallel": "heads", "ShardedHeads": "heads", "sharded_attention": "sequences"}


if not TYPE_CHECKING:  # to a type checker any name would exist

    def __getattr__(name: str) -> object:
        if name in _FILES:
            return getattr(import_module(f".{_FILES[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
