"""RoFormer: BERT's encoder with any of whorl's encodings, for masked tokens and classification.

    x = norm(embedding(tokens) + embedding(types))  [B, T, E]   encoding.embed: learned, sinusoidal
    x = projection(x), if E is not the width                    as in ALBERT
    per layer:
      x = norm(x + out(attention(q, k, v of x)))    [B, T, C]   encoding in attention: all others
      x = norm(x + down(activation(up(x))))
    masked tokens:   embedding^T norm(activation(dense(x))) + bias              [B, T, V]
    classification:  out(activation(dense(x of the first token)))               [B, classes]

Every linear map has a bias, and the norms come after each sum (Devlin et al. 2018, BERT,
https://arxiv.org/abs/1810.04805). With RoPE it is the model of Su et al. 2021, RoFormer,
https://arxiv.org/abs/2104.09864, whose layout is "interleaved". Nothing but ``encoding=`` makes
it another model: "learned" is BERT, "shaw" with sinusoidal keys and values is NEZHA (Wei et al.
2019, https://arxiv.org/abs/1909.00204); see docs/roformer.md. No pooler and no prediction of the
next sentence: RoFormer was trained without them. Checkpoints: ``roformer_weights``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from whorl._support.options import PositiveNumber, PositiveSize, Size, check_options
from whorl._support.words import quote, suggest_name
from whorl.encodings import Encoding, RoPE

from ._checks import check_number
from .config import EncodingSpec, ModelConfig, Sharing
from .encodings import EMBEDDING_STD, EncodedShape, build_encoding, split_spec
from .model import LanguageModel, copy_for_layers, derive_seed, reset_encodings

__all__ = ["ACTIVATIONS", "RoFormer", "RoFormerClassifier", "RoFormerConfig", "RoFormerMaskedLM"]


def _apply_tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


#: Activations by their names in transformers.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _apply_tanh_gelu,
    "gelu_pytorch_tanh": _apply_tanh_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True, kw_only=True)
class RoFormerConfig:
    """Shape, encoding and dropout of a RoFormer; by default the size of RoFormer base.

    Args:
        vocab: number of tokens in the vocabulary.
        inner: width inside the MLP.
        embedding_width: width of the embeddings, if it is not that of the layers.
        token_types: how many kinds of token there are, such as first and second sentence.
        padding_token: its embedding gets no gradient where it is looked up, as in transformers.
        max_length: rows of a learned table; other encodings have no longest length.
        encoding: as in ``ModelConfig``, but RoPE has the layout "interleaved" unless it says
            otherwise.
        encoding_per: "layer" gives each layer parameters of the encoding of its own.
        rotary_value: rotate values as well as queries and keys; needs RoPE.
        tied: the head for masked tokens uses the matrix of the token embeddings.
    """

    vocab: PositiveSize
    width: PositiveSize = 768
    layers: PositiveSize = 12
    heads: PositiveSize = 12
    inner: PositiveSize = 3072
    embedding_width: PositiveSize | None = None
    token_types: PositiveSize = 2
    padding_token: Size | None = None
    max_length: PositiveSize = 1536
    activation: str = "gelu"
    norm_eps: PositiveNumber = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    encoding: EncodingSpec = "rope"
    encoding_per: Sharing = "model"
    rotary_value: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        check_options(self, "RoFormer")
        check_number("RoFormer: dropout", self.dropout, 0.0, 0.95)
        check_number("RoFormer: attention_dropout", self.attention_dropout, 0.0, 0.95)
        if self.width % self.heads:
            raise ValueError(
                f"RoFormer: width must be a multiple of heads = {self.heads}, because all heads"
                f" have the same size; got {self.width}."
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"RoFormer: activation {quote(self.activation)} is unknown"
                f"{suggest_name(self.activation, ACTIVATIONS)} Known: {', '.join(ACTIVATIONS)}."
            )
        if self.padding_token is not None and self.padding_token >= self.vocab:
            raise ValueError(
                f"RoFormer: padding_token must be below vocab = {self.vocab}; got"
                f" {self.padding_token}."
            )

    @classmethod
    def from_model(cls, model: ModelConfig, *, vocab: int, longest: int) -> "RoFormerConfig":
        """The config of a model of the lab; the MLP has 4 times the width unless it says."""
        return cls(
            vocab=vocab,
            width=model.width,
            layers=model.layers,
            heads=model.heads,
            inner=model.hidden or 4 * model.width,
            max_length=longest,
            dropout=model.dropout,
            attention_dropout=model.dropout,
            encoding=model.encoding,
            encoding_per=model.encoding_per,
            tied=model.tied,
        )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def input_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_width or self.width


class RoFormer(nn.Module):
    """The encoder: tokens [B, T] to hidden states [B, T, width].

    >>> config = RoFormerConfig(vocab=100, width=32, layers=2, heads=2, inner=64)
    >>> encoder = RoFormer(config).eval()
    >>> encoder(torch.zeros(1, 2000, dtype=torch.long)).shape
    torch.Size([1, 2000, 32])
    """

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(
            config.vocab, config.input_width, padding_idx=config.padding_token
        )
        self.token_type_embedding = nn.Embedding(config.token_types, config.input_width)
        self.embedding_norm = nn.LayerNorm(config.input_width, eps=config.norm_eps)
        self.projection: nn.Linear | None = None
        if config.input_width != config.width:
            self.projection = nn.Linear(config.input_width, config.width)
        self.encoding = _build_encoding(config)
        self.layers = nn.ModuleList(RoFormerLayer(config) for _ in range(config.layers))
        self.layer_encodings = copy_for_layers(self.encoding, config.layers, config.encoding_per)

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        token_types: Tensor | None = None,
        context_length: int | None = None,
    ) -> Tensor:
        """Hidden states [B, T, width] of tokens [B, T].

        Args:
            mask: [B, T], 0 for padding and 1 for other tokens.
            token_types: [B, T], 0 for all tokens by default.
            context_length: for scalings that depend on the length.
        """
        axes = self.encoding.position_axes
        positions = None
        if axes > 1:  # in text, the position on every axis is the number of the token
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand(axes, -1)
        types = torch.zeros_like(tokens) if token_types is None else token_types
        x: Tensor = self.embedding(tokens) + self.token_type_embedding(types)  # [B, T, E]
        x = self.embedding_norm(self.encoding.embed(x, positions))
        x = F.dropout(x, self.config.dropout, self.training)
        if self.projection is not None:
            x = self.projection(x)  # [B, T, C]
        for n, layer in enumerate(self.layers):
            encoding = self.layer_encodings[n - 1] if self.layer_encodings and n else self.encoding
            x = layer(x, encoding, mask, positions, context_length)
        return x

    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding."""
        _reset_weights(self, seed)
        reset_encodings([self.encoding, *self.layer_encodings], seed)


