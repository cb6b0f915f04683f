"""A cache of transformers whose keys and values are reserved at once for the whole text.

Its own cache joins the keys of every chunk to those before, which copies all of them each time and
leaves the heap in pieces. Layers that keep a window of keys stay as they are.
"""

from typing import Any

__all__ = ["make_cache"]


def make_cache(model: Any, length: int) -> Any | None:
    """An empty cache for ``length`` tokens; None if the model has no config of transformers."""
    config = getattr(model, "config", None)
    if config is None:
        return None
    from transformers.cache_utils import DynamicCache, DynamicLayer

    class ReservedLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values [B, H, S, D] in the first S rows of a tensor of ``length`` rows."""

        def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
            super().lazy_initialization(key_states, value_states)
            self.room = [
                each.new_empty(*each.shape[:-2], length, each.shape[-1])
                for each in (key_states, value_states)
            ]

        def update(self, key_states: Any, value_states: Any, *args: Any, **more: Any) -> Any:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            start = self.get_seq_length()
            end = start + key_states.shape[-2]
            for room, new in zip(self.room, (key_states, value_states), strict=True):
                room[..., start:end, :] = new
            self.keys, self.values = (room[..., :end, :] for room in self.room)
            return self.keys, self.values

    cache = DynamicCache(config=config)
    if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.layers = [ReservedLayer() for _ in cache.layers]
    return cache
