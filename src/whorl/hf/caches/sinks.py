"""SinkCache: streams without end, at constant memory and time per token.

Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
https://arxiv.org/abs/2309.17453.
"""

from whorl.attention.cache.checks import CacheConfig

from .unrotated import UnrotatedCache

__all__ = ["SinkCache"]


class SinkCache(UnrotatedCache):
    """The first ``sinks`` tokens of each row and the last ``window``, the newest one included.

    Positions are counted inside the cache, so that a model never meets a distance longer than
    ``sinks + window`` (a quarter of the window longer while a prompt is fed), however long the text
    is. For models installed with ``whorl.hf.install(model, keys="unrotated")``:

        cache = whorl.hf.SinkCache(sinks=4, window=1024)
        model.generate(**inputs, past_key_values=cache, max_new_tokens=100_000)

    Layers with a window of their own that is not longer than this one stay as they are.
    """

    def __init__(self, *, sinks: int = 4, window: int = 1024) -> None:
        self._start(CacheConfig(window, sinks, "in_cache"))
