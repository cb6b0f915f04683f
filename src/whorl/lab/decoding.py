"""What a model remembers of the tokens that it has read, so that it can read on from there.

Each layer holds its earlier keys and values in a ``KVCache``, or their sums in linear attention.
Four ways of remembering:

    dense        all keys; positions grow past the trained length
    window       the latest keys; older ones are dropped in every layer
    sinks        the first few keys and the latest ones, with positions counted among them: Xiao et
                 al. 2023, Efficient Streaming Language Models, https://arxiv.org/abs/2309.17453
    recomputed   nothing: for every token the model reads the window before it afresh

``window`` is the number of keys that a token sees in all: itself, and the sinks if there are any.
So the three last ways see equally many keys. (In ``KVCache``, sinks come in addition.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from torch import Tensor

import whorl
from whorl._support.words import quote, suggest_name
from whorl.attention.linear.attention import LinearState
from whorl.attention.linear.features import FeatureMap
from whorl.encodings import Encoding, Learned
from whorl.encodings.rotary.rotary import Rotary

from .checkpoint import CheckpointInfo
from .model import Model, build_feature_map
from .runs import Run

__all__ = [
    "CHUNK",
    "CacheKind",
    "CachePolicy",
    "DecodingState",
    "LayerMemory",
    "check_policy",
    "follows_length",
    "load_decoder",
]

CacheKind = Literal["dense", "window", "sinks", "recomputed"]
_KINDS = get_args(CacheKind)
#: Tokens that are read in one call, of each row.
CHUNK = 128
_NOT_AN_ENCODER = (
    "the model must be a decoder, because an encoder reads all tokens of a text at once and"
    " predicts hidden ones, not the next; got kind 'encoder'."
)


@dataclass(frozen=True)
class CachePolicy:
    """Which earlier tokens a model remembers; the top of this file says what each kind does.

    >>> CachePolicy("sinks", window=128).describe()
    '4 sinks + 124 latest'
    """

    kind: CacheKind
    window: int | None = None
    sinks: int = 4

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(
                f"cache: {quote(self.kind)} is unknown{suggest_name(self.kind, _KINDS)} Known:"
                f" {', '.join(_KINDS)}."
            )
        if self.kind == "dense":
            if self.window is not None:
                raise ValueError(
                    f"window must be None with the cache 'dense', which drops nothing; got"
                    f" {quote(self.window)}. Leave it out, or choose another cache."
                )
            return
        if type(self.window) is not int or self.window < 1:
            raise ValueError(
                f"window must be a positive int with the cache {quote(self.kind)}, the number of"
                f" keys that a token sees; got {quote(self.window)}."
            )
        if self.kind == "sinks" and (
            type(self.sinks) is not int or not 1 <= self.sinks < self.window
        ):
            raise ValueError(
                f"sinks must be an int from 1 to {self.window - 1}, fewer than the window, which"
                f" they are a part of; got {quote(self.sinks)}."
            )

    def describe(self) -> str:
        """The policy in a few words, for tables."""
        match self.kind:
            case "dense":
                return "all keys"
            case "window":
                return f"{self.window} latest"
            case "sinks":
                return f"{self.sinks} sinks + {(self.window or 0) - self.sinks} latest"
        return f"{self.window} recomputed"


class LayerMemory(Protocol):
    """Earlier tokens of one layer."""

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None,
        query_weight: Tensor | None = None,
    ) -> Tensor:
        """Attention of new tokens to earlier ones and to themselves, which are then remembered."""


class DecodingState:
    """Earlier tokens of every layer of a model, and their number, which ``advance`` changes.

    >>> import torch
    >>> from whorl.lab import ModelConfig
    >>> model = Model(ModelConfig(layers=2), vocab=256, longest=64)
    >>> text = torch.arange(20).unsqueeze(0)
    >>> with torch.no_grad():
    ...     whole, state = model(text), DecodingState(model, CachePolicy("dense"))
    ...     parts = [model(part, state=state) for part in text.split(7, 1)]
    >>> torch.allclose(torch.cat(parts, 1), whole, atol=1e-5), state.length
    (True, 20)
    """

    def __init__(self, model: Model, policy: CachePolicy) -> None:
        check_policy(model, policy)
        self.policy, self.length = policy, 0
        encodings = [model.get_layer_encoding(n) for n in range(len(model.blocks))]
        self.layers: list[LayerMemory] = [
            _LinearMemory(encoding, build_feature_map(model.config, n))
            if model.config.attention == "linear"
            else _SoftmaxMemory(_build_cache(encoding, policy))
            for n, encoding in enumerate(encodings)
        ]

    def advance(self, count: int) -> int:
        """Count ``count`` tokens that are about to be read; returns the position of the first."""
        first, self.length = self.length, self.length + count
        return first

    def split(self, tokens: Tensor, most: int = CHUNK) -> Iterator[Tensor]:
        """The next tokens [B, T] in parts of at most ``most``, each to be read in one call.

        The result is that of reading them one by one, unless frequencies follow the length. With
        sinks that follow the window, only tokens before the first that is dropped can be read
        together.
        """
        done, chunk = 0, most
        while done < tokens.shape[1]:
            if self.policy.kind == "sinks":
                free = (self.policy.window or 0) - self.length
                chunk = max(1, min(most, free))
            part = tokens[:, done : done + chunk]
            done += part.shape[1]
            yield part


class _SoftmaxMemory:
    """Keys and values of a layer."""

    def __init__(self, cache: whorl.KVCache) -> None:
        self._cache = cache

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None,
        query_weight: Tensor | None = None,
    ) -> Tensor:
        return whorl.attention(
            q,
            k,
            v,
            causal=True,
            positions=positions,
            cache=self._cache,
            query_weight=query_weight,
        )


class _LinearMemory:
    """Sums over the keys and values of a layer, in linear attention."""

    def __init__(self, encoding: Encoding, feature_map: FeatureMap) -> None:
        self._encoding, self._feature_map = encoding, feature_map
        self._state: LinearState | None = None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None,
        query_weight: Tensor | None = None,
    ) -> Tensor:
        assert query_weight is None  # a config with qk_norm = "after" refuses linear attention
        mixed, self._state = whorl.linear_attention(
            q,
            k,
            v,
            self._encoding,
            feature_map=self._feature_map,
            causal=True,
            positions=positions,
            state=self._state,
            return_state=True,
        )
        return mixed


def _build_cache(encoding: Encoding, policy: CachePolicy) -> whorl.KVCache:
    if policy.kind == "dense" or policy.window is None:
        return whorl.KVCache(encoding)
    if policy.kind == "window":
        return whorl.KVCache(encoding, window=policy.window)
    latest = policy.window - policy.sinks
    return whorl.KVCache(encoding, window=latest, sinks=policy.sinks, placement="in_cache")


def load_decoder(run: Run) -> tuple[Model, CheckpointInfo]:
    """The model of a run, which must be a decoder, and what its checkpoint says."""
    model, info = run.load_checkpoint()
    if not isinstance(model, Model):  # a RoFormer
        raise ValueError(_NOT_AN_ENCODER)
    return model, info


def check_policy(model: Model, policy: CachePolicy | None, length: int | None = None) -> None:
    """Raise ValueError unless the model can read ``length`` tokens with this policy.

    policy: None for reading all of them afresh for every token.
    """
    config, encoding = model.config, model.encoding
    if config.kind == "encoder":
        raise ValueError(_NOT_AN_ENCODER)
    kind = None if policy is None else policy.kind
    _check_table(encoding, kind, length if policy is None or kind != "recomputed" else 0)
    if kind == "sinks" and encoding.position_axes > 1:
        raise ValueError(
            f"cache must not be 'sinks' for {quote(encoding)}, because positions on"
            f" {encoding.position_axes} axes cannot be counted in the cache. Choose 'window'."
        )
    if config.attention != "linear" or kind in (None, "recomputed"):
        return
    if kind != "dense":
        raise ValueError(
            f"cache must be 'dense' or 'recomputed' with linear attention, because it remembers"
            f" sums over all keys, of which none can be dropped; got {quote(kind)}."
        )
    if follows_length(encoding):
        raise ValueError(
            f"cache must be None or 'recomputed' with linear attention and {quote(encoding)}, whose"
            " frequencies change with the length, because keys in sums cannot be rotated again;"
            f" got {quote(kind)}."
        )


def follows_length(encoding: Encoding) -> bool:
    """Whether the frequencies of the rotation change with the length of the text."""
    rotation = encoding.rotating_part
    scaling = rotation.config.scaling if isinstance(rotation, Rotary) else None
    return scaling is not None and bool(scaling.follows_length)


def _check_table(encoding: Encoding, kind: str | None, length: int | None) -> None:
    """Refuse more tokens than a learned table has rows."""
    for part in encoding.parts:
        if isinstance(part, Learned) and length is not None and length > part.config.max_length:
            name = "no cache" if kind is None else f"the cache {quote(kind)}"
            raise ValueError(
                f"the text must have at most {part.config.max_length} tokens with {name}, because"
                f" {quote(part)} has no positions after them; got {length}. Choose the cache"
                " 'recomputed', whose positions stay inside the window, or fewer tokens."
            )
