"""The model that the lab trains: a Transformer in one file, with any encoding.

    x = embedding(tokens)                       [B, T, E]   encoding.embed: sinusoidal, learned
    per layer:
      x += out(attention(q, k, v of norm(x)))               encoding in attention: all others;
                                                            q, k with norms of their own: qk_norm
      x += down(silu(gate) * up), gate, up of norm(x)       Shazeer 2020, arXiv:2002.05202
    logits = head(norm(x))                      [B, T, V]

RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467) comes before each part (Xiong et al. 2020,
arXiv:2002.04745); there are no biases. With RoPE this is the architecture of Llama, and
``export.py`` writes it as one. In a decoder a token attends to earlier tokens and itself, in an
encoder to all tokens.

One matrix computes q, k and v, which are parts of its result; so are gate and up.
"""

import hashlib
import math
from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from whorl._support.words import quote
from whorl.attention.linear.features import FeatureMap
from whorl.attention.qk_norm import HeadNorm, check_qk_norm, normalize_heads
from whorl.encodings import Composition, Encoding

from .config import ModelConfig, Sharing
from .encodings import EMBEDDING_STD, build_encoding

if TYPE_CHECKING:
    from .decoding import CacheKind, DecodingState, LayerMemory

__all__ = [
    "LanguageModel",
    "Model",
    "build_feature_map",
    "copy_for_layers",
    "derive_seed",
    "reset_encodings",
]

NORM_EPS = 1e-5


