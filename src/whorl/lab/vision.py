"""A small vision transformer: patches of an image, an encoder with any position encoding, a class.

    x = embedding(patches)                     [B, T, E]   T patches, row by row from the top left
    x = x + row of the position                learned, sinusoidal: once, at the input
    layers of model.py, without a causal mask              AxialRoPE: rotates q and k in each layer
    logits = head(mean over T of norm(x))      [B, classes]

Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929, but without a class token: patches are
averaged. Images are square, [B, C, S, S]. The grid of patches may be larger than that of the
training; then positions are either

    rescaled    spread over the range of the training: i (n - 1) / (m - 1) for m patches instead of
                n, fractions; a learned table is interpolated to the same coordinates
    index       0 .. m - 1, which a learned table has no rows for

Sinusoidal positions have two axes: the first half of the channels encodes the row, the second the
column. Mixed frequencies of AxialRoPE belong to each head of each layer (Heo et al. 2024,
https://arxiv.org/abs/2403.13298).
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl import positions
from whorl._support.words import quote
from whorl.encodings import AxialRoPE, Encoding, Learned, NoPE, Sinusoidal

from ._checks import check_choice, check_count
from .config import ModelConfig
from .encodings import EMBEDDING_STD, EncodedShape, build_encoding, split_spec
from .model import RMSNorm, TransformerLayer, copy_for_layers, derive_seed, reset_encodings

__all__ = [
    "PATCH_STD",
    "Coordinates",
    "VisionTransformer",
    "build_coordinates",
    "interpolate_grid_table",
]

Coordinates = Literal["rescaled", "index"]

#: Standard deviation of the weights of patches before they are trained.
PATCH_STD = 0.5


class VisionTransformer(nn.Module):
    """A Transformer that maps square images [B, channels, S, S] to logits [B, classes].

    Args:
        config: shape and encoding: axial_rope, learned, sinusoidal or nope, with options.
        grid: patches on each side of an image in training.
        classes: number of classes.
        patch: pixels on each side of a patch.
        channels: numbers of a pixel.

    >>> config = ModelConfig(encoding="axial_rope(base=100)", kind="encoder", layers=1)
    >>> model = VisionTransformer(config, grid=8, classes=10)
    >>> model(torch.zeros(2, 1, 12, 12)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, config: ModelConfig, *, grid: int, classes: int, patch: int = 1, channels: int = 1
    ) -> None:
        super().__init__()
        for name, value in (("grid", grid), ("classes", classes), ("patch", patch)):
            check_count(f"VisionTransformer: {name}", value)
        self.config, self.grid, self.patch = config, grid, patch
        self.embedding = nn.Linear(channels * patch * patch, config.width)
        self.encoding = _build_grid_encoding(config, grid)
        self.blocks = nn.ModuleList(TransformerLayer(config, n) for n in range(config.layers))
        self.layer_encodings = copy_for_layers(self.encoding, config.layers, "layer")
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, classes, bias=False)
        self._no_position = NoPE()

    def forward(self, images: Tensor, *, coordinates: Coordinates = "rescaled") -> Tensor:
        """Logits [B, classes] of images [B, channels, S, S]; S is a multiple of the patch."""
        size = self._count_patches(images)
        patches = F.unfold(images, self.patch, stride=self.patch).mT  # [B, T, channels patch^2]
        where = build_coordinates(size, self.grid, coordinates)  # [2, T]
        x = self._embed(self.embedding(patches), where, size, coordinates)
        rotates = isinstance(self.encoding, AxialRoPE)
        for n, block in enumerate(self.blocks):
            inside = self.get_layer_encoding(n) if rotates else self._no_position
            x = block(x, inside, where if rotates else None, None)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits

    def get_layer_encoding(self, layer: int) -> Encoding:
        """The encoding that acts in the attention of a layer."""
        own = self.layer_encodings[layer - 1] if self.layer_encodings and layer else self.encoding
        assert isinstance(own, Encoding)
        return own

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding."""
        for name, weight in self.named_parameters():
            if "encoding" in name:
                continue
            if "norm" in name:
                weight.fill_(1.0)
                continue
            source = torch.Generator().manual_seed(derive_seed(seed, name, tuple(weight.shape)))
            std = PATCH_STD if name.startswith("embedding.") else EMBEDDING_STD
            weight.normal_(std=std, generator=source)
        reset_encodings([self.encoding, *self.layer_encodings], seed)

    def is_layer_matrix(self, name: str) -> bool:
        """Whether a parameter of two axes is one that Muon trains: a matrix of the layers."""
        return name.startswith("blocks.")

    def _count_patches(self, images: Tensor) -> int:
        """Patches on each side; ValueError unless images are square and made of whole patches."""
        height, width = images.shape[-2:]
        if images.dim() != 4 or height != width or height % self.patch:
            raise ValueError(
                "VisionTransformer: images must be [B, channels, S, S] with S a multiple of the"
                f" patch, {self.patch}; got {list(images.shape)}."
            )
        return int(height // self.patch)

    def _embed(self, x: Tensor, where: Tensor, size: int, coordinates: Coordinates) -> Tensor:
        """Patches [B, T, E] with their positions, if these belong to the input."""
        if isinstance(self.encoding, Learned):
            if coordinates == "index" and size != self.grid:
                raise ValueError(
                    f"VisionTransformer: a learned table for {self.grid} x {self.grid} patches"
                    f" has no rows for {size} x {size}; use coordinates='rescaled', which"
                    " interpolates it."
                )
            return x + interpolate_grid_table(self.encoding, size)
        if isinstance(self.encoding, Sinusoidal):
            return x + torch.cat([self.encoding.table(axis) for axis in where], -1)
        return x


def build_coordinates(size: int, trained: int, coordinates: Coordinates = "rescaled") -> Tensor:
    """Rows and columns [2, T] of the patches of a grid of ``size`` on each side.

    "rescaled" spreads them over the range of a grid of ``trained``, and "index" counts them.

    >>> build_coordinates(5, 3)[1, :5].tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    >>> build_coordinates(5, 3, "index")[1, :5].tolist()
    [0, 1, 2, 3, 4]
    """
    check_choice("VisionTransformer: coordinates", coordinates, get_args(Coordinates))
    if coordinates == "index" or size == trained:
        return positions.grid(size, size)
    return (positions.grid(size, size, coordinates="corners") + 1) / 2 * (trained - 1)


def interpolate_grid_table(learned: Learned, size: int) -> Tensor:
    """Rows [size^2, E] of a table for a square grid, interpolated along one axis, then the other.

    The corners keep their rows. The result is the table itself if the size is the same.
    """
    side, width = round(learned.config.max_length**0.5), learned.config.dim
    if size == side:
        return learned.weight
    table = learned.weight.detach()
    for length in (side, size):  # [rows, columns E] -> [columns, new rows E] -> as it was
        flat = table.reshape(side, length * width)
        axis = Learned(flat.shape[1], max_length=side)
        axis.weight = nn.Parameter(flat, requires_grad=False)
        resized = axis.resize(size, "linear").weight.detach()
        table = resized.view(size, length, width).transpose(0, 1)
    return table.reshape(size * size, width)


def _build_grid_encoding(config: ModelConfig, grid: int) -> Encoding:
    """The encoding of a config for a square grid; ValueError if it cannot encode one."""
    (part, *rest) = split_spec(config.encoding)
    known = ("axial_rope", "learned", "sinusoidal", "nope")
    if rest or part["name"] not in known:
        raise ValueError(
            f"VisionTransformer: model.encoding must be one of {', '.join(known)}, which encode"
            f" rows and columns or nothing; got {quote(config.encoding)}."
        )
    if part.get("frequencies") == "mixed":
        part.setdefault("num_kv_heads", config.key_heads)
    width = config.width // 2 if part["name"] == "sinusoidal" else config.width
    shape = EncodedShape(config.heads, config.head_dim, width, config.kind)
    return build_encoding(part, shape, grid * grid)
