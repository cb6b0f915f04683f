"""Memory that an evaluation needs, compared with what the machine has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from whorl._support.memory import read_available

__all__ = ["check_memory", "count_cache_bytes", "explain_memory"]

_MB = 2**20


def count_cache_bytes(model: Any, length: int) -> int | None:
    """Bytes of the keys and values of ``length`` tokens in float32; None if it is not known."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        return None
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_attention_heads", None)
    if not heads or not getattr(text, "num_hidden_layers", None):
        return None
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    return int(2 * 4 * text.num_hidden_layers * key_heads * width * length)


def check_memory(model: Any, length: int) -> None:
    """Raise ValueError if the machine has too little memory for the keys and values of a text."""
    needed, free = count_cache_bytes(model, length), read_available()
    if needed is not None and free is not None and needed > free:
        raise ValueError(
            f"a text of {length:,} tokens needs {needed / _MB:,.0f} MB for keys and values, and"
            f" {free / _MB:,.0f} MB of memory are free; choose a shorter target."
        )


@contextmanager
def explain_memory(model: Any, row: str, length: int) -> Iterator[None]:
    """Let an allocation that fails in a with block say what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        failed = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not failed and "allocate memory" not in str(error):
            raise
        needed = count_cache_bytes(model, length)
        size = "" if needed is None else f", of which keys and values are {needed / _MB:,.0f} MB"
        raise ValueError(
            f"there is too little memory for {row} in texts of {length:,} tokens{size}. Free some,"
            " or choose a shorter target; what was measured is kept, and the same command goes on."
        ) from None