class LanguageModel(nn.Module):
    """What the trainer needs of a model that maps tokens [B, T] to logits [B, T, vocab]."""

    vocab: int

    def forward(self, tokens: Tensor, *, context_length: int | None = None) -> Tensor:
        """Logits [B, T, vocab] of tokens [B, T]; some scalings depend on context_length."""
        raise NotImplementedError

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats of targets [B, T]; targets of -1 do not count."""
        logits = self(tokens).flatten(0, 1).float()
        return F.cross_entropy(logits, targets.flatten(), ignore_index=-1)

    def reset_parameters(self, seed: int) -> None:
        """Set random weights that depend on the seed."""
        raise NotImplementedError

    def name_part(self, name: str) -> str:
        """Part of the model that a parameter belongs to: "attention", "mlp", "norms", ..."""
        raise NotImplementedError

    def is_layer_matrix(self, name: str) -> bool:
        """Whether a parameter of two axes is one that Muon trains: a matrix of the layers."""
        return self.name_part(name) in ("attention", "mlp")


class Model(LanguageModel):
    """A Transformer that maps tokens [B, T] to logits [B, T, vocab].

    Args:
        config: shape and encoding.
        vocab: number of tokens in the vocabulary.
        longest: longest sequence, which is the size of a learned table.

    >>> model = Model(ModelConfig(encoding="alibi", width=64, layers=2), vocab=256, longest=512)
    >>> model(torch.zeros(1, 10, dtype=torch.long)).shape
    torch.Size([1, 10, 256])
    """

    def __init__(self, config: ModelConfig, *, vocab: int, longest: int) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        encoding = build_encoding(config.encoding, config, longest)
        _check_encoding(config, encoding)
        self.embedding = nn.Embedding(vocab, config.width)
        self.encoding = encoding
        self.blocks = nn.ModuleList(TransformerLayer(config, n) for n in range(config.layers))
        self.layer_encodings = copy_for_layers(encoding, config.layers, config.encoding_per)
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, vocab, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        tokens: Tensor,
        *,
        context_length: int | None = None,
        state: "DecodingState | None" = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, vocab] of tokens [B, T]; some scalings depend on context_length.

        state: what the model remembers of earlier tokens, which these follow.
        positions: [T] or [B, T], for encodings of one position per token; None counts from 0.
        """
        axes, length = self.encoding.position_axes, tokens.shape[1]
        offset = 0 if state is None else state.advance(length)
        if axes > 1:  # in text, the position on every axis is the number of the token
            numbers = torch.arange(offset, offset + length, device=tokens.device)
            positions, offset = numbers.expand(axes, -1), 0
        x = self.encoding.embed(self.embedding(tokens), positions, offset=offset)  # [B, T, E]
        for n, block in enumerate(self.blocks):
            memory = None if state is None else state.layers[n]
            x = block(x, self.get_layer_encoding(n), positions, context_length, memory)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def get_layer_encoding(self, layer: int) -> Encoding:
        """The encoding that acts in the attention of a layer."""
        own = self.layer_encodings[layer - 1] if self.layer_encodings and layer else self.encoding
        assert isinstance(own, Encoding)
        return own

    def generate(
        self,
        tokens: Tensor,
        steps: int,
        *,
        cache: "CacheKind | None" = None,
        window: int | None = None,
        sinks: int = 4,
        temperature: float = 0.0,
        seed: int = 0,
        stop: int | None = None,
    ) -> Tensor:
        """Tokens [B, T] followed by up to ``steps`` that the model continues them with.

        The options are those of ``whorl.lab.generate.generate_tokens``.
        """
        from .generate import generate_tokens

        options = {"cache": cache, "window": window, "sinks": sinks, "stop": stop}
        return generate_tokens(self, tokens, steps, temperature=temperature, seed=seed, **options)  # type: ignore[arg-type]

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding.

        They are normal with standard deviation 0.02, less in matrices that write to the residual
        stream (Radford et al. 2019, GPT-2, section 2.3).
        """
        thin = EMBEDDING_STD / math.sqrt(2 * self.config.layers)
        for name, weight in self.named_parameters():
            if "encoding" in name:
                continue
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            source = torch.Generator().manual_seed(derive_seed(seed, name, tuple(weight.shape)))
            std = thin if name.endswith(("out.weight", "down.weight")) else EMBEDDING_STD
            weight.normal_(std=std, generator=source)
        reset_encodings([self.encoding, *self.layer_encodings], seed)

    def name_part(self, name: str) -> str:
        """Part of the model that a parameter belongs to: "attention", "mlp", "norms", ..."""
        if "encoding" in name:
            return "encoding"
        if "norm" in name:
            return "norms"
        if name.startswith("blocks."):
            return "attention" if name.split(".")[2] in ("qkv", "out") else "mlp"
        return name.split(".")[0]


class TransformerLayer(nn.Module):
    """One layer, the number ``layer`` from 0: attention, then an MLP, each added to its input."""

    #: Tokens of a group of shifted sparse attention; None attends to all earlier tokens.
    attention_group: int | None = None

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.feature_map = build_feature_map(config, layer)
        D, H, G = config.head_dim, config.heads, config.key_heads
        self.attention_norm = RMSNorm(config.width)
        self.qkv = nn.Linear(config.width, (H + 2 * G) * D, bias=False)
        self.out = nn.Linear(H * D, config.width, bias=False)
        if config.qk_norm != "none":
            self.q_norm, self.k_norm = HeadNorm(D, NORM_EPS), HeadNorm(D, NORM_EPS)
        self.mlp_norm = RMSNorm(config.width)
        self.gate_up = nn.Linear(config.width, 2 * config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        positions: Tensor | None,
        context_length: int | None,
        memory: "LayerMemory | None" = None,
    ) -> Tensor:
        normed = self.attention_norm(x)
        x = x + self.out(self._attend(normed, encoding, positions, context_length, memory))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        y: Tensor = x + self.down(F.silu(gate) * up)
        return y

    def _attend(
        self,
        x: Tensor,
        encoding: Encoding,
        positions: Tensor | None,
        context_length: int | None,
        memory: "LayerMemory | None",
    ) -> Tensor:
        config = self.config
        q, k, v, weight = self.split_heads(self.qkv(x))
        causal = config.kind == "decoder"
        if memory is not None:
            mixed = memory.attend(q, k, v, positions, weight)
        elif config.attention == "linear":
            mixed = whorl.linear_attention(
                q,
                k,
                v,
                encoding,
                feature_map=self.feature_map,
                causal=causal,
                positions=positions,
                context_length=context_length,
            )
        elif self.attention_group is not None:
            mixed = whorl.shifted_attention(
                q,
                k,
                v,
                encoding,
                group=self.attention_group,
                causal=causal,
                positions=positions,
                context_length=context_length,
            )
        else:
            mixed = whorl.attention(
                q,
                k,
                v,
                encoding,
                causal=causal,
                positions=positions,
                dropout=config.dropout if self.training else 0.0,
                context_length=context_length,
                query_weight=weight,
            )
        return mixed.transpose(1, 2).flatten(2)  # [B, T, H D]

    def split_heads(self, projection: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values [B, H or G, T, D] of [B, T, (H + 2 G) D], and a query_weight."""
        config = self.config
        H, G = config.heads, config.key_heads
        heads = torch.unflatten(projection, -1, (H + 2 * G, config.head_dim))
        q, k, v = (part.transpose(1, 2) for part in torch.split(heads, [H, G, G], dim=2))
        if config.qk_norm == "none":
            return q, k, v, None
        q, k, weight = normalize_heads(q, k, self.q_norm, self.k_norm, config.qk_norm)
        return q, k, v, weight


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, the mean in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        weight = self.weight.to(wide.dtype)
        return F.rms_norm(wide, self.weight.shape, weight, NORM_EPS).to(x.dtype)