class RoFormerLayer(nn.Module):
    """One layer: attention, then an MLP, each added to its input and normalized."""

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.up = nn.Linear(config.width, config.inner)
        self.down = nn.Linear(config.inner, config.width)
        self.mlp_norm = nn.LayerNorm(config.width, eps=config.norm_eps)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        mask: Tensor | None,
        positions: Tensor | None,
        context_length: int | None,
    ) -> Tensor:
        config = self.config
        q, k, v = (
            project(x).unflatten(-1, (config.heads, config.head_dim)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )  # [B, H, T, D]
        if config.rotary_value:
            v = _get_rope(encoding).rotate(v, positions, context_length=context_length)
        mixed = whorl.attention(
            q,
            k,
            v,
            encoding,
            positions=positions,
            mask=mask,
            dropout=config.attention_dropout if self.training else 0.0,
            context_length=context_length,
        )
        y = self.out(mixed.transpose(1, 2).flatten(2))  # [B, T, C]
        x = self.attention_norm(x + F.dropout(y, config.dropout, self.training))
        y = self.down(ACTIVATIONS[config.activation](self.up(x)))
        z: Tensor = self.mlp_norm(x + F.dropout(y, config.dropout, self.training))
        return z


class RoFormerMaskedLM(LanguageModel):
    """RoFormer that predicts masked tokens: tokens [B, T] to logits [B, T, vocab].

    >>> config = RoFormerConfig(vocab=100, width=32, layers=2, heads=2, inner=64, encoding="alibi")
    >>> RoFormerMaskedLM(config)(torch.zeros(1, 10, dtype=torch.long)).shape
    torch.Size([1, 10, 100])
    """

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.config, self.vocab = config, config.vocab
        self.encoder = RoFormer(config)
        self.head = MaskedTokenHead(config)

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        token_types: Tensor | None = None,
        context_length: int | None = None,
    ) -> Tensor:
        """Logits [B, T, vocab] of tokens [B, T]; the options are those of ``RoFormer``."""
        x = self.encoder(tokens, mask=mask, token_types=token_types, context_length=context_length)
        logits: Tensor = self.head(x, self.encoder.embedding.weight)
        return logits

    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding."""
        self.encoder.reset_parameters(seed)
        _reset_weights(self.head, seed)

    def name_part(self, name: str) -> str:
        """Part of the model that a parameter belongs to: "attention", "mlp", "norms", ..."""
        if "encoding" in name:
            return "encoding"
        if "norm" in name:
            return "norms"
        if name.startswith("encoder.layers."):
            return "mlp" if name.split(".")[3] in ("up", "down") else "attention"
        return "head" if name.startswith("head.") else "embedding"

    def is_layer_matrix(self, name: str) -> bool:
        """Whether Muon trains a matrix: those of the layers, before them and after them."""
        square = ("encoder.projection.weight", "head.dense.weight")
        return super().is_layer_matrix(name) or name in square


class MaskedTokenHead(nn.Module):
    """Hidden states [B, T, width] to logits [B, T, vocab], by the matrix of the embeddings."""

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.width, config.input_width)
        self.norm = nn.LayerNorm(config.input_width, eps=config.norm_eps)
        self.decoder: nn.Parameter | None = None
        if not config.tied:
            self.decoder = nn.Parameter(torch.empty(config.vocab, config.input_width))
            nn.init.normal_(self.decoder, std=EMBEDDING_STD)
        self.bias = nn.Parameter(torch.zeros(config.vocab))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.norm(ACTIVATIONS[self.config.activation](self.dense(x)))  # [B, T, E]
        return F.linear(x, embedding if self.decoder is None else self.decoder, self.bias)


class RoFormerClassifier(nn.Module):
    """RoFormer that classifies texts by their first token: tokens [B, T] to logits [B, classes].

    >>> config = RoFormerConfig(vocab=100, width=32, layers=2, heads=2, inner=64)
    >>> RoFormerClassifier(config, classes=3)(torch.zeros(4, 10, dtype=torch.long)).shape
    torch.Size([4, 3])
    """

    def __init__(self, config: RoFormerConfig, *, classes: int = 2) -> None:
        super().__init__()
        if type(classes) is not int or classes < 1:
            raise ValueError(
                f"RoFormerClassifier: classes must be a whole number of at least 1; got"
                f" {quote(classes)}."
            )
        self.config, self.classes = config, classes
        self.encoder = RoFormer(config)
        self.head = ClassificationHead(config, classes)

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        token_types: Tensor | None = None,
        context_length: int | None = None,
    ) -> Tensor:
        """Logits [B, classes] of tokens [B, T]; the options are those of ``RoFormer``."""
        x = self.encoder(tokens, mask=mask, token_types=token_types, context_length=context_length)
        logits: Tensor = self.head(x)
        return logits

    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding."""
        self.encoder.reset_parameters(seed)
        _reset_weights(self.head, seed)


