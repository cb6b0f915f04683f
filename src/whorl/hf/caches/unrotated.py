"""A cache of transformers whose layers are whorl's ``KVCache``.

transformers adds new keys and values to a cache first and computes attention afterwards. Here
``update`` only hands them on, marked with their layer, and whorl's attention adds them: it has the
queries and the encoding too, so that the cache decides how each key is rotated.

    model  ->  cache.update(k, v, layer)  ->  PendingKeys  ->  attend_tokens  ->  KVCache

Any other attention that is given ``PendingKeys`` fails with the reason.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from whorl.attention import KVCache, attention
from whorl.attention.cache.checks import CacheConfig
from whorl.encodings import Encoding
from whorl.hf.positions import find_next_positions

__all__ = ["PendingKeys", "UnrotatedCache", "UnrotatedLayer"]

#: New tokens that a full window takes in together, unless it is small.
_BLOCK = 64


class PendingKeys(Tensor):
    """New keys on their way from a cache to whorl's attention, which alone can use them.

    tokens: the keys. layer: the layer of the cache that takes them in.
    """

    tokens: Tensor
    layer: "UnrotatedLayer"

    @classmethod
    def create(cls, tokens: Tensor, layer: "UnrotatedLayer") -> "PendingKeys":
        """Mark keys [B, G, T, D] as new ones of a layer."""
        found: PendingKeys = tokens.detach().as_subclass(cls)
        found.tokens, found.layer = tokens, layer
        return found

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        cls.refuse()

    @staticmethod
    def refuse() -> NoReturn:
        """Say what must be done before this cache can be used."""
        raise ValueError(
            "whorl.hf: this cache holds unrotated keys, which the model must leave to whorl's"
            " attention; call whorl.hf.install(model, keys='unrotated') first, or, for models with"
            " a bias in place of a rotation, whorl.hf.install(model)."
        )


class UnrotatedLayer(CacheLayerMixin):
    """One layer: a ``KVCache`` that is made when the first tokens come, with their encoding."""

    supports_early_init = False

    def __init__(self, config: CacheConfig) -> None:
        super().__init__()
        self.config = config
        self.is_croppable = config.window is None
        self.cache: KVCache | None = None
        self.seen = 0  # tokens that came, padding included
        self.expected: list[int] = []  # the next position of each row, as the model counts; or none

    def __repr__(self) -> str:
        return f"UnrotatedLayer({self.cache!r})"

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: ``attend`` makes the memory."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """New keys and values for whorl's attention, which adds them to the cache."""
        return PendingKeys.create(key_states, self), value_states

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        encoding: Encoding,
        mask: Tensor | None,
        *,
        window: int | None,
        positions: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Add new tokens and return attention over all that are held: [B, H, T, D].

        mask: as the mask function makes it. window: of the layer itself, None for no limit.
        positions: [B, T] or [1, T], as the model counts; the cache has its own.
        options: of ``whorl.attention``.
        """
        T = q.shape[2]
        padding = _read_padding(mask, q.shape[0], T, window)
        if self.cache is not None and not _are_alike(self.cache.encoding, encoding):
            raise ValueError(
                "whorl.hf: a cache must stay with the model that filled it, installed as it was;"
                f" this one has keys for {self.cache.encoding}, and the layer {encoding}. Call"
                " reset() before, or make a new cache."
            )
        rows = self.expected if len(self.expected) == q.shape[0] else [-1] * q.shape[0]
        expected = find_next_positions(rows, positions, padding, self.seen)
        if self.cache is None:
            self.cache = KVCache(encoding, **_limit_window(self.config, window))
            self.is_initialized = True
        outs = [
            attention(
                q[:, :, part],
                k[:, :, part],
                v[:, :, part],
                causal=True,
                cache=self.cache,
                mask=None if padding is None else padding[:, part],
                **options,
            )
            for part in _split_tokens(self.cache, T)
        ]
        self.seen, self.expected = self.seen + T, expected
        return outs[0] if len(outs) == 1 else torch.cat(outs, 2)

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Masks are of the new tokens only: the cache knows which of the others are visible."""
        return query_length, self.seen

    def reset(self) -> None:
        """Forget all tokens."""
        self.seen, self.cache, self.expected = 0, None, []

    def crop(self, tokens_to_remove: int) -> None:
        """Take the last ``-tokens_to_remove`` tokens back."""
        if tokens_to_remove > 0:
            raise ValueError(
                "crop: tokens_to_remove must be 0 or negative, as for other caches of transformers;"
                f" got {tokens_to_remove}."
            )
        if tokens_to_remove and self.cache is not None:
            try:
                self.cache.crop(tokens_to_remove)
            except ValueError as error:
                raise ValueError(
                    "crop: tokens_to_remove must be no more than the last call added, because the"
                    f" window has dropped tokens before them; got {tokens_to_remove}. Generation"
                    " that takes tokens back (assistant_model, prompt_lookup_num_tokens) needs a"
                    " window as long as the text, or whorl.hf.UnrotatedCache()."
                ) from error
            self.seen += tokens_to_remove
            self.expected = [max(n + tokens_to_remove, -1) for n in self.expected]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row n becomes what row ``beam_idx[n]`` was."""
        if self.cache is not None and self.seen:
            self._reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.cache is not None and self.seen:
            rows = torch.arange(len(self.cache.lengths))
            self._reorder(rows.repeat_interleave(repeats))

    def _reorder(self, rows: Tensor) -> None:
        assert self.cache is not None
        self.cache.reorder(rows)
        self.expected = [self.expected[row] for row in rows.tolist()] if self.expected else []


class UnrotatedCache(Cache):
    """All tokens of a text, with frequencies that follow its length row by row.

    For models whose scaling depends on the length (DynamicNTK, LongRoPE), installed with
    ``whorl.hf.install(model, keys="unrotated")``.

    Args:
        frequencies: "exact" rotates all keys at every step with the frequencies of the present
            length; "stepped" rotates them again when the length, rounded up to one of ``steps``
            for each doubling, has changed.
    """

    def __init__(
        self, *, frequencies: Literal["exact", "stepped"] = "exact", steps: int = 64
    ) -> None:
        self._start(CacheConfig(frequencies=frequencies, steps=steps))

    def _start(self, config: CacheConfig) -> None:
        self.config = config
        super().__init__(layer_class_to_replicate=partial(UnrotatedLayer, config))

    def __repr__(self) -> str:
        shown = {n: v for n, v in self.config.changed().items() if n != "placement"}
        options = [f"{name}={value!r}" for name, value in shown.items()]
        return f"{type(self).__name__}({', '.join(options)})"

    @property
    def memory(self) -> int:
        """Bytes allocated by all layers."""
        return sum(0 if layer.cache is None else layer.cache.memory for layer in self.layers)


def _are_alike(one: Encoding | None, other: Encoding) -> bool:
    """Whether keys of one encoding are those of the other: itself, or one with equal numbers.

    A cache that was copied or pickled has a copy of its encoding.
    """
    if one is other or one is None:
        return one is other
    weights, others = one.state_dict(), other.state_dict()
    return (
        type(one) is type(other)
        and one.config == other.config
        and weights.keys() == others.keys()
        and all(torch.equal(weight, others[name]) for name, weight in weights.items())
    )


def _limit_window(config: CacheConfig, window: int | None) -> dict[str, Any]:
    """The options of a ``KVCache`` in a layer that has a window of its own, or None.

    A window no longer than that of the cache is the layer's own: it is as it was, without sinks.
    """
    options = config.to_dict()
    if window is not None and (config.window is None or window <= config.window):
        options |= {"window": window, "sinks": 0}
    return options


def _split_tokens(cache: KVCache, count: int) -> Iterator[slice]:
    """Parts of new tokens: what fits without dropping a token, then a few at a time.

    The sinks of a part lie before the oldest key that any of its queries sees, so that in one part
    a long prompt would see them at distances that the window is there to avoid.
    """
    if cache.window is None:
        yield slice(0, count)
        return
    start, size = 0, max(1, cache.sinks + cache.window - cache.length)
    while start < count:
        yield slice(start, start + size)
        start, size = start + size, max(1, min(_BLOCK, cache.window // 4))


def _read_padding(mask: Tensor | None, batch: int, count: int, window: int | None) -> Tensor | None:
    """Mask [B, T] of new tokens that are no padding, from any mask of these tokens."""
    if mask is None:
        return None
    if mask.dim() == 2 and mask.shape[1] == count:
        return mask.expand(batch, -1)
    if mask.dim() == 4 and mask.shape[1:] == (1, count, count) and mask.dtype == torch.bool:
        padding = mask[:, 0].diagonal(dim1=1, dim2=2)  # a token that is no padding sees itself
        order = torch.arange(count, device=mask.device)
        distance = order[:, None] - order
        visible = (distance >= 0) & (distance < (window or count))
        expected = visible & padding[:, None]
        if bool((mask[:, 0] == expected)[padding].all()):
            return padding
    raise ValueError(
        "whorl.hf: attention_mask must say which tokens are padding, [B, tokens], because this"
        f" cache decides which keys a token sees; got a mask {list(mask.shape)} of another kind."
    )