def build_feature_map(config: ModelConfig, layer: int) -> FeatureMap:
    """The feature map of a layer with linear attention.

    "favor" has four features for each channel of a head, drawn anew for each layer.
    """
    if config.feature_map != "favor":
        return config.feature_map
    return whorl.RandomFeatures(config.head_dim, 4 * config.head_dim, seed=layer)


def copy_for_layers(encoding: Encoding, layers: int, per: Sharing) -> nn.ModuleList:
    """Copies of ``encoding`` for all layers but the first, which uses the encoding itself.

    Empty if all layers share it: with per="model", and if only the input has parameters.
    """
    inside = [part for part in encoding.parts if part.hooks - {"input"}]
    own = per == "layer" and any(list(part.parameters()) for part in inside)
    copies = range((layers - 1) * own)
    return nn.ModuleList(
        deepcopy(Composition(*inside) if len(inside) > 1 else inside[0]) for _ in copies
    )


def reset_encodings(encodings: Iterable[nn.Module], seed: int) -> None:
    """Set the parameters of the layers' encodings to random ones that depend on the seed."""
    with torch.random.fork_rng(devices=[]):
        for n, encoding in enumerate(encodings):
            torch.manual_seed(derive_seed(seed, "encoding", n))
            for part in encoding.modules():
                if callable(reset := getattr(part, "reset_parameters", None)):
                    reset()


def _check_encoding(config: ModelConfig, encoding: Encoding) -> None:
    """Raise ValueError if this model cannot use the encoding."""
    check_qk_norm(config.qk_norm, encoding, "model")
    linear = config.attention == "linear"
    cards = [part.card for part in encoding.parts]
    if linear and any(card is not None and card.linear_attention == "no" for card in cards):
        raise ValueError(
            f"model.encoding {quote(config.encoding)} scores pairs of tokens, which linear"
            " attention never computes; choose rope, alibi or an input encoding, or attention ="
            " 'softmax'."
        )
    if linear and config.feature_map == "favor" and any(x.acts("span") for x in encoding.parts):
        raise ValueError(
            "model.feature_map must be 'elu', 'relu' or 'cosine' with model.encoding"
            f" {quote(config.encoding)}, whose keys are relative to a position that moves; got"
            " 'favor'."
        )
    causal = encoding.causal or (
        linear and any(card is not None and card.linear_attention == "causal" for card in cards)
    )
    if config.kind == "encoder" and causal:
        raise ValueError(
            f"model.encoding {quote(config.encoding)} is for causal attention only, and an encoder"
            " is not causal; choose another encoding, or kind = 'decoder'."
        )


def derive_seed(*parts: object) -> int:
    """A seed that depends on all ``parts``, the same in every process."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:7], "big")