class ClassificationHead(nn.Module):
    """The hidden state of the first token, [B, T, width], to logits [B, classes]."""

    def __init__(self, config: RoFormerConfig, classes: int) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x[:, 0], self.config.dropout, self.training)
        x = ACTIVATIONS[self.config.activation](self.dense(x))
        logits: Tensor = self.out(F.dropout(x, self.config.dropout, self.training))
        return logits


def _build_encoding(config: RoFormerConfig) -> Encoding:
    """The encoding of ``config``; ValueError if this model cannot use it."""
    parts: list[Any] = [
        {"layout": "interleaved", **part} if part["name"] == "rope" else part
        for part in split_spec(config.encoding)
    ]
    shape = EncodedShape(config.heads, config.head_dim, config.input_width, "encoder")
    encoding = build_encoding(parts, shape, config.max_length)
    if encoding.causal:
        raise ValueError(
            f"RoFormer: encoding {quote(config.encoding)} is for causal attention only, and an"
            " encoder is not causal; choose another encoding."
        )
    if config.rotary_value and not any(isinstance(part, RoPE) for part in encoding.parts):
        raise ValueError(
            f"RoFormer: rotary_value needs an encoding with RoPE; got {quote(config.encoding)}."
            " Choose 'rope', or rotary_value=False."
        )
    return encoding


def _get_rope(encoding: Encoding) -> RoPE:
    return next(part for part in encoding.parts if isinstance(part, RoPE))


@torch.no_grad()
def _reset_weights(module: nn.Module, seed: int) -> None:
    """Set matrices to normal numbers, norms to 1 and biases to 0; encodings are left alone."""
    for name, weight in module.named_parameters():
        if "encoding" in name:
            continue
        if weight.dim() == 1:
            weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            continue
        source = torch.Generator().manual_seed(derive_seed(seed, name, tuple(weight.shape)))
        weight.normal_(std=EMBEDDING_STD, generator=source)
